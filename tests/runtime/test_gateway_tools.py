"""Opened toolsets: names, prefixes, filters, and who may use which tool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.runtime.toolsets import Caller, settings_for
from tests.toolsets import modules
from tests.toolsets.modules import WriteModule
from toolrelay import log
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError
from toolrelay.runtime import gateway_tools
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.settings import Environment, ModelSettings, Settings, ToolsetSettings
from toolrelay.toolsets.base import Preview, ToolContext, ToolDefinition, ToolOutput, ToolsetKind
from toolrelay.toolsets.python import PythonSettings

# pytest finds fixtures by the names of the module.
write_module = modules.write_module

SOURCE = '''
@tool(idempotent=True, timeout_seconds=3)
def get_time() -> str:
    """Return the time."""

@tool
def get_weather(city: str) -> str: ...

@tool
def set_time(time: str) -> str: ...
'''
FAST = ModelSettings(name="fast", provider="demo", toolsets=("mine",))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(data_dir=tmp_path, config_dir=tmp_path)


def opened(settings: Settings) -> GatewayTools:
    tools = GatewayTools(settings)
    asyncio.run(tools.open())
    return tools


def refusal(settings: Settings) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        opened(settings)
    return caught.value.message.splitlines()


def test_tool_carries_its_definition_and_the_settings_of_its_toolset(write_module: WriteModule, environment: Environment) -> None:
    tools = opened(settings_for(write_module(SOURCE), environment, prefix="my_", parallel=True, timeout_seconds=7))
    assert list(tools.tools) == ["my_get_time", "my_get_weather", "my_set_time"]
    granted = tools.granted(FAST, Caller())
    first, second = granted["my_get_time"], granted["my_get_weather"]
    assert (first.tool.name, first.tool.description, first.tool.strict) == ("my_get_time", "Return the time.", False)
    assert (first.toolset, first.parallel, first.idempotent, first.needs_approval) == ("mine", True, True, False)
    assert (second.idempotent, second.tool.description) == (False, None)
    assert [tools.tools[name].timeout_seconds for name in ("my_get_time", "my_get_weather")] == [3, 7]


@pytest.mark.parametrize(
    ("allow", "deny", "names"),
    [
        (("*",), (), ["get_time", "get_weather", "set_time"]),
        (("get_*",), (), ["get_time", "get_weather"]),
        (("*",), ("*_time",), ["get_weather"]),
        (("get_time", "set_time"), ("set_*",), ["get_time"]),
    ],
)
def test_allow_and_deny_match_names_without_the_prefix(
    write_module: WriteModule, environment: Environment, allow: tuple[str, ...], deny: tuple[str, ...], names: list[str]
) -> None:
    tools = opened(settings_for(write_module(SOURCE), environment, allow=allow, deny=deny, prefix="x_"))
    assert list(tools.tools) == [f"x_{name}" for name in names]


@pytest.mark.parametrize(
    ("keys", "caller", "allowed"),
    [
        ({}, None, True),
        ({"me": ["mine"]}, "me", True),
        ({"me": ["m*"]}, "me", True),
        ({"me": ["*"]}, "me", True),
        ({"me": []}, "me", False),
        ({"me": ["others"]}, "me", False),
        ({"me": ["mine"], "you": []}, "you", False),
        ({"me": ["mine"]}, None, True),  # the operator
        ({"me": ["mine"]}, "stranger", False),
        ({}, "stranger", False),
    ],
)
def test_key_may_use_only_the_toolsets_that_it_names(
    write_module: WriteModule, environment: Environment, keys: Mapping[str, Sequence[str]], caller: str | None, *, allowed: bool
) -> None:
    tools = opened(settings_for(write_module(SOURCE), environment, keys=keys))
    assert bool(tools.granted(FAST, Caller(caller))) is allowed
    assert (tools.find("get_time", model="fast", key=caller) is not None) is allowed


def test_model_may_use_only_the_toolsets_that_it_names(write_module: WriteModule, environment: Environment) -> None:
    tools = opened(settings_for(write_module(SOURCE), environment, models={"fast": ["mine"], "plain": []}))
    assert tools.granted(replace(FAST, name="plain", toolsets=()), Caller()) == {}
    assert tools.find("get_time", model="plain", key=None) is None
    assert tools.find("get_time", model="nobody", key=None) is None
    assert tools.find("no_such_tool", model="fast", key=None) is None
    found = tools.find("get_time", model="fast", key=None)
    assert found is not None
    assert found.gateway_tool.tool.name == "get_time"


def test_granted_tools_are_computed_once(write_module: WriteModule, environment: Environment) -> None:
    tools = opened(settings_for(write_module(SOURCE), environment))
    assert tools.granted(FAST, Caller()) is tools.granted(FAST, Caller())


def test_tools_off_imports_no_module(write_module: WriteModule, environment: Environment) -> None:
    tools = opened(settings_for(write_module("raise ValueError"), environment, tools_off=True))
    assert tools.tools == {}
    assert tools.granted(FAST, Caller()) == {}
    assert tools.find("get_time", model="fast", key=None) is None


def test_two_tools_of_one_name_are_refused(write_module: WriteModule, environment: Environment) -> None:
    settings = settings_for(write_module(SOURCE), environment, allow=("get_time",))
    other = PythonSettings(name="other", kind="python", module="my_tools", approval="never", allow=("get_*",))
    both = replace(settings, toolsets={**settings.toolsets, "other": other})
    (problem,) = refusal(both)
    assert problem.startswith(
        "toolrelay.toml: toolsets.other: the tool get_time is also in toolsets.mine; give one of them a `prefix`"
    )
    assert len(opened(replace(both, toolsets={**settings.toolsets, "other": replace(other, prefix="o_")})).tools) == 3


@pytest.mark.parametrize("prefix", ["a.", "a b", "ü", "x" * 60])
def test_name_that_providers_do_not_accept_is_refused(write_module: WriteModule, environment: Environment, prefix: str) -> None:
    (problem,) = refusal(settings_for(write_module(SOURCE), environment, prefix=prefix, allow=("get_time",)))
    assert problem.startswith(
        f"toolrelay.toml: toolsets.mine: {prefix + 'get_time'!r} cannot be the name of a tool; providers accept"
    )


def test_filters_that_leave_no_tool_are_refused(write_module: WriteModule, environment: Environment) -> None:
    assert refusal(settings_for(write_module(SOURCE), environment, allow=("get_tme",))) == [
        "toolrelay.toml: toolsets.mine: `allow` and `deny` leave no tool; tools of this toolset: get_time, get_weather, set_time"
    ]


def test_problems_of_all_toolsets_are_reported_together(write_module: WriteModule, environment: Environment) -> None:
    settings = settings_for(write_module("@tool\ndef f(x): ...\n@tool\ndef g(y): ..."), environment)
    gone = PythonSettings(name="a b", kind="python", module="gone", approval="never")
    problems = refusal(replace(settings, toolsets={**settings.toolsets, "a b": gone}))
    assert [problem.split(": ")[1] for problem in problems] == ["toolsets.mine", "toolsets.mine", 'toolsets."a b"']


class FakeSettings(ToolsetSettings, frozen=True, kw_only=True):
    pass


class Fake(Struct):
    """A toolset that records whether it is open, and can fail at anything."""

    tools: list[ToolDefinition]
    problem: str = ""
    close_error: Exception | None = None
    closed: int = 0

    async def open(self) -> None:
        if self.problem:
            raise ConfigurationError(self.problem)

    async def preview(self, name: str, arguments: JsonObject, context: ToolContext) -> Preview:
        raise NotImplementedError

    async def run(self, name: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1
        if self.close_error:
            raise self.close_error


def fakes(monkeypatch: pytest.MonkeyPatch, **toolsets: Fake) -> Settings:
    kind = ToolsetKind(name="fake", settings=FakeSettings, open=lambda settings, _: toolsets[settings.name])
    monkeypatch.setattr(gateway_tools, "discover", lambda: {"fake": kind})
    return Settings(toolsets={name: FakeSettings(name=name, kind="fake", approval="never") for name in toolsets})


def definition(name: str, **schema: Any) -> ToolDefinition:
    return ToolDefinition(name=name, parameters={"type": "object", **schema})


def test_toolsets_are_closed_if_one_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = Fake([definition("f")]), Fake([], problem="the server does not answer; start it")
    settings = fakes(monkeypatch, good=good, bad=bad)
    assert refusal(settings) == ["toolsets.bad: the server does not answer; start it"]
    assert (good.closed, bad.closed) == (1, 1)


def test_schema_that_cannot_be_checked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = fakes(monkeypatch, fake=Fake([definition("f", properties={"a": {"type": "nonsense"}})]))
    (problem,) = refusal(settings)
    assert problem.startswith("toolsets.fake: the schema of the tool f cannot be checked")


def test_toolset_that_lists_a_name_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(fakes(monkeypatch, fake=Fake([definition("f"), definition("f")]))) == [
        "toolsets.fake: two tools are called f; rename one"
    ]


def test_toolset_that_fails_to_close_does_not_keep_others_open(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = Fake([definition("f")], close_error=OSError("as planned")), Fake([definition("g")])
    tools = opened(fakes(monkeypatch, bad=bad, good=good))
    with log.captured() as lines:
        asyncio.run(tools.close())
    assert good.closed == 1
    assert [(line["event"], line["toolset"], line["reason"]) for line in lines] == [
        ("toolset_not_closed", "bad", "OSError: as planned")
    ]
