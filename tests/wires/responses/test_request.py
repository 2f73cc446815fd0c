"""Decoding of Responses requests: items, settings, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import (
    Audio,
    Call,
    File,
    Image,
    Message,
    OpaqueItem,
    OpaquePart,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.profiles import Profile
from toolrelay.core.request import (
    OpaqueTool,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    Tool,
    ToolChoice,
)
from toolrelay.core.request_checks import check_tool_choice
from toolrelay.errors import ClientError
from toolrelay.wires.responses import WIRE
from toolrelay.wires.responses.request import reference_of

WIRE_NAME = "openai_responses"


def decode(**fields: Any) -> Request:
    return WIRE.decode_request(json.dumps({"model": "m", "input": "Hi", **fields}).encode())


def decode_items(*items: dict[str, Any]) -> tuple[Any, ...]:
    return decode(input=list(items)).items


def written(request: Request, profile: Profile | None = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(WIRE.encode_request(request, profile or Profile()).body)
    return body


def again(request: Request) -> Request:
    return WIRE.decode_request(WIRE.encode_request(request, Profile()).body)


def refusal(**fields: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        check_tool_choice(decode(**fields))
    assert caught.value.status == 400
    return caught.value


CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


# Accepted


def test_string_input_is_a_user_message() -> None:
    assert decode(input="Hello").items == (Message(role="user", content="Hello"),)


def test_message_without_type_is_accepted() -> None:
    plain = decode_items({"role": "user", "content": "a"})
    typed = decode_items({"type": "message", "role": "user", "content": "a"})
    assert plain == typed == (Message(role="user", content="a"),)


def test_content_parts_of_every_kind_are_decoded() -> None:
    (message,) = decode_items(
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look", "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "input_image", "image_url": "data:,", "detail": "low"},
                {"type": "input_image", "file_id": "file_1"},
                {"type": "input_file", "file_data": "data:,", "filename": "a.pdf", "detail": "high"},
                {"type": "input_file", "file_url": "http://x/a.pdf"},
                {"type": "input_audio", "input_audio": {"data": "AAA", "format": "wav"}},
                {"type": "input_smell", "strength": 3},
            ],
        }
    )
    assert message.content == (
        Text(text="look", extra={"prompt_cache_breakpoint": {"mode": "explicit"}}),
        Image(url="data:,", detail="low"),
        Image(file_id="file_1"),
        File(data="data:,", filename="a.pdf", extra={"detail": "high"}),
        File(url="http://x/a.pdf"),
        Audio(data="AAA", format="wav"),
        OpaquePart(wire=WIRE_NAME, raw={"type": "input_smell", "strength": 3}),
    )


def test_nested_image_url_is_accepted() -> None:
    part = {"type": "input_image", "image_url": {"url": "http://x/y.png", "detail": "high"}}
    (message,) = decode_items({"role": "user", "content": [part]})
    assert message.content == (Image(url="http://x/y.png", detail="high"),)


def test_assistant_text_and_refusals_are_decoded() -> None:
    (message,) = decode_items(
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "a", "annotations": [{"type": "file_path"}], "logprobs": []},
                {"type": "refusal", "refusal": "no"},
            ],
        }
    )
    assert message == Message(
        role="assistant",
        content=(Text(text="a", annotations=({"type": "file_path"},)), Refusal(text="no")),
        id="msg_1",
        phase="commentary",
        extra={"status": "completed"},
    )


@pytest.mark.parametrize("content", ["", []])
def test_empty_assistant_messages_are_kept(content: str | list[Any]) -> None:
    items = decode_items(
        {"role": "user", "content": "a"},
        {"type": "message", "role": "assistant", "content": content},
        CALL,
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
    )
    assert items[1] == Message(role="assistant", content=content if content == "" else ())
    assert items[2] == Call(id="c1", name="f", arguments="{}")


def test_arguments_as_an_object_become_text() -> None:  # bug 20
    (call,) = decode_items({**CALL, "arguments": {"a": [1, None], "b": "ü"}})
    assert json.loads(call.arguments) == {"a": [1, None], "b": "ü"}


def test_arguments_as_text_are_unchanged() -> None:  # bug 21
    text = '{"a":  "{\\"b\\": 1}" }'
    (call,) = decode_items({**CALL, "arguments": text})
    assert call.arguments == text


@pytest.mark.parametrize("arguments", ["", None])
def test_empty_arguments_are_sent_as_an_empty_object(arguments: str | None) -> None:  # bug 22
    request = decode(input=[{**CALL, "arguments": arguments}])
    assert request.items == (Call(id="c1", name="f", arguments=""),)
    assert written(request)["input"][0]["arguments"] == "{}"


def test_custom_call_and_output_stay_custom() -> None:  # bug 33
    raw = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "", "id": "ctc_1", "namespace": "db"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1 row"},
    ]
    request = decode(input=raw)
    assert request.items == (
        Call(id="c1", name="sql", arguments="", kind="custom", item_id="ctc_1", namespace="db"),
        Result(call_id="c1", output="1 row", kind="custom"),
    )
    assert written(request)["input"] == raw


def test_output_parts_stay_an_array() -> None:  # bug 34
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "data:,", "detail": "auto"},
        {"type": "input_file", "file_id": "f"},
    ]
    request = decode(input=[CALL, {"type": "function_call_output", "call_id": "c1", "output": parts}])
    result = request.items[1]
    assert isinstance(result, Result)
    assert result.output == (Text(text="a"), Image(url="data:,", detail="auto"), File(file_id="f"))
    assert written(request)["input"][1]["output"] == parts


def test_reasoning_keeps_its_encrypted_content() -> None:  # bug 31
    raw: JsonObject = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "content": [{"type": "reasoning_text", "text": "t"}],
        "encrypted_content": "sealed",
    }
    request = decode(input=[raw])
    assert request.items == (Reasoning(id="rs_1", summary=("s",), text=("t",), encrypted="sealed"),)
    assert written(request)["input"] == [raw]


def test_empty_reasoning_item_is_kept() -> None:  # bug 31
    raw: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert written(decode(input=[raw]))["input"] == [raw]


def test_openai_gets_no_reasoning_that_it_has_not_stored() -> None:  # bug 31
    profile = Profile(encrypts_reasoning=True)
    assert written(decode(input=[{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "a"}]), profile)[
        "input"
    ] == [{"type": "message", "role": "user", "content": "a"}]
    encrypted = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    assert written(decode(input=[encrypted]), profile)["input"] == [encrypted]


def test_encrypted_reasoning_is_asked_for_where_the_gateway_keeps_it() -> None:  # bug 31
    profile, wanted = Profile(encrypts_reasoning=True), ["reasoning.encrypted_content"]
    assert written(decode(reasoning={"effort": "low"}), profile)["include"] == wanted
    assert "include" not in written(decode(reasoning={"effort": "low"}))
    assert "include" not in written(decode(reasoning={"effort": "low"}, store=False), profile)
    assert "include" not in written(decode(), profile), "models that do not reason refuse it"


def test_item_of_unknown_type_is_unchanged() -> None:
    raw: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    request = decode(input=[raw])
    assert request.items == (OpaqueItem(wire=WIRE_NAME, raw=raw),)
    assert written(request)["input"] == [raw]


def test_flat_and_nested_tools_are_accepted() -> None:
    schema: JsonObject = {"$schema": "x", "type": "object", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}  # bug 23
    flat = {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": None}
    nested = {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
    expected = (Tool(name="f", description="d", parameters=schema),)
    assert decode(tools=[flat]).tools == decode(tools=[nested]).tools == expected


def test_custom_tool_keeps_its_grammar() -> None:  # bug 33
    grammar: JsonObject = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
    tool = {"type": "custom", "name": "sql", "format": grammar}
    nested = {
        "type": "custom",
        "custom": {"name": "sql", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a+/"}}},
    }
    assert decode(tools=[tool]).tools == decode(tools=[nested]).tools == (Tool(name="sql", kind="custom", format=grammar),)
    assert written(decode(tools=[nested]))["tools"] == [tool]


def test_provider_tool_is_unchanged() -> None:
    raw: JsonObject = {"type": "web_search", "search_context_size": "low"}
    request = decode(tools=[raw])
    assert request.tools == (OpaqueTool(wire=WIRE_NAME, raw=raw),)
    assert written(request)["tools"] == [raw]


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {}},
    {"type": "custom", "name": "c"},
    {"type": "mcp", "server_label": "s"},
]


@pytest.mark.parametrize(
    ("raw", "choice"),
    [
        ("auto", ToolChoice(mode="auto")),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ({"type": "function", "name": "f"}, ToolChoice(mode="named", names=(("function", "f"),))),
        ({"type": "custom", "name": "c"}, ToolChoice(mode="named", names=(("custom", "c"),))),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
            },
            ToolChoice(mode="required", names=(("function", "f"), ("custom", "c"))),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}]},
            ToolChoice(raw={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}]}),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]},
            ToolChoice(
                names=(("function", "f"),),
                raw={
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
                },
            ),
        ),
        ({"type": "file_search"}, ToolChoice(raw={"type": "file_search"})),
    ],
)
def test_tool_choice_survives_decoding_and_encoding(raw: Any, choice: ToolChoice) -> None:
    request = decode(tools=TOOLS, tool_choice=raw)
    assert request.tool_choice == choice
    assert written(request)["tool_choice"] == raw


def test_settings_are_decoded() -> None:
    request = decode(
        instructions="Be brief.",
        parallel_tool_calls=False,
        max_tool_calls=3,
        temperature=0,
        top_p=0.5,
        max_output_tokens=9,
        top_logprobs=2,
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}, "verbosity": "low"},
        reasoning={"effort": "high", "summary": "auto", "mode": "pro"},
        include=["reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results"],
        metadata={"a": "b"},
        store=True,
        user="u",
        service_tier="flex",
        prompt_cache_key="k",
        safety_identifier="s",
        truncation="auto",
        stream=True,
        stream_options={"include_obfuscation": False},
        prompt_cache_retention="24h",
    )
    assert request.instructions == "Be brief."
    assert request.parallel_tool_calls is False
    assert request.max_tool_calls == 3
    assert request.sampling == Sampling(
        temperature=0, top_p=0.5, max_output_tokens=9, top_logprobs=2, logprobs=True, verbosity="low"
    )
    assert request.output == OutputFormat(type="json_schema", name="n", schema={"type": "object"}, strict=True)
    assert request.reasoning == ReasoningOptions(effort="high", summary="auto", encrypted=True, extra={"mode": "pro"})
    assert "file_search_call.results" in request.include
    assert (request.metadata, request.store, request.user) == ({"a": "b"}, True, "u")
    assert (request.service_tier, request.prompt_cache_key) == ("flex", "k")
    assert (request.safety_identifier, request.truncation) == ("s", "auto")
    assert request.stream
    assert request.extra == {"stream_options": {"include_obfuscation": False}, "prompt_cache_retention": "24h"}


def test_null_and_empty_settings_equal_missing_settings() -> None:
    quiet = decode(text={}, reasoning={}, tools=[], metadata=None, store=None, include=None, previous_response_id=None)
    assert quiet == decode()


# Refused


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": 3}, "previous_response_id"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"conversation": ""}, "conversation"),
        ({"conversation": 3}, "conversation"),
        ({"conversation": {}}, "conversation"),
        ({"conversation": {"id": 3}}, "conversation"),
        ({"background": True, "store": False}, "background"),
        ({"background": "yes"}, "background"),
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"stream_options": 7}, "stream_options"),
        ({"stream_options": ["include_obfuscation"]}, "stream_options"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["a"]}, "input[0]"),
        ({"input": [{}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"text": "a"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]}, "input[0].content[0].text"),
        ({"input": [{**CALL, "arguments": 3}]}, "input[0].arguments"),
        ({"input": [CALL, {"type": "function_call_output", "call_id": "c1", "output": 3}]}, "input[1].output"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"max_tool_calls": 1.5}, "max_tool_calls"),
        ({"max_tool_calls": -1}, "max_tool_calls"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "strict": "yes"}]}, "tools[0].strict"),
        ({"tool_choice": "perhaps"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
        ({"text": {"format": {"type": "poem"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"include": "all"}, "include"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_invalid_request_is_refused_with_its_parameter(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert error.message


def test_state_is_decoded() -> None:  # bug 41
    assert decode(previous_response_id="resp_1").previous_response_id == "resp_1"
    assert decode(conversation="conv_1").conversation == "conv_1"
    assert decode(conversation={"id": "conv_1"}).conversation == "conv_1"
    assert decode(background=True).background
    assert all(decode(**members).store for members in ({}, {"store": None}, {"store": True}))
    assert decode(store=False).store is False


def test_references_are_kept_for_the_store_to_resolve() -> None:
    items = decode_items({"type": "item_reference", "id": "msg_1"}, {"id": "rs_1"}, {"type": "mcp_call", "id": "mcp_1"})
    assert [reference_of(item) for item in items] == ["msg_1", "rs_1", "mcp_1"]
    others = decode_items({"role": "user", "content": "a"}, {"type": "x", "id": "y"})
    assert [reference_of(item) for item in others] == [None, None]


def test_output_may_answer_a_call_of_the_context() -> None:
    output = {"type": "function_call_output", "call_id": "c9", "output": "x"}
    for members in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}):
        (item,) = decode(input=[output], **members).items
        assert isinstance(item, Result)
    assert len(decode_items({"type": "item_reference", "id": "fc_1"}, output)) == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"model": "m", "input": "\\x"}'])
def test_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(ClientError, match="JSON"):
        WIRE.decode_request(body)


def test_missing_model_is_refused() -> None:
    with pytest.raises(ClientError) as caught:
        WIRE.decode_request(b'{"input": "Hi"}')
    assert caught.value.param == "model"


def test_chat_request_is_refused_with_the_right_endpoint() -> None:
    with pytest.raises(ClientError, match="chat/completions"):
        WIRE.decode_request(b'{"model": "m", "messages": []}')


def test_output_without_a_call_is_refused() -> None:
    output = {"type": "function_call_output", "call_id": "c9", "output": "x"}
    error = refusal(input=[{"role": "user", "content": "a"}, CALL, {"role": "user", "content": "b"}, output])
    assert error.param == "input[3].call_id"
    assert "c9" in error.message
    assert refusal(input=[{**output, "call_id": "c1"}, CALL]).param == "input[0].call_id"


def test_empty_input_list_and_missing_input_have_different_errors() -> None:
    with pytest.raises(ClientError, match="at least one item") as caught:
        decode(input=[])
    assert caught.value.code == "empty_array"


def test_stream_options_are_passed_on() -> None:
    options = {"include_obfuscation": False}
    assert written(decode(stream=True, stream_options=options))["stream_options"] == options
