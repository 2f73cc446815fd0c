"""Vaults for tests: folders of notes, and toolsets that are open on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolrelay.settings import Environment
from toolrelay.toolsets.base import PrivateOutput, ToolContext, Toolset
from toolrelay.toolsets.vault import KIND, VaultSettings

DEADLINE_SECONDS = 60.0


def write_notes(root: Path, notes: Mapping[str, str | bytes]) -> Path:
    root.mkdir(exist_ok=True)
    for path, content in notes.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def make_toolset(root: Path, data: Path, **settings: Any) -> Toolset:
    values = VaultSettings(name="vault", kind="vault", path=str(root), **settings)
    return KIND.open(values, Environment(data_dir=data, config_dir=root.parent))


@asynccontextmanager
async def opened(root: Path, data: Path | None = None, **settings: Any) -> AsyncIterator[Toolset]:
    toolset = make_toolset(root, data or root.parent / "data", **settings)
    await toolset.open()
    try:
        yield toolset
    finally:
        await toolset.close()


def context(*, local: bool = False) -> ToolContext:
    return ToolContext(call_id="call_1", local=local)


async def search(toolset: Toolset, query: str, *, local: bool = False, **arguments: Any) -> list[dict[str, Any]]:
    output = await toolset.run("vault_search", {"query": query, **arguments}, context(local=local))
    found: Any = output.value if isinstance(output, PrivateOutput) else output
    return list(found)


async def paths(toolset: Toolset, query: str, *, local: bool = False, **arguments: Any) -> list[str]:
    return [entry["path"] for entry in await search(toolset, query, local=local, **arguments)]


async def read(toolset: Toolset, *files: str, local: bool = False) -> list[dict[str, Any]]:
    output = await toolset.run("file_read", {"filePaths": list(files)}, context(local=local))
    found: Any = output.value if isinstance(output, PrivateOutput) else output
    return list(found)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds: the index follows the files a moment later."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "the index did not follow the files"
        await asyncio.sleep(0.02)


def on_vault(root: Path, story: Callable[[Toolset], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with opened(root, **settings) as toolset:
            await story(toolset)

    asyncio.run(main())
