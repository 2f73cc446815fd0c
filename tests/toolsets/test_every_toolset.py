"""The contract of every kind of toolset. New kinds are discovered: each has a `tests/toolsets/KIND/example.py`.

An example has the tools echo(text), fail() and wait(), or says in `EXAMPLE` which of its tools take their places.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.toolsets.contract import Example
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


def example_of(kind: ToolsetKind[Any]) -> Example:
    module = importlib.import_module(f"tests.toolsets.{kind.name}.example")
    found: Example = getattr(module, "EXAMPLE", Example())
    return found


async def check_echo(kind: ToolsetKind[Any], toolset: Toolset) -> None:
    echo = example_of(kind).echo
    assert await toolset.run(echo.tool, echo.arguments, context()) == echo.expected


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
            assert [tool.name for tool in toolset.tools] == list(example_of(kind).tools)
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
            await check_echo(kind, toolset)

    asyncio.run(story())


@every_kind
def test_failure_is_raised_and_the_toolset_goes_on(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(kind, tmp_path) as toolset:
            fail = example_of(kind).fail
            with pytest.raises(Exception, match=fail.expected):
                await toolset.run(fail.tool, fail.arguments, context())
            await check_echo(kind, toolset)

    asyncio.run(story())


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if example_of(kind).wait], ids=lambda kind: kind.name)
def test_cancelled_run_ends_and_the_toolset_goes_on(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(kind, tmp_path) as toolset:
            reported: asyncio.Queue[Progress] = asyncio.Queue()
            wait = example_of(kind).wait
            assert wait is not None
            run = asyncio.ensure_future(toolset.run(wait.tool, wait.arguments, context(report=reported.put_nowait)))
            assert await reported.get() == Progress(done=1, total=2, message="waiting")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            await check_echo(kind, toolset)

    asyncio.run(story())


@every_kind
def test_toolset_can_be_closed_without_being_opened(kind: ToolsetKind[Any], tmp_path: Path) -> None:
    toolset: Toolset = importlib.import_module(f"tests.toolsets.{kind.name}.example").example(tmp_path)
    asyncio.run(toolset.close())
