"""The toolset of a vault. All work is done in threads; a cancelled run ends soon."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import ConfigurationError, ToolError
from toolrelay.toolsets.base import Preview, PrivateOutput, ToolContext, ToolDefinition, ToolOutput
from toolrelay.toolsets.python.threads import FunctionOutcome, Threads
from toolrelay.toolsets.vault.files import VaultFiles
from toolrelay.toolsets.vault.follower import VaultFollower
from toolrelay.toolsets.vault.index import Index, is_damaged
from toolrelay.toolsets.vault.query import Query, parse_query
from toolrelay.toolsets.vault.reading import NoteError, preview_files, read_beginning, read_files
from toolrelay.toolsets.vault.rules import SUFFIX, encodable
from toolrelay.toolsets.vault.search import Hit, search
from toolrelay.toolsets.vault.tools import DEFAULT_LIMIT, MAX_LIMIT, READ, SEARCH, define_tools

_TRIES = 3  # of a search whose results changed meanwhile, or whose index was damaged


class VaultToolset:
    def __init__(
        self, files: VaultFiles, index: Index, *, name: str, asks_to_share: bool, timeout_seconds: float, max_concurrent: int
    ) -> None:
        self._files = files
        self._index = index
        self._follower = VaultFollower(files, index, name)
        self._tools = define_tools(asks_to_share=asks_to_share)
        self._wait_seconds = timeout_seconds - min(1.0, timeout_seconds / 5)  # the executor stops a run at the time-out
        self._threads = Threads(max_concurrent + 1, f"toolset {name}")

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        return self._tools

    async def open(self) -> None:
        await self._run(self._open)

    def _open(self) -> None:
        root = self._files.root
        if not root.exists():
            raise ConfigurationError(f"there is no folder {root}; correct `path`, or create the folder")
        if not root.is_dir():
            raise ConfigurationError(f"{root} is not a folder; write the folder of the vault as `path`")
        try:
            os.scandir(root).close()
        except OSError as error:
            raise ConfigurationError(f"the folder {root} cannot be read: {error.strerror}; correct its permissions") from None
        try:
            self._follower.start()
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"the index {self._index.path} cannot be opened: {error}") from None

    async def close(self) -> None:
        await self._run(self._follower.stop)
        self._threads.close()

    async def preview(self, name: str, arguments: JsonObject, context: ToolContext) -> Preview:
        if name != READ:
            return Preview()
        paths = cast("list[str]", arguments["filePaths"])
        return Preview(files=await self._run(lambda: preview_files(self._files, paths, local=context.local)))

    async def read_file(self, name: str, path: str, context: ToolContext, *, limit: int) -> str:
        if name != READ:
            raise ToolError(f"{name} reads no files")

        def read() -> str:
            self._files.check()
            return read_beginning(self._files, path, local=context.local, limit=limit)

        try:
            text: str = await self._run(read)
        except NoteError as error:
            raise ToolError(str(error)) from None
        return text

    async def run(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        stopped = threading.Event()

        def is_cancelled() -> bool:
            return stopped.is_set() or context.cancelled

        work = self._search if name == SEARCH else self._read
        job = asyncio.ensure_future(self._run(lambda: work(arguments, context, is_cancelled)))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            stopped.set()
            await asyncio.wait({job})
            if not job.cancelled():
                job.exception()  # retrieved: nobody else asks for it
            raise

    async def _run(self, function: Callable[[], Any]) -> Any:  # noqa: ANN401 -- what the function returns
        outcome: FunctionOutcome = await self._threads.run(function)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _read(self, arguments: JsonObject, context: ToolContext, is_cancelled: Callable[[], bool]) -> ToolOutput:
        self._files.check()
        paths = cast("list[str]", arguments["filePaths"])
        entries, has_private = read_files(self._files, paths, local=context.local, is_cancelled=is_cancelled)
        return PrivateOutput(entries) if has_private else entries

    def _search(self, arguments: JsonObject, context: ToolContext, is_cancelled: Callable[[], bool]) -> ToolOutput:
        limit = cast("float", arguments.get("limit", DEFAULT_LIMIT))
        if not limit >= 1:
            raise ToolError("limit must be at least 1")
        query = parse_query(cast("str", arguments["query"]))
        self._files.check()
        hits = self._find(query, int(min(limit, MAX_LIMIT)), context, is_cancelled)
        entries: list[Json] = [_encode_hit(hit) for hit in hits]
        return PrivateOutput(entries) if any(hit.is_private for hit in hits) else entries

    def _find(self, query: Query, limit: int, context: ToolContext, is_cancelled: Callable[[], bool]) -> list[Hit]:
        """Search until no result has changed since it was indexed."""
        fresh: list[Hit] = []
        for _ in range(_TRIES):
            self._follower.wait(self._wait_seconds, context, is_cancelled)
            try:
                with self._index.reader() as connection:
                    hits = search(connection, self._index, query, limit, local=context.local, is_cancelled=is_cancelled)
                stale = [hit.path for hit in hits if not self._is_fresh(hit)]
                fresh = [hit for hit in hits if hit.path not in stale]
                if not stale:
                    return hits
                self._follower.refresh(stale)
            except sqlite3.Error as error:
                if is_cancelled():
                    raise ToolError("the search was cancelled") from None
                if not is_damaged(error):
                    raise ToolError(f"the index of the vault cannot be read: {error}") from error
                self._follower.report_damage(error)
        return fresh

    def _is_fresh(self, hit: Hit) -> bool:
        found = self._files.stat(hit.path)
        return found is not None and found.fingerprint == hit.fingerprint


def _encode_hit(hit: Hit) -> JsonObject:
    path = encodable(hit.path)
    return {
        "path": path,
        "basename": path.rpartition("/")[2][: -len(SUFFIX)],
        "matches": hit.matches,
        "preview": hit.preview,
    }
