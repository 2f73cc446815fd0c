"""Toolsets of kind `python`: the functions of a module that are marked with `@tool`."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError, ToolError
from toolrelay.settings import Environment, ToolsetSettings
from toolrelay.toolsets.base import Preview, ToolContext, ToolDefinition, ToolOutput, ToolsetKind
from toolrelay.toolsets.python.decorator import marked_functions, tool
from toolrelay.toolsets.python.function import PythonTool, describe_place, read_function
from toolrelay.toolsets.python.loader import load_module
from toolrelay.toolsets.python.threads import FunctionOutcome, Threads, end_forked_child

__all__ = ["KIND", "PythonSettings", "PythonToolset", "tool"]


class PythonSettings(ToolsetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    module: str


class PythonToolset:
    """Async functions run on the event loop, all others in threads."""

    def __init__(self, tools: Sequence[PythonTool], *, max_concurrent: int, name: str = "tools") -> None:
        self._tools = {tool.definition.name: tool for tool in tools}
        self._threads = Threads(max_concurrent, f"toolset {name}")
        self._process = os.getpid()

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        return [tool.definition for tool in self._tools.values()]

    async def open(self) -> None:
        self._process = os.getpid()

    async def preview(self, name: str, arguments: JsonObject, context: ToolContext) -> Preview:  # noqa: ARG002 -- the interface
        return Preview()

    async def run(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        tool = self._tools[name]
        values = tool.convert(arguments, context)
        if tool.is_async:
            return await self._await(tool.function(**values))
        outcome = await self._threads.run(lambda: tool.function(**values))
        returned = outcome.value
        return await self._await(returned) if inspect.isawaitable(returned) else _value_of(outcome)

    async def _await(self, awaitable: Awaitable[Any]) -> ToolOutput:
        outcome = FunctionOutcome()
        try:
            outcome = FunctionOutcome(await awaitable)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            outcome = FunctionOutcome(error=error)
        except BaseException as error:  # noqa: BLE001 -- raised again, as an exception that is safe on the event loop
            outcome = FunctionOutcome(error=error)
        finally:
            end_forked_child(self._process)
        return _value_of(outcome)

    async def close(self) -> None:
        self._threads.close()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _value_of(outcome: FunctionOutcome) -> ToolOutput:
    error = outcome.error
    if error is None:
        value: ToolOutput = outcome.value
        return value
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        raise error
    # Raised again it would end the process, or look like a cancellation.
    raise ToolError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


def read_module(name: str, directory: Path | None) -> list[PythonTool]:
    """Return the tools of a module, or raise ConfigurationError with one line for each problem."""
    module = load_module(name, directory)
    functions = marked_functions(module)
    if not functions:
        raise ConfigurationError(f"{module.__file__} has no tools; mark its functions with @tool (`from toolrelay import tool`)")
    tools: dict[str, PythonTool] = {}
    problems: list[str] = []
    for function in functions:
        try:
            tool = read_function(function)
        except ConfigurationError as error:
            problems.append(error.message)
            continue
        other = tools.setdefault(tool.definition.name, tool)
        if other is not tool:
            place = describe_place(other.function)
            problems.append(f"{describe_place(function)}: {place} has this name, too; rename one, or use @tool(name=…)")
    if problems:
        raise ConfigurationError("\n".join(problems))
    return list(tools.values())


def _open(settings: PythonSettings, environment: Environment) -> PythonToolset:
    tools = read_module(settings.module, environment.config_dir)
    return PythonToolset(tools, max_concurrent=settings.max_concurrent, name=settings.name)


KIND = ToolsetKind(name="python", settings=PythonSettings, open=_open)
