"""The contract of every kind of toolset. New kinds are discovered: each has a `tests/toolsets/KIND/example.py`."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolrelay.core.validation import can_validate
from toolrelay.settings import ToolsetSettings
from toolrelay.toolsets.base import Progress, ToolContext, Toolset, ToolsetKind, discover

KINDS = discover()
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def same_path_and_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in {name for name in set(sys.modules) - modules if name.startswith("example")}:
        del sys.modules[name]


@asynccontextmanager
async def opened(kind: ToolsetKind[Any], directory: Path) -> AsyncIterator[Toolset]:
    toolset: Toolset = importlib.import_module(f"tests.toolsets.{kind.name}.example").example(directory)
    await toolset.open()
    try:
        yield toolset
    finally:
        await toolset.close()


def context(**values: Any) -> ToolContext:
    return ToolContext(call_id="call_1", **values)


@every_kind
def test_settings_extend_the_common_ones(kind: ToolsetKind[Any]) -> None:
    assert issubclass(kind.settings, ToolsetSettings)
    assert KINDS[kind.name] is kind


@every_kind
def test_schemas_are_strict_and_can_be_checked(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(kind, tmp_path) as toolset:
            assert [tool.name for tool in toolset.tools] == ["echo", "fail", "wait"]
            for tool in toolset.tools:
                assert tool.parameters["type"] == "object"
                assert tool.parameters["additionalProperties"] is False
                assert can_validate(tool.parameters)
                assert tool.description

    asyncio.run(story())


@every_kind
def test_tool_gets_its_arguments(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(kind, tmp_path) as toolset:
            assert await toolset.run("echo", {"text": "Grüß Gott"}, context()) == "Grüß Gott"

    asyncio.run(story())


@every_kind
def test_failure_is_raised_and_the_toolset_goes_on(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(kind, tmp_path) as toolset:
            with pytest.raises(Exception, match="as planned"):
                await toolset.run("fail", {}, context())
            assert await toolset.run("echo", {"text": "a"}, context()) == "a"

    asyncio.run(story())


@every_kind
def test_cancelled_run_ends_and_the_toolset_goes_on(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(kind, tmp_path) as toolset:
            reported: asyncio.Queue[Progress] = asyncio.Queue()
            run = asyncio.ensure_future(toolset.run("wait", {}, context(report=reported.put_nowait)))
            assert await reported.get() == Progress(done=1, total=2, message="waiting")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert await toolset.run("echo", {"text": "a"}, context()) == "a"

    asyncio.run(story())


@every_kind
def test_toolset_can_be_closed_without_being_opened(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    toolset: Toolset = importlib.import_module(f"tests.toolsets.{kind.name}.example").example(tmp_path)
    asyncio.run(toolset.close())
