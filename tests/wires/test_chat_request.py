"""Chat requests as clients write them, the careless ones too: what they mean, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import chat_bodies, json_values
from toolrelay.core.messages import (
    Audio,
    Call,
    Content,
    File,
    Image,
    Item,
    Message,
    OpaquePart,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OutputFormat, ReasoningWish, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires import _chat_request
from toolrelay.wires._chat_request import _Body
from toolrelay.wires.openai_chat import WIRE

USER: dict[str, Any] = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}


def decode(**members: Any) -> Request:
    return WIRE.decode_request(json.dumps({"model": "m", "messages": [USER], **members}).encode())


def items(*messages: dict[str, Any]) -> tuple[Item, ...]:
    return decode(messages=list(messages)).items


def content(value: Any) -> Content:
    (message,) = items({"role": "user", "content": value})
    assert isinstance(message, Message)
    return message.content


def calling(*calls: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **members}


def function(identifier: str, name: str = "f", arguments: Any = "{}", **members: Any) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}, **members}


def result(identifier: str, value: Any = "ok", **members: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": value, **members}


def refusal(body: object) -> ClientError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ClientError) as caught:
        WIRE.decode_request(raw)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def refused(**members: Any) -> ClientError:
    body = {"model": "m", "messages": [USER], **members}
    return refusal({key: value for key, value in body.items() if value is not ...})


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


def test_a_string_stays_a_string_and_an_array_an_array() -> None:
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
def test_content_parts(part: dict[str, Any], expected: object) -> None:
    assert content([part]) == (expected,)


@pytest.mark.parametrize("part", [{"type": "video_url", "video_url": {"url": "u"}}, {"type": "doc", "file": "a", "text": 5}])
def test_a_part_of_unknown_type_stays_as_it_is(part: dict[str, Any]) -> None:
    assert content([part]) == (OpaquePart(wire="openai_chat", raw=part),)


def test_a_message_with_calls_is_its_text_and_its_calls() -> None:
    assert items(USER, calling(function("a"), function("b", "g", '{"x":1}'), content="first"), result("a"), result("b")) == (
        Message(role="user", content="hi"),
        Message(role="assistant", content="first"),
        Call(id="a", name="f", arguments="{}"),
        Call(id="b", name="g", arguments='{"x":1}'),
        Result(call_id="a", output="ok"),
        Result(call_id="b", output="ok"),
    )


@pytest.mark.parametrize("empty", [None, []])
def test_a_message_with_calls_and_no_text_is_its_calls(empty: Any) -> None:
    assert items(calling(function("a"), content=empty)) == (Call(id="a", name="f", arguments="{}"),)


@pytest.mark.parametrize(
    "members", [{"content": ""}, {"content": None}, {}, {"content": []}, {"content": None, "tool_calls": []}]
)
def test_an_empty_message_of_the_assistant_is_taken(members: dict[str, Any]) -> None:
    assert items({"role": "assistant", **members}) == (Message(role="assistant", content=""),)


def test_null_members_are_members_that_were_not_given() -> None:
    message = {"role": "assistant", "content": "a", "refusal": None, "tool_calls": None, "function_call": None, "name": None}
    assert items(message) == (Message(role="assistant", content="a"),)


def test_arguments_are_never_written_anew() -> None:  # bug 21
    odd = '{ "a" : 1.0, "b":"\\u00e9\\/" , "a":2}'
    for arguments in (odd, '"{\\"a\\": 1}"', "not json", " "):
        (call,) = items(calling(function("a", arguments=arguments)))
        assert isinstance(call, Call)
        assert call.arguments == arguments


def test_arguments_given_as_an_object_become_text_once() -> None:  # bug 20
    (call,) = items(calling(function("a", arguments={"city": "Zürich", "n": [1, 2.5, None]})))
    assert isinstance(call, Call)
    assert json.loads(call.arguments) == {"city": "Zürich", "n": [1, 2.5, None]}


@pytest.mark.parametrize("arguments", ["", None])
def test_empty_arguments_are_an_empty_object(arguments: Any) -> None:  # bug 22
    assert items(calling(function("a", arguments=arguments))) == (Call(id="a", name="f", arguments="{}"),)
    assert items(calling({"id": "a", "type": "function", "function": {"name": "f"}})) == (Call(id="a", name="f", arguments="{}"),)


def test_a_custom_call_and_its_result_are_custom() -> None:  # bug 33
    call = {"id": "a", "type": "custom", "custom": {"name": "c", "input": "free text"}}
    assert items(calling(call), result("a")) == (
        Call(id="a", name="c", arguments="free text", kind="custom"),
        Result(call_id="a", output="ok", kind="custom"),
    )


def test_a_result_may_have_a_name_and_an_array() -> None:  # bug 34
    image = {"type": "image_url", "image_url": {"url": "u"}}
    assert items(calling(function("a")), result("a", [{"type": "text", "text": "x"}, image], name="f"))[1] == Result(
        call_id="a", output=(Text(text="x"), Image(url="u")), name="f"
    )


def test_a_result_without_content_is_empty() -> None:
    assert items(calling(function("a")), result("a", None))[1] == Result(call_id="a", output="")


def test_a_refusal_follows_the_words() -> None:
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


def test_thoughts_come_before_the_words() -> None:  # bug 31
    assert items(calling(function("a"), content="x", reasoning_content="hm")) == (
        Reasoning(text=("hm",)),
        Message(role="assistant", content="x"),
        Call(id="a", name="f", arguments="{}"),
    )


def test_empty_thoughts_are_kept_for_providers_that_insist_on_them() -> None:  # bug 31
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


def test_the_index_that_some_clients_copy_into_history_is_dropped() -> None:
    assert items(calling({**function("a"), "index": 0})) == (Call(id="a", name="f", arguments="{}"),)


def test_calls_without_ids_get_different_ones_and_the_same_each_time() -> None:  # bug 29
    nameless = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    first = items(calling(nameless, nameless), USER, calling(nameless))
    ids = [item.id for item in first if isinstance(item, Call)]
    assert len(set(ids)) == 3
    assert items(calling(nameless, nameless), USER, calling(nameless)) == first


# Legacy functions


def test_legacy_functions_are_tools() -> None:
    request = decode(functions=[{"name": "f", "parameters": {"type": "object"}}], function_call={"name": "f"})
    assert request.legacy_functions
    assert request.tools == (Tool(name="f", parameters={"type": "object"}),)
    assert request.tool_choice == ToolChoice(mode="named", names=(("function", "f"),))


@pytest.mark.parametrize("mode", ["auto", "none"])
def test_legacy_function_call_modes(mode: str) -> None:
    assert decode(functions=[{"name": "f"}], function_call=mode).tool_choice == ToolChoice(mode=mode)  # type: ignore[arg-type]  # one of them


def test_legacy_calls_and_results_find_each_other_by_name() -> None:
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


def test_a_legacy_result_does_not_answer_a_call_that_was_answered() -> None:
    history: list[dict[str, Any]] = [
        calling(function("a")),
        result("a"),
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "two"},
    ]
    *_, second, two = items(*history)
    assert isinstance(second, Call)
    assert two == Result(call_id=second.id, output="two", name="f")


def test_tools_beside_functions_are_the_modern_form() -> None:
    request = decode(tools=[TOOL], functions=[{"name": "g"}])
    assert not request.legacy_functions
    assert [tool.name for tool in request.functions()] == ["f", "g"]


# Settings


def test_sampling_is_taken_as_it_was_said() -> None:
    request = decode(
        temperature=0,
        top_p=0.5,
        max_completion_tokens=9,
        stop=["a", "b"],
        seed=7,
        presence_penalty=-1,
        frequency_penalty=1.5,
        logit_bias={"50256": -100},
        logprobs=True,
        top_logprobs=3,
        n=2,
        verbosity="low",
    )
    assert request.sampling == Sampling(
        temperature=0,
        top_p=0.5,
        max_output_tokens=9,
        max_tokens_field="max_completion_tokens",
        stop=("a", "b"),
        seed=7,
        presence_penalty=-1,
        frequency_penalty=1.5,
        logit_bias={"50256": -100},
        logprobs=True,
        top_logprobs=3,
        n=2,
        verbosity="low",
    )
    assert repr(request.sampling.temperature) == "0"
    assert repr(request.sampling.logit_bias) == "{'50256': -100}"


def test_the_newer_spelling_of_the_limit_wins() -> None:
    assert decode(max_tokens=5).sampling.max_tokens_field == "max_tokens"
    both = decode(max_tokens=5, max_completion_tokens=6).sampling
    assert (both.max_output_tokens, both.max_tokens_field) == (6, "max_completion_tokens")


def test_other_settings() -> None:
    request = decode(
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        reasoning_effort="low",
        metadata={"a": "b"},
        store=False,
        user="u",
        service_tier="flex",
        prompt_cache_key="k",
        safety_identifier="s",
        parallel_tool_calls=False,
        tools=[TOOL],
        tool_choice="required",
    )
    assert request.stream
    assert request.include_usage
    assert request.reasoning == ReasoningWish(effort="low")
    assert (request.metadata, request.store, request.user) == ({"a": "b"}, False, "u")
    assert (request.service_tier, request.prompt_cache_key, request.safety_identifier) == ("flex", "k", "s")
    assert request.parallel_tool_calls is False
    assert request.tool_choice == ToolChoice(mode="required")
    assert request.extra == {"stream_options": {"include_obfuscation": False}}


def test_null_settings_are_settings_that_were_not_given() -> None:
    names = set(_Body.__struct_fields__) - {"model", "messages", "modalities"}
    assert decode(**dict.fromkeys(names)) == decode()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"type": "text"}, OutputFormat(type="text")),
        ({"type": "json_object"}, OutputFormat(type="json_object")),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"},
            },
            OutputFormat(type="json_schema", name="n", schema={"type": "object"}, strict=True, description="d"),
        ),
    ],
)
def test_response_formats(raw: dict[str, Any], expected: OutputFormat) -> None:
    request = decode(response_format=raw)
    assert request.output == expected
    assert request.extra is None


@pytest.mark.parametrize(
    ("raw", "output", "extra"),
    [
        ({"type": "json_object", "schema": {"a": 1}}, OutputFormat(type="json_object"), {"schema": {"a": 1}}),
        ({"type": "structural_tag", "structures": []}, None, {"type": "structural_tag", "structures": []}),
    ],
)
def test_what_only_some_providers_know_of_formats_is_kept(raw: dict[str, Any], output: OutputFormat | None, extra: Any) -> None:
    request = decode(response_format=raw)
    assert (request.output, request.extra) == (output, {"response_format": extra})


# Refusals


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "m", "messages": [', b"\xff"])
def test_invalid_json(body: bytes) -> None:
    assert refusal(body).code == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"'])
def test_a_body_that_is_no_object(body: bytes) -> None:
    assert "must be a JSON object" in refusal(body).message


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": ...}, "model"),
        ({"model": 5}, "model"),
        ({"model": None}, "model"),
        ({"messages": ...}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "system", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "input_text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].image_url"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A"}}]}]},
            "messages[0].content[0].input_audio.format",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content[0].file"),
        ({"messages": [calling({"id": "a", "type": "function"})]}, "messages[0].tool_calls[0]"),
        ({"messages": [calling({"id": "a", "function": {}})]}, "messages[0].tool_calls[0].function.name"),
        ({"messages": [calling(function("a", arguments=5))]}, "messages[0].tool_calls[0].function.arguments"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": [calling(function("a")), {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        ({"messages": [calling(function("a")), result("")]}, "messages[1].tool_call_id"),
        ({"messages": [USER, result("nowhere")]}, "messages[1].tool_call_id"),
        ({"messages": [result("a"), calling(function("a"))]}, "messages[0].tool_call_id"),
        ({"messages": [USER, {"role": "function", "name": "f", "content": "x"}]}, "messages[1].name"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": [1]}, "top_p"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"logit_bias": {"1": "much"}}, "logit_bias[...]"),
        ({"metadata": {"a": 5}}, "metadata[...]"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"tools": {}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [TOOL, {"type": "function", "function": {}}]}, "tools[1].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools[1]"),
        ({"functions": [{"name": "f"}, {"name": "f"}]}, "functions[1]"),
        ({"tools": [TOOL], "functions": [{"name": "f"}]}, "functions[0]"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "f"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": 5}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call"),
        ({"functions": [{"name": "f"}], "function_call": "always"}, "function_call"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"modalities": ["text", "audio"]}, "modalities"),
    ],
)
def test_a_mistake_is_named_by_its_parameter(members: dict[str, Any], param: str) -> None:  # bug 26, 28, 30
    error = refused(**members)
    assert error.param == param
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"model": ...}, "Missing required parameter: 'model'"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "'robot'"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "developer"),
        ({"messages": ..., "input": "hi"}, "/v1/responses"),
        ({"messages": [USER, result("call_7")]}, "'call_7'"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "gg"}}}, "'gg'"),
        ({"tools": [TOOL, TOOL]}, "'f'"),
        ({"temperature": "hot"}, "expected number"),
    ],
)
def test_a_mistake_is_explained(members: dict[str, Any], words: str) -> None:
    assert words in refused(**members).message


def test_numbers_out_of_range_are_the_providers_business() -> None:
    assert decode(temperature=-5, max_tokens=-1, top_logprobs=99).sampling.temperature == -5


@pytest.mark.parametrize("place", ["tools", "tool_choice", "messages", "metadata", "x_unknown", "response_format"])
def test_deep_nesting_is_refused(place: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert refusal(b'{"model":"m","%b":%b}' % (place.encode(), deep)).code == "invalid_json"


def test_lone_surrogates_do_no_harm() -> None:  # bug 24
    body = b'{"model":"m","messages":[{"role":"user","content":"a\\ud83d","\\udc00":"\\ud83d"}],"tools":[{"name":"\\ud800"}]}'
    request = WIRE.decode_request(body)
    assert request.items == (Message(role="user", content="a\ufffd", extra={"\ufffd": "\ufffd"}),)
    WIRE.encode_request(request, Profile())


def altered(body: dict[str, Any], data: st.DataObject) -> bytes:
    """The body with anything in the place of some value."""
    here: Any = body
    while True:
        key = data.draw(st.sampled_from(list(here) if isinstance(here, dict) else list(range(len(here)))))
        if not here[key] or not isinstance(here[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            here[key] = data.draw(json_values())
            return json.dumps(body).encode()
        here = here[key]


@given(chat_bodies().map(deepcopy), st.data())
def test_a_request_with_anything_in_any_place_is_understood_or_refused(body: dict[str, Any], data: st.DataObject) -> None:
    """Whatever stands in the place of some value: never a failure of our own."""
    with suppress(ClientError):
        request = WIRE.decode_request(altered(body, data))
        json.loads(WIRE.encode_request(request, Profile()).body)


# The two ways of reading


def outcome(decode: Callable[[bytes], Request], body: bytes) -> object:
    try:
        return repr(decode(body))  # in which 1, 1.0 and true differ
    except ClientError as error:
        return error.message, error.param, error.code


def test_a_usual_request_is_read_in_one_go() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    usual = {"model": "m", "messages": messages, "temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}}
    assert _chat_request._read_plain(json.dumps(usual).encode()).messages[1].content == "Hi"


@given(body=chat_bodies().map(deepcopy), data=st.data(), odd=st.booleans())
def test_both_ways_of_reading_give_the_same(body: dict[str, Any], data: st.DataObject, *, odd: bool) -> None:
    written = altered(body, data) if odd else json.dumps(body).encode()
    assert outcome(WIRE.decode_request, written) == outcome(_chat_request._decode_any, written)


@pytest.mark.parametrize(
    "member",
    [
        '"modalities":null',
        '"modalities":["text"]',
        '"modalities":["audio"]',
        '"stream_options":{"include_usage":true,"other":null}',
        '"response_format":{"type":"odd"}',
        '"response_format":null',
        '"seed":1e2',
        '"seed":1.0',
        '"seed":123456789012345678901234567890',
        '"temperature":1e400',
        '"temperature":true',
        '"model":"twice"',
        '"n":0',
        '"user":"\\ud800"',
        '"unknown":{"a":1}',
        '"input":[]',
    ],
)
def test_both_ways_of_reading_give_the_same_for_odd_members(member: str) -> None:
    body = f'{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],{member}}}'.encode()
    assert outcome(WIRE.decode_request, body) == outcome(_chat_request._decode_any, body)
