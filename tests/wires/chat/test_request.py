"""Decoding of Chat requests: settings, and what is refused."""

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
from tests.wires.chat.requests import TOOL, USER, calling, decode, function, refusal, refused, result
from toolrelay.core.messages import Message
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Sampling, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.chat import WIRE
from toolrelay.wires.chat import request as chat_request
from toolrelay.wires.chat.request import _ChatBody

# Settings


def test_sampling_is_decoded_with_numbers_unchanged() -> None:
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


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert decode(max_tokens=5).sampling.max_tokens_field == "max_tokens"
    both = decode(max_tokens=5, max_completion_tokens=6).sampling
    assert (both.max_output_tokens, both.max_tokens_field) == (6, "max_completion_tokens")


def test_other_settings_are_decoded() -> None:
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
    assert request.reasoning == ReasoningOptions(effort="low")
    assert (request.metadata, request.store, request.user) == ({"a": "b"}, False, "u")
    assert (request.service_tier, request.prompt_cache_key, request.safety_identifier) == ("flex", "k", "s")
    assert request.parallel_tool_calls is False
    assert request.tool_choice == ToolChoice(mode="required")
    assert request.extra == {"stream_options": {"include_obfuscation": False}}


def test_null_settings_equal_missing_settings() -> None:
    names = set(_ChatBody.__struct_fields__) - {"model", "messages", "modalities"}
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
def test_response_formats_are_decoded(raw: dict[str, Any], expected: OutputFormat) -> None:
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
def test_unknown_response_formats_and_members_are_kept(raw: dict[str, Any], output: OutputFormat | None, extra: Any) -> None:
    request = decode(response_format=raw)
    assert (request.output, request.extra) == (output, {"response_format": extra})


# Refusals


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "m", "messages": [', b"\xff"])
def test_invalid_json_is_refused(body: bytes) -> None:
    assert refusal(body).code == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"'])
def test_body_that_is_not_an_object_is_refused(body: bytes) -> None:
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
def test_error_names_the_parameter(members: dict[str, Any], param: str) -> None:  # bug 26, 28, 30
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
def test_error_explains_the_mistake(members: dict[str, Any], words: str) -> None:
    assert words in refused(**members).message


def test_numbers_out_of_range_are_left_to_the_provider() -> None:
    assert decode(temperature=-5, max_tokens=-1, top_logprobs=99).sampling.temperature == -5


@pytest.mark.parametrize("place", ["tools", "tool_choice", "messages", "metadata", "x_unknown", "response_format"])
def test_deep_nesting_is_refused(place: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert refusal(b'{"model":"m","%b":%b}' % (place.encode(), deep)).code == "invalid_json"


def test_lone_surrogates_are_replaced() -> None:  # bug 24
    body = b'{"model":"m","messages":[{"role":"user","content":"a\\ud83d","\\udc00":"\\ud83d"}],"tools":[{"name":"\\ud800"}]}'
    request = WIRE.decode_request(body)
    assert request.items == (Message(role="user", content="a\ufffd", extra={"\ufffd": "\ufffd"}),)
    WIRE.encode_request(request, Profile())


def altered(body: dict[str, Any], data: st.DataObject) -> bytes:
    """The body with some value replaced by anything."""
    here: Any = body
    while True:
        key = data.draw(st.sampled_from(list(here) if isinstance(here, dict) else list(range(len(here)))))
        if not here[key] or not isinstance(here[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            here[key] = data.draw(json_values())
            return json.dumps(body).encode()
        here = here[key]


@given(chat_bodies().map(deepcopy), st.data())
def test_request_with_any_value_anywhere_is_decoded_or_refused(body: dict[str, Any], data: st.DataObject) -> None:
    """Whatever replaces some value, it is never an internal error."""
    with suppress(ClientError):
        request = WIRE.decode_request(altered(body, data))
        json.loads(WIRE.encode_request(request, Profile()).body)


# Fast path and general path


def outcome(decode: Callable[[bytes], Request], body: bytes) -> object:
    try:
        return repr(decode(body))  # in which 1, 1.0 and true differ
    except ClientError as error:
        return error.message, error.param, error.code


def test_plain_request_takes_the_fast_path() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    usual = {"model": "m", "messages": messages, "temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}}
    assert chat_request._decode_plain(json.dumps(usual).encode()).messages[1].content == "Hi"


@given(body=chat_bodies().map(deepcopy), data=st.data(), odd=st.booleans())
def test_fast_and_general_path_give_the_same_result(body: dict[str, Any], data: st.DataObject, *, odd: bool) -> None:
    written = altered(body, data) if odd else json.dumps(body).encode()
    assert outcome(WIRE.decode_request, written) == outcome(chat_request._decode_any, written)


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
def test_fast_and_general_path_agree_on_odd_members(member: str) -> None:
    body = f'{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],{member}}}'.encode()
    assert outcome(WIRE.decode_request, body) == outcome(chat_request._decode_any, body)
