"""The tools that the gateway runs: the opened toolsets, their tools, and who may use them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.core.policy import GatewayTool
from toolrelay.core.request import Tool
from toolrelay.core.validation import can_validate
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.counted_toolset import CLOSE_SECONDS, CountedToolset
from toolrelay.runtime.keys import KeyRing
from toolrelay.setting_types import quote_key
from toolrelay.settings import ModelSettings, Settings, ToolsetSettings, file_prefix
from toolrelay.toolsets.base import ToolDefinition, Toolset, discover

_VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what every provider accepts


class Caller(Protocol):
    """Who sent a request. `key` is the id of the key, or None for clients without a key and for the operator."""

    @property
    def key(self) -> str | None: ...


class OpenTool(Struct, frozen=True, kw_only=True):
    """A tool of an open toolset. `definition` has the toolset's own name of the tool, `gateway_tool` the one with its prefix."""

    gateway_tool: GatewayTool
    definition: ToolDefinition
    settings: ToolsetSettings
    toolset: Toolset

    @property
    def timeout_seconds(self) -> float:
        return self.definition.timeout_seconds or self.settings.timeout_seconds


class ToolsetsError(ConfigurationError):
    """What is wrong with toolsets: `problems` has the lines of each."""

    def __init__(self, problems: Mapping[str, Sequence[str]], prefix: str) -> None:
        self.problems = problems
        lines = [f"{prefix}toolsets.{quote_key(name)}: {line}" for name, found in problems.items() for line in found]
        super().__init__("\n".join(lines))


class ToolsChange(Struct, frozen=True, kw_only=True):
    """Toolsets of other settings, opened, but not in use yet."""

    settings: Settings
    toolsets: Mapping[str, CountedToolset]
    tools: dict[str, OpenTool]


class GatewayTools:
    """All toolsets of the configuration. With TOOLRELAY_TOOLS=off there are none."""

    def __init__(self, settings: Settings, keys: KeyRing | None = None) -> None:
        """Create the toolsets, or raise one ConfigurationError with all that is wrong in them.

        `keys` are by default those of the settings.
        """
        self._settings = settings
        self.keys = KeyRing(settings.keys) if keys is None else keys
        self._keys_version = 0
        self._toolsets: Mapping[str, CountedToolset] = _create(settings, {})
        self._granted: dict[tuple[str, str | None], Mapping[str, GatewayTool]] = {}
        self._retiring: dict[asyncio.Task[None], CountedToolset] = {}
        self._files = asyncio.Lock()  # what a toolset that is gone leaves is not deleted while another one opens it
        self.tools: dict[str, OpenTool] = {}

    def reset(self, settings: Settings) -> None:
        """Take other settings before the toolsets are opened, or after that has failed."""
        self._toolsets = _create(settings, {})
        self._settings = settings

    async def open(self) -> None:
        """Open the toolsets. If one cannot be opened or used, close all and raise ConfigurationError with every problem."""
        self.tools = await _open_all(self._settings, self._toolsets, [*self._toolsets.values()])

    async def close(self) -> None:
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*(toolset.close() for toolset in (*self._toolsets.values(), *retiring.values())))
        if retiring:
            await asyncio.wait(retiring)

    # Changes while the gateway runs

    @asynccontextmanager
    async def prepare(self, settings: Settings) -> AsyncIterator[ToolsChange]:
        """Open what is new in other settings, or raise ConfigurationError. Without `commit` in the block nothing changes."""
        unchanged = {
            name: toolset
            for name, toolset in self._toolsets.items()
            if name in settings.toolsets and _is_same_toolset(self._settings.toolsets[name], settings.toolsets[name])
        }
        async with self._files:
            toolsets = _create(settings, unchanged)
            added = [toolset for name, toolset in toolsets.items() if name not in unchanged]
            tools = await _open_all(settings, toolsets, added)
            try:
                yield ToolsChange(settings=settings, toolsets=toolsets, tools=tools)
            finally:
                if self._toolsets is not toolsets:
                    await asyncio.gather(*(toolset.close() for toolset in added))

    def commit(self, change: ToolsChange) -> None:
        """Use the toolsets that were prepared. Those that are gone are closed when their calls have ended."""
        gone = {name: toolset for name, toolset in self._toolsets.items() if change.toolsets.get(name) is not toolset}
        former = self._settings.toolsets
        self._settings, self._toolsets, self.tools, self._granted = change.settings, change.toolsets, change.tools, {}
        for name, toolset in gone.items():
            task = asyncio.ensure_future(self._retire(toolset, former[name]))
            self._retiring[task] = toolset
            task.add_done_callback(self._retiring.pop)

    async def _retire(self, toolset: CountedToolset, settings: ToolsetSettings) -> None:
        await toolset.close_when_idle(settings.timeout_seconds + CLOSE_SECONDS)
        kind = discover()[settings.kind]
        async with self._files:
            kept = [each for each in self._settings.toolsets.values() if each.kind == settings.kind]
            try:
                await asyncio.to_thread(kind.forget, settings, kept, self._settings.environment)
            except Exception as error:  # noqa: BLE001 -- it is a plug-in, or a file cannot be deleted
                log.warning("toolset_not_forgotten", toolset=settings.name, reason=f"{type(error).__name__}: {error}")

    # Who may use which tool

    def granted(self, model: ModelSettings, caller: Caller) -> Mapping[str, GatewayTool]:
        """Return the tools, by name, that the model may use for the caller."""
        found = self._find_granted(model.name, caller.key)
        return self._grant(model, caller.key) if found is None else found

    def find(self, name: str, *, model: str, key: str | None) -> OpenTool | None:
        """Return the tool, unless there is none or the model may not use it for the owner of the key."""
        granted = self._find_granted(model, key)
        if granted is None and model in self._settings.models:
            granted = self._grant(self._settings.models[model], key)
        return self.tools[name] if granted and name in granted else None

    def _find_granted(self, model: str, key: str | None) -> Mapping[str, GatewayTool] | None:
        if self._keys_version != self.keys.version:
            self._keys_version = self.keys.version
            self._granted.clear()
        return self._granted.get((model, key))

    def _grant(self, model: ModelSettings, key: str | None) -> Mapping[str, GatewayTool]:
        granted = self._granted[model.name, key] = {
            name: tool.gateway_tool
            for toolset in model.toolsets
            if self._may_use(key, toolset)
            for name, tool in self.tools.items()
            if tool.settings.name == toolset
        }
        return granted

    def is_local(self, model: str) -> bool:
        """Return whether what the model sees stays on this machine."""
        return model in self._settings.models and self._settings.models[model].local

    def models_with(self, toolset: str) -> list[str]:
        """Return the models that may use the toolset, without those that are never offered a tool."""
        models = self._settings.models.items()
        return [
            name for name, model in models if toolset in model.toolsets and model.tool_calling != "off" and model.max_tool_rounds
        ]

    def keys_with(self, toolset: str) -> list[str]:
        return [self.keys.name_of(owner) for owner in self.keys.owners_with(toolset)]

    def _may_use(self, key: str | None, toolset: str) -> bool:
        """A key may use what its `toolsets` name. Whoever has none may use all: with keys, that is only the operator."""
        return key is None or key in self.keys.owners_with(toolset)


def _create(settings: Settings, existing: Mapping[str, CountedToolset]) -> dict[str, CountedToolset]:
    """Create the toolsets that do not exist yet, not connected, or raise one error with all that is wrong in them."""
    toolsets: dict[str, CountedToolset] = {}
    problems: dict[str, list[str]] = {}
    kinds = discover()
    for name, each in ({} if settings.tools_off else settings.toolsets).items():
        try:
            toolsets[name] = existing.get(name) or CountedToolset(name, kinds[each.kind].open(each, settings.environment))
        except ConfigurationError as error:
            problems[name] = error.message.splitlines()
    _raise_if_any(problems, settings)
    return toolsets


async def _open_all(
    settings: Settings, toolsets: Mapping[str, CountedToolset], unopened: Sequence[CountedToolset]
) -> dict[str, OpenTool]:
    """Open those that are not open yet, and return the tools of all. If there is a problem, close them again and raise it."""
    tools: dict[str, OpenTool] = {}
    problems: dict[str, list[str]] = {}
    try:
        for name, toolset in toolsets.items():
            try:
                if toolset in unopened:
                    await toolset.open()
                _add_tools(tools, settings.toolsets[name], toolset)
            except ConfigurationError as error:
                problems[name] = error.message.splitlines()
        _raise_if_any(problems, settings)
    except BaseException:
        await asyncio.gather(*(toolset.close() for toolset in unopened))
        raise
    return tools


def _raise_if_any(problems: Mapping[str, Sequence[str]], settings: Settings) -> None:
    if problems:
        raise ToolsetsError(problems, file_prefix(settings))


def _is_same_toolset(one: ToolsetSettings, other: ToolsetSettings) -> bool:
    """Return whether settings differ in nothing that the toolset itself knows."""
    return replace(one, approval="always") == replace(other, approval="always")


def _add_tools(tools: dict[str, OpenTool], settings: ToolsetSettings, toolset: Toolset) -> None:
    """Add the tools that `allow` and `deny` leave, or raise ConfigurationError with one line for each problem."""
    problems: list[str] = []
    offered = [tool for tool in toolset.tools if _is_allowed(tool.name, settings)]
    if not offered:
        names = ", ".join(tool.name for tool in toolset.tools) or "none"
        problems.append(f"`allow` and `deny` leave no tool; tools of this toolset: {names}")
    named = settings.approval if isinstance(settings.approval, dict) else {}
    unknown = sorted(named.keys() - {tool.name for tool in toolset.tools})
    problems += [f"`approval` names the tool {name}, which this toolset does not have" for name in unknown]
    for definition in offered:
        name = settings.prefix + definition.name
        other = tools.get(name)
        problem = _find_problem(name, definition) if other is None else _describe_clash(name, other, settings)
        if problem:
            problems.append(problem)
        else:
            tools[name] = _open_tool(name, definition, settings, toolset)
    if problems:
        raise ConfigurationError("\n".join(problems))


def _is_allowed(name: str, settings: ToolsetSettings) -> bool:
    def matches(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return matches(settings.allow) and not matches(settings.deny)


def _find_problem(name: str, definition: ToolDefinition) -> str | None:
    if _VALID_NAME.fullmatch(name) is None:
        return (
            f"{name!r} cannot be the name of a tool; providers accept 1 to 64 letters, digits, _ and -: "
            "rename it, change `prefix`, or leave it out with `deny`"
        )
    if not can_validate(definition.parameters):
        return (
            f"the schema of the tool {name} cannot be checked: it is invalid, too large or refers to others; `deny` leaves it out"
        )
    return None


def _describe_clash(name: str, other: OpenTool, settings: ToolsetSettings) -> str:
    if other.settings.name == settings.name:
        return f"two tools are called {name}; rename one"
    return (
        f"the tool {name} is also in toolsets.{quote_key(other.settings.name)}; give one of them a `prefix`, or `deny` the tool"
    )


def _open_tool(name: str, definition: ToolDefinition, settings: ToolsetSettings, toolset: Toolset) -> OpenTool:
    # Not strict for the provider, whose strict mode does not know optional parameters: the executor checks the arguments.
    tool = Tool(name=name, description=definition.description or None, parameters=definition.parameters, strict=False)
    gateway_tool = GatewayTool(
        tool=tool,
        needs_approval=settings.needs_approval(definition.name),
        toolset=settings.name,
        definition=_digest(definition, settings),
        parallel=settings.parallel,
        idempotent=definition.idempotent,
        asks_to_share=definition.asks_to_share,
    )
    return OpenTool(gateway_tool=gateway_tool, definition=definition, settings=settings, toolset=toolset)


def _digest(definition: ToolDefinition, settings: ToolsetSettings) -> str:
    """Return a digest of what a remembered answer is bound to: the tool's definition, and the kind's own settings."""
    common = ToolsetSettings.__struct_fields__
    own = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in common}
    value = [settings.kind, own, definition.name, definition.description, definition.parameters]
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
