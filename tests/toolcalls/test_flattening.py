"""Namespaces, custom tools, tools in the conversation and providers' own, for models whose servers know functions only."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Call, Result
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, Request, ToolChoice
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.errors import ClientError
from toolrelay.toolcalls.custom_tools import MAX_HELD
from toolrelay.toolcalls.flattening import FlatTools, needs_flattening
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.wires.base import discover
from toolrelay.wires.responses.request import decode_request

NATIVE = ToolCallOptions(dialect=discover_dialects()["sealed"], native=True)
PRINTING = ToolCallOptions(dialect=discover_dialects()["sealed"])
REFUSING = ToolCallOptions(dialect=discover_dialects()["sealed"], native=True, on_unsupported_tool="refuse")
FUNCTIONS_ONLY = msgspec.structs.replace(NATIVE, takes_custom_tools=False)
PATCH: dict[str, Any] = {"type": "custom", "name": "patch", "description": "Apply a patch."}
VALID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def passes_responses(tool: OpaqueTool) -> bool:
    return tool.wire == "openai_responses"


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


def namespace(name: str, *functions: str) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": "…", "tools": [function(each) for each in functions]}


def request(*tools: dict[str, Any], items: tuple[dict[str, Any], ...] = (), **more: Any) -> Request:
    said = {"type": "message", "role": "user", "content": "hi"}
    return decode_request(msgspec.json.encode({"model": "m", "input": [said, *items], "tools": tools, **more}))


def names(given: Request) -> list[str]:
    return [tool.name for tool in given.functions()]


def restored(flat: FlatTools, name: str) -> tuple[str | None, str]:
    (event,) = flat.restore([CallStarted(0, name)])
    assert isinstance(event, CallStarted)
    return event.namespace, event.name


def test_functions_of_a_namespace_become_functions_and_calls_get_it_back() -> None:
    given = request(function("plain"), namespace("mcp__files", "read", "write"))
    assert needs_flattening(given, NATIVE)
    flat = FlatTools(given, NATIVE)
    assert names(flat.request) == ["plain", "mcp__files__read", "mcp__files__write"]
    assert restored(flat, "mcp__files__read") == ("mcp__files", "read")
    assert restored(flat, "plain") == (None, "plain")
    assert flat.restore([TextDelta("x")]) == [TextDelta("x")]


def test_server_that_knows_namespaces_gets_them_unchanged() -> None:
    options = msgspec.structs.replace(NATIVE, passes_tool=passes_responses)
    given = request(namespace("a", "b"), {"type": "web_search"}, items=({"type": "additional_tools", "tools": [function("c")]},))
    assert not needs_flattening(given, options)
    body = msgspec.json.decode(discover()["openai_responses"].encode_request(given, Profile()).body)
    assert [tool["type"] for tool in body["tools"]] == ["namespace", "web_search"]
    assert body["input"][1] == {"type": "additional_tools", "tools": [function("c")]}
    assert needs_flattening(given, msgspec.structs.replace(options, native=False))


def test_same_function_in_two_namespaces_stays_apart() -> None:
    flat = FlatTools(request(namespace("a", "read"), namespace("b", "read"), function("read")), NATIVE)
    assert names(flat.request) == ["a__read", "b__read", "read"]
    assert [restored(flat, name) for name in names(flat.request)] == [("a", "read"), ("b", "read"), (None, "read")]


def test_functions_whose_flattened_names_are_equal_stay_apart() -> None:
    given = request(namespace("a", "b__c"), namespace("a__b", "c"), function("a__b__c"))
    flat = FlatTools(given, NATIVE)
    first, second, third = names(flat.request)
    assert third == "a__b__c"
    assert len({first, second, third}) == 3
    assert [restored(flat, name) for name in (first, second, third)] == [("a", "b__c"), ("a__b", "c"), (None, "a__b__c")]


def test_five_hundred_functions_with_long_and_invalid_names_are_valid_and_unique() -> None:
    inner = [f"{'f' * 70} {number} ü" for number in range(500)]
    flat = FlatTools(request(namespace("n" * 80, *inner), namespace("", "x") | {"name": "näme"}), NATIVE)
    found = names(flat.request)
    assert len(set(found)) == 501
    assert all(VALID.fullmatch(name) for name in found)
    assert [restored(flat, name)[1] for name in found] == [*inner, "x"]
    assert names(FlatTools(request(namespace("n" * 80, *inner)), NATIVE).request) == found[:500]


def test_calls_of_the_history_are_flattened_also_if_nothing_declares_them() -> None:
    calls = (
        {"type": "function_call", "call_id": "1", "name": "b", "namespace": "a", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
    )
    for given in (request(namespace("a", "b"), items=calls), request(items=calls)):
        assert needs_flattening(given, NATIVE)
        call = next(item for item in FlatTools(given, NATIVE).request.items if isinstance(item, Call))
        assert (call.name, call.namespace) == ("a__b", None)


def test_tools_of_the_conversation_are_declared_with_the_others_once() -> None:
    group = {"type": "additional_tools", "role": "developer", "tools": [function("c"), namespace("a", "b"), function("c2")]}
    given = request(function("c"), items=(group,))
    assert names(given) == ["c", "c", "c2"]
    for options in (NATIVE, PRINTING):
        flat = FlatTools(given, options)
        assert names(flat.request) == ["c", "a__b", "c2"]
        assert len(flat.request.items) == 1


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_optional_tool_of_a_provider_is_dropped(choice: str | None) -> None:
    flat = FlatTools(request(function("f"), {"type": "web_search"}, {"type": "web_search"}, tool_choice=choice), NATIVE)
    assert (names(flat.request), flat.dropped) == (["f"], ["web_search"])
    assert len(flat.request.tools) == 1


def test_tool_of_a_provider_is_refused_if_the_model_says_so() -> None:
    with pytest.raises(ClientError, match="web_search") as refused:
        FlatTools(request(function("f"), {"type": "web_search"}), REFUSING)
    assert (refused.value.status, refused.value.code) == (400, "unsupported_by_upstream")


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        "required",
    ],
)
def test_choice_that_only_the_dropped_tool_could_meet_is_refused(choice: Any) -> None:
    with pytest.raises(ClientError) as refused:
        FlatTools(request({"type": "web_search"}, tool_choice=choice), NATIVE)
    assert (refused.value.param, refused.value.code) == ("tool_choice", "unsupported_by_upstream")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "function", "name": "b", "namespace": "a"}, ToolChoice(mode="named", names=(("function", "a__b"),))),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [function("f"), {"type": "namespace", "name": "a"}]},
            ToolChoice(mode="required", names=(("function", "f"), ("function", "a__b"), ("function", "a__c"))),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [function("f"), {"type": "web_search"}]},
            ToolChoice(mode="auto", names=(("function", "f"),)),
        ),
    ],
)
def test_choice_of_namespaced_tools_names_the_flat_ones(choice: Any, expected: ToolChoice) -> None:
    given = request(function("f"), namespace("a", "b", "c"), {"type": "web_search"}, tool_choice=choice)
    assert FlatTools(given, NATIVE).request.tool_choice == expected


def test_choice_of_an_unknown_function_of_a_namespace_is_refused() -> None:
    given = request(namespace("a", "b"), tool_choice={"type": "function", "name": "x", "namespace": "a"})
    with pytest.raises(ClientError, match="'x' of the namespace 'a'"):
        FlatTools(given, NATIVE)


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "namespace", "name": "", "tools": []}, "tools[0].name"),
        ({"type": "namespace", "name": "a", "tools": [{"type": "function", "name": ""}]}, "tools[0].tools[0].name"),
        ({"type": "namespace", "name": 1, "tools": []}, "tools[0].name"),
    ],
)
def test_malformed_namespace_is_refused_by_its_place(tool: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as refused:
        request(tool)
    assert refused.value.param == param


# Custom tools


def test_custom_tool_becomes_a_function_only_if_the_server_has_no_custom_tools() -> None:
    given = request(PATCH | {"format": {"type": "grammar", "syntax": "regex", "definition": "a+"}}, function("f"))
    for options in (NATIVE, PRINTING, msgspec.structs.replace(PRINTING, takes_custom_tools=False)):
        assert not needs_flattening(given, options)
    assert needs_flattening(given, FUNCTIONS_ONLY)
    patch, plain = FlatTools(given, FUNCTIONS_ONLY).request.functions()
    assert (patch.kind, patch.name, plain.name) == ("function", "patch", "f")
    assert patch.parameters is not None
    assert patch.parameters["required"] == ["input"]
    assert patch.description == "Apply a patch.\nIts input has to match this grammar (regex): a+"


def test_custom_calls_and_results_of_the_history_become_those_of_a_function() -> None:
    items = (
        {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": 'say "hi"'},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "done"},
    )
    given = request(items=items)
    assert needs_flattening(given, FUNCTIONS_ONLY)
    _, call, result = FlatTools(given, FUNCTIONS_ONLY).request.items
    assert isinstance(call, Call)
    assert isinstance(result, Result)
    assert (call.kind, msgspec.json.decode(call.arguments), result.kind) == ("function", {"input": 'say "hi"'}, "function")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "custom", "name": "patch"}, ToolChoice(mode="named", names=(("function", "patch"),))),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "patch"}]},
            ToolChoice(mode="required", names=(("function", "patch"),)),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "patch"}, {"type": "web_search"}]},
            ToolChoice(names=(("function", "patch"),)),
        ),
        ("required", ToolChoice(mode="required")),
    ],
)
def test_choice_of_a_custom_tool_names_the_function(choice: Any, expected: ToolChoice) -> None:
    given = request(PATCH, function("f"), {"type": "web_search"}, tool_choice=choice)
    assert FlatTools(given, FUNCTIONS_ONLY).request.tool_choice == expected


def test_call_of_the_function_becomes_a_custom_call_with_its_whole_input() -> None:
    group = {"type": "namespace", "name": "n", "tools": [PATCH]}
    flat = FlatTools(request(PATCH, group, function("f")), FUNCTIONS_ONLY)
    events: list[StreamEvent] = [
        CallStarted(0, "patch"),
        CallStarted(1, "f"),
        ArgumentsDelta(0, '{"inp'),
        ArgumentsDelta(1, "{}"),
        CallStarted(0, "n__patch", choice=1),
        ArgumentsDelta(0, 'ut":"a\\nb"}'),
        ArgumentsDelta(0, "not JSON", choice=1),
        CallFinished(0),
        CallFinished(1),
        CallFinished(0, choice=1),
        AnswerFinished(finish="calls"),
    ]
    expected = [
        CallStarted(0, "patch", kind="custom"),
        CallStarted(1, "f"),
        ArgumentsDelta(1, "{}"),
        CallStarted(0, "patch", kind="custom", namespace="n", choice=1),
        ArgumentsDelta(0, "a\nb"),
        CallFinished(0),
        CallFinished(1),
        ArgumentsDelta(0, "not JSON", choice=1),
        CallFinished(0, choice=1),
        AnswerFinished(finish="calls"),
    ]
    assert [event for batch in events for event in flat.restore([batch])] == expected


def test_input_without_end_fails_the_answer() -> None:
    flat = FlatTools(request(PATCH), FUNCTIONS_ONLY)
    flat.restore([CallStarted(0, "patch"), *[ArgumentsDelta(0, "x" * 1024)] * (MAX_HELD // 1024)])
    (failed,) = flat.restore([ArgumentsDelta(0, "x"), CallFinished(0)])
    assert isinstance(failed, AnswerFailed)
    assert failed.error.code == "bad_call"


@pytest.mark.parametrize(("options", "kind"), [(NATIVE, "custom"), (FUNCTIONS_ONLY, "function")])
def test_choice_of_a_namespace_names_its_custom_tools_as_they_are_declared(options: ToolCallOptions, kind: str) -> None:
    group = {**namespace("files", "read"), "tools": [PATCH, function("read")]}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "files"}]}
    choice = FlatTools(request(group, tool_choice=allowed), options).request.tool_choice
    assert choice is not None
    assert choice.names == ((kind, "files__patch"), ("function", "files__read"))
