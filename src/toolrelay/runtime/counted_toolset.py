"""A toolset that knows whether a call of it runs, so that it can be closed when none does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toolrelay import log
from toolrelay.core.json import JsonObject
from toolrelay.errors import ToolError
from toolrelay.toolsets.base import FilePreviewer, Preview, ToolContext, ToolDefinition, ToolOutput, Toolset

CLOSE_SECONDS = 5.0


class CountedToolset:
    """See toolsets.base.Toolset. Closing is done once, however often it is asked for."""

    def __init__(self, name: str, toolset: Toolset) -> None:
        self._name = name
        self._toolset = toolset
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        return self._toolset.tools

    async def open(self) -> None:
        await self._toolset.open()

    async def preview(self, name: str, arguments: JsonObject, context: ToolContext) -> Preview:
        with self._count():
            return await self._toolset.preview(name, arguments, context)

    async def read_file(self, name: str, path: str, context: ToolContext, *, limit: int) -> str:
        """See toolsets.base.FilePreviewer."""
        if not isinstance(self._toolset, FilePreviewer):
            raise ToolError("this toolset does not show files")
        with self._count():
            return await self._toolset.read_file(name, path, context, limit=limit)

    async def run(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        with self._count():
            return await self._toolset.run(name, arguments, context)

    @contextmanager
    def _count(self) -> Iterator[None]:
        if self._closing is not None:
            raise ToolError("the toolset was changed or removed; the tool was not run")
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def close_when_idle(self, seconds: float) -> None:
        """Close it when its calls have ended, after this time in any case."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("toolset_still_running", toolset=self._name, calls=self._calls)
        await self.close()

    async def _close(self) -> None:
        """One that fails or hangs does not keep the others, or the gateway, from stopping."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._toolset.close()
        except Exception as error:  # noqa: BLE001 -- it is a plug-in
            log.warning("toolset_not_closed", toolset=self._name, reason=f"{type(error).__name__}: {error}")
