"""Gateway tools and an executor made from functions, without a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.core.steps import ToolRunFinished
from toolrelay.runtime import gateway_tools
from toolrelay.runtime.executor import Executor
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.settings import Environment, KeySettings, ModelSettings, Settings
from toolrelay.toolsets.base import ToolContext, ToolsetKind
from toolrelay.toolsets.python import PythonSettings, PythonToolset
from toolrelay.toolsets.python.function import read_function

ENVIRONMENT = Environment(data_dir=Path("data"))
Story = Callable[[Executor], Awaitable[Any]]
Play = Callable[..., Any]


class Caller(Struct):
    key: str | None = None


def settings_for(
    module: str,
    environment: Environment,
    *,
    keys: Mapping[str, Sequence[str]] | None = None,
    models: Mapping[str, Sequence[str]] | None = None,
    tools_off: bool = False,
    **toolset: Any,
) -> Settings:
    """Return settings with the toolset `mine` and the model `fast`, which may use it. `keys` and `models` hold toolsets."""
    return Settings(
        toolsets={"mine": PythonSettings(name="mine", kind="python", module=module, approval="never", **toolset)},
        models={
            name: ModelSettings(name=name, provider="demo", toolsets=tuple(toolsets))
            for name, toolsets in (models or {"fast": ["mine"]}).items()
        },
        keys=tuple(KeySettings(name=name, sha256="0" * 64, toolsets=tuple(toolsets)) for name, toolsets in (keys or {}).items()),
        environment=environment,
        tools_off=tools_off,
        config_file="toolrelay.toml",
    )


@asynccontextmanager
async def executing(settings: Settings, **options: Any) -> AsyncIterator[Executor]:
    tools = GatewayTools(settings)
    await tools.open()
    executor = Executor(tools, **options)
    try:
        yield executor
    finally:
        await tools.close()
        await executor.close()


def context(**values: Any) -> ToolContext:
    return ToolContext(**({"call_id": "call_1", "model": "fast"} | values))


async def run(executor: Executor, name: str, arguments: str = "{}", **options: Any) -> ToolRunFinished:
    call = Call(id="call_1", name=name, arguments=arguments)
    return await executor.run(call, options.pop("context", None) or context(), **options)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that plays a story on an executor whose toolset `mine` consists of these functions."""

    def play(story: Story, *functions: Callable[..., Any], max_concurrent: int = 16, timeout: float = 30, **options: Any) -> Any:
        toolset = PythonToolset([read_function(function) for function in functions], max_concurrent=max_concurrent)
        kind = ToolsetKind(name="python", settings=PythonSettings, open=lambda *_: toolset)
        monkeypatch.setattr(gateway_tools, "discover", lambda: {"python": kind})
        settings = settings_for("m", ENVIRONMENT, max_concurrent=max_concurrent, timeout_seconds=timeout)

        async def main() -> Any:
            async with executing(settings, **options) as executor:
                return await story(executor)

        return asyncio.run(main())

    return play


def once(play: Play, function: Callable[..., Any], arguments: str = "{}", **options: Any) -> ToolRunFinished:
    """Return the result of one call."""

    async def story(executor: Executor) -> ToolRunFinished:
        return await run(executor, function.__name__, arguments, **call_options)

    call_options = {"max_result_bytes": options.pop("max_result_bytes")} if "max_result_bytes" in options else {}
    finished: ToolRunFinished = play(story, function, **options)
    return finished


def failure(message: str) -> ToolRunFinished:
    return ToolRunFinished(call_id="call_1", output=message, failed=True)
