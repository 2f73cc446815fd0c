"""Decoding of Chat messages, with calls and results, also legacy ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wires.chat.requests import TOOL, USER, calling, content, decode, function, items, result
from toolrelay.core.messages import Audio, Call, File, Image, Message, OpaquePart, Reasoning, Refusal, Result, Text
from toolrelay.core.request import Tool, ToolChoice

# Messages


def test_roles_and_names_are_kept() -> None:
    assert items(
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u", "name": "ann"},
        {"role": "assistant", "content": "a", "name": "bob"},
    ) == (
        Message(role="system", content="s"),
        Message(role="developer", content="d"),
        Message(role="user", content="u", name="ann"),
        Message(role="assistant", content="a", name="bob"),
    )


def test_string_content_and_array_content_keep_their_form() -> None:
    assert content("x") == "x"
    assert content([{"type": "text", "text": "x"}]) == (Text(text="x"),)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": "u", "detail": "low"}}, Image(url="u", detail="low")),
        ({"type": "image_url", "image_url": {"url": "u"}}, Image(url="u")),
        ({"type": "image_url", "image_url": "u"}, Image(url="u")),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, Audio(data="AA", format="wav")),
        ({"type": "file", "file": {"file_id": "file-1"}}, File(file_id="file-1")),
        ({"type": "file", "file": {"file_data": "AA", "filename": "a.pdf"}}, File(data="AA", filename="a.pdf")),
        ({"type": "refusal", "refusal": "no"}, Refusal(text="no")),
        ({"type": "input_text", "text": "x"}, Text(text="x")),
        ({"type": "output_text", "text": "x"}, Text(text="x")),
        ({"type": "text", "text": "x", "cache_control": {"a": 1}}, Text(text="x", extra={"cache_control": {"a": 1}})),
        (
            {"type": "image_url", "image_url": {"url": "u", "inner": 1}, "outer": 2},
            Image(url="u", extra={"outer": 2, "image_url": {"inner": 1}}),
        ),
    ],
)
def test_content_parts_are_decoded(part: dict[str, Any], expected: object) -> None:
    assert content([part]) == (expected,)


@pytest.mark.parametrize("part", [{"type": "video_url", "video_url": {"url": "u"}}, {"type": "doc", "file": "a", "text": 5}])
def test_part_of_unknown_type_is_opaque(part: dict[str, Any]) -> None:
    assert content([part]) == (OpaquePart(wire="openai_chat", raw=part),)


def test_message_with_text_and_calls_becomes_message_and_calls() -> None:
    assert items(USER, calling(function("a"), function("b", "g", '{"x":1}'), content="first"), result("a"), result("b")) == (
        Message(role="user", content="hi"),
        Message(role="assistant", content="first"),
        Call(id="a", name="f", arguments="{}"),
        Call(id="b", name="g", arguments='{"x":1}'),
        Result(call_id="a", output="ok"),
        Result(call_id="b", output="ok"),
    )


@pytest.mark.parametrize("empty", [None, []])
def test_message_with_calls_only_becomes_calls(empty: Any) -> None:
    assert items(calling(function("a"), content=empty)) == (Call(id="a", name="f", arguments="{}"),)


@pytest.mark.parametrize(
    "members", [{"content": ""}, {"content": None}, {}, {"content": []}, {"content": None, "tool_calls": []}]
)
def test_empty_assistant_message_is_accepted(members: dict[str, Any]) -> None:
    assert items({"role": "assistant", **members}) == (Message(role="assistant", content=""),)


def test_null_members_equal_missing_members() -> None:
    message = {"role": "assistant", "content": "a", "refusal": None, "tool_calls": None, "function_call": None, "name": None}
    assert items(message) == (Message(role="assistant", content="a"),)


def test_arguments_are_not_reserialized() -> None:  # bug 21
    odd = '{ "a" : 1.0, "b":"\\u00e9\\/" , "a":2}'
    for arguments in (odd, '"{\\"a\\": 1}"', "not json", " "):
        (call,) = items(calling(function("a", arguments=arguments)))
        assert isinstance(call, Call)
        assert call.arguments == arguments


def test_arguments_as_an_object_become_text() -> None:  # bug 20
    (call,) = items(calling(function("a", arguments={"city": "Zürich", "n": [1, 2.5, None]})))
    assert isinstance(call, Call)
    assert json.loads(call.arguments) == {"city": "Zürich", "n": [1, 2.5, None]}


@pytest.mark.parametrize("arguments", ["", None])
def test_empty_arguments_become_an_empty_object(arguments: Any) -> None:  # bug 22
    assert items(calling(function("a", arguments=arguments))) == (Call(id="a", name="f", arguments="{}"),)
    assert items(calling({"id": "a", "type": "function", "function": {"name": "f"}})) == (Call(id="a", name="f", arguments="{}"),)


def test_result_of_a_custom_call_is_custom() -> None:  # bug 33
    call = {"id": "a", "type": "custom", "custom": {"name": "c", "input": "free text"}}
    assert items(calling(call), result("a")) == (
        Call(id="a", name="c", arguments="free text", kind="custom"),
        Result(call_id="a", output="ok", kind="custom"),
    )


def test_result_with_name_and_array_is_decoded() -> None:  # bug 34
    image = {"type": "image_url", "image_url": {"url": "u"}}
    assert items(calling(function("a")), result("a", [{"type": "text", "text": "x"}, image], name="f"))[1] == Result(
        call_id="a", output=(Text(text="x"), Image(url="u")), name="f"
    )


def test_result_without_content_is_empty() -> None:
    assert items(calling(function("a")), result("a", None))[1] == Result(call_id="a", output="")


def test_refusal_is_added_after_the_text() -> None:
    assert items({"role": "assistant", "content": None, "refusal": "no"}) == (
        Message(role="assistant", content=(Refusal(text="no"),)),
    )
    assert items({"role": "assistant", "content": "well", "refusal": "no"}) == (
        Message(role="assistant", content=(Text(text="well"), Refusal(text="no"))),
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert items({"role": "assistant", "content": parts, "refusal": "no"}) == (
        Message(role="assistant", content=(Text(text="a"), Text(text="b"), Refusal(text="no"))),
    )


def test_reasoning_is_an_item_before_the_message() -> None:  # bug 31
    assert items(calling(function("a"), content="x", reasoning_content="hm")) == (
        Reasoning(text=("hm",)),
        Message(role="assistant", content="x"),
        Call(id="a", name="f", arguments="{}"),
    )


def test_empty_reasoning_is_kept() -> None:  # bug 31
    assert items(calling(function("a"), reasoning_content=""))[0] == Reasoning(text=("",))


def test_unknown_members_are_kept_at_every_level() -> None:
    request = decode(
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "x", "p": 1}], "m": 2},
            calling({**function("a"), "c": 3}, a=4, reasoning_details=[{"x": 1}]),
            result("a", r=5),
        ],
        tools=[{**TOOL, "t": 6}],
        top=None,
        modalities=["text"],
    )
    user, assistant, call, answer = request.items
    assert isinstance(user, Message)
    assert user == Message(role="user", content=(Text(text="x", extra={"p": 1}),), extra={"m": 2})
    assert assistant == Message(role="assistant", content=(), extra={"a": 4, "reasoning_details": [{"x": 1}]})
    assert call == Call(id="a", name="f", arguments="{}", extra={"c": 3})
    assert answer == Result(call_id="a", output="ok", extra={"r": 5})
    assert request.tools == (Tool(name="f", extra={"t": 6}),)
    assert request.extra == {"top": None, "modalities": ["text"]}


def test_index_of_a_call_in_history_is_dropped() -> None:
    assert items(calling({**function("a"), "index": 0})) == (Call(id="a", name="f", arguments="{}"),)


def test_calls_without_ids_get_distinct_stable_ids() -> None:  # bug 29
    nameless = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    first = items(calling(nameless, nameless), USER, calling(nameless))
    ids = [item.id for item in first if isinstance(item, Call)]
    assert len(set(ids)) == 3
    assert items(calling(nameless, nameless), USER, calling(nameless)) == first


# Legacy functions


def test_legacy_functions_become_tools() -> None:
    request = decode(functions=[{"name": "f", "parameters": {"type": "object"}}], function_call={"name": "f"})
    assert request.legacy_functions
    assert request.tools == (Tool(name="f", parameters={"type": "object"}),)
    assert request.tool_choice == ToolChoice(mode="named", names=(("function", "f"),))


@pytest.mark.parametrize("mode", ["auto", "none"])
def test_legacy_function_call_modes_are_decoded(mode: str) -> None:
    assert decode(functions=[{"name": "f"}], function_call=mode).tool_choice == ToolChoice(mode=mode)  # type: ignore[arg-type]  # one of them


def test_legacy_results_are_matched_to_calls_by_name() -> None:
    history: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"n":1}'}},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"n":1}'}},
        {"role": "function", "name": "f", "content": "two"},
    ]
    first, one, second, two = items(*history)
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert first.id != second.id
    assert one == Result(call_id=first.id, output="one", name="f")
    assert two == Result(call_id=second.id, output="two", name="f")


def test_legacy_result_skips_answered_calls() -> None:
    history: list[dict[str, Any]] = [
        calling(function("a")),
        result("a"),
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "two"},
    ]
    *_, second, two = items(*history)
    assert isinstance(second, Call)
    assert two == Result(call_id=second.id, output="two", name="f")


def test_tools_beside_functions_are_not_legacy() -> None:
    request = decode(tools=[TOOL], functions=[{"name": "g"}])
    assert not request.legacy_functions
    assert [tool.name for tool in request.functions()] == ["f", "g"]
