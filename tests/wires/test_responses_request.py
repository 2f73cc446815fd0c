"""A client's Responses request, read; and the gateway's own, written for a provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

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
    ReasoningWish,
    Request,
    Sampling,
    Tool,
    ToolChoice,
)
from toolrelay.errors import ClientError
from toolrelay.wires._responses_outgoing import CANNOT_SAY
from toolrelay.wires.openai_responses import WIRE

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
        decode(**fields)
    assert caught.value.status == 400
    return caught.value


CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


# What a client says


def test_a_string_is_the_users_message() -> None:
    assert decode(input="Hello").items == (Message(role="user", content="Hello"),)


def test_a_message_needs_no_type() -> None:
    plain = decode_items({"role": "user", "content": "a"})
    typed = decode_items({"type": "message", "role": "user", "content": "a"})
    assert plain == typed == (Message(role="user", content="a"),)


def test_content_parts_of_every_kind_are_understood() -> None:
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


def test_an_image_url_nested_as_in_chat_is_understood() -> None:
    part = {"type": "input_image", "image_url": {"url": "http://x/y.png", "detail": "high"}}
    (message,) = decode_items({"role": "user", "content": [part]})
    assert message.content == (Image(url="http://x/y.png", detail="high"),)


def test_an_assistants_words_and_refusals_are_understood() -> None:
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


def test_arguments_sent_as_an_object_are_written_out() -> None:  # bug 20
    (call,) = decode_items({**CALL, "arguments": {"a": [1, None], "b": "ü"}})
    assert json.loads(call.arguments) == {"a": [1, None], "b": "ü"}


def test_arguments_that_are_json_stay_the_text_they_were() -> None:  # bug 21
    text = '{"a":  "{\\"b\\": 1}" }'
    (call,) = decode_items({**CALL, "arguments": text})
    assert call.arguments == text


@pytest.mark.parametrize("arguments", ["", None])
def test_empty_arguments_are_read_as_they_are_and_sent_as_an_empty_object(arguments: str | None) -> None:  # bug 22
    request = decode(input=[{**CALL, "arguments": arguments}])
    assert request.items == (Call(id="c1", name="f", arguments=""),)
    assert written(request)["input"][0]["arguments"] == "{}"


def test_a_custom_call_and_its_output_stay_custom() -> None:  # bug 33
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


def test_structured_outputs_stay_structured() -> None:  # bug 34
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


def test_reasoning_is_carried_through_with_its_seal() -> None:  # bug 31
    raw = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "content": [{"type": "reasoning_text", "text": "t"}],
        "encrypted_content": "sealed",
    }
    request = decode(input=[raw])
    assert request.items == (Reasoning(id="rs_1", summary=("s",), text=("t",), encrypted="sealed"),)
    assert written(request)["input"] == [raw]


def test_an_empty_reasoning_item_keeps_its_place() -> None:  # bug 31
    raw = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert written(decode(input=[raw]))["input"] == [raw]


def test_an_item_of_unknown_type_passes_as_it_is() -> None:
    raw = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    request = decode(input=[raw])
    assert request.items == (OpaqueItem(wire=WIRE_NAME, raw=raw),)
    assert written(request)["input"] == [raw]


def test_tools_are_taken_flat_and_nested() -> None:
    schema = {"$schema": "x", "type": "object", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}  # bug 23
    flat = {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": None}
    nested = {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
    expected = (Tool(name="f", description="d", parameters=schema),)
    assert decode(tools=[flat]).tools == decode(tools=[nested]).tools == expected


def test_a_custom_tool_keeps_its_grammar() -> None:  # bug 33
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
    tool = {"type": "custom", "name": "sql", "format": grammar}
    nested = {
        "type": "custom",
        "custom": {"name": "sql", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a+/"}}},
    }
    assert decode(tools=[tool]).tools == decode(tools=[nested]).tools == (Tool(name="sql", kind="custom", format=grammar),)
    assert written(decode(tools=[nested]))["tools"] == [tool]


def test_a_tool_that_only_the_provider_can_run_passes_as_it_is() -> None:
    raw = {"type": "web_search", "search_context_size": "low"}
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
        ({"type": "file_search"}, ToolChoice(raw={"type": "file_search"})),
    ],
)
def test_a_tool_choice_is_understood_and_written_again(raw: Any, choice: ToolChoice) -> None:
    request = decode(tools=TOOLS, tool_choice=raw)
    assert request.tool_choice == choice
    assert written(request)["tool_choice"] == raw


def test_the_settings_are_understood() -> None:
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
    assert request.reasoning == ReasoningWish(effort="high", summary="auto", encrypted=True, extra={"mode": "pro"})
    assert "file_search_call.results" in request.include
    assert (request.metadata, request.store, request.user) == ({"a": "b"}, True, "u")
    assert (request.service_tier, request.prompt_cache_key) == ("flex", "k")
    assert (request.safety_identifier, request.truncation) == ("s", "auto")
    assert request.stream
    assert request.extra == {"stream_options": {"include_obfuscation": False}, "prompt_cache_retention": "24h"}


def test_null_and_empty_settings_say_nothing() -> None:
    quiet = decode(text={}, reasoning={}, tools=[], metadata=None, store=None, include=None, previous_response_id=None)
    assert quiet == decode()


# What is refused


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),  # bug 41
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"background": "yes"}, "background"),
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["a"]}, "input[0]"),
        ({"input": [{}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"text": "a"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": "a"}, {"type": "item_reference", "id": "x"}]}, "input[1]"),
        ({"input": [{"id": "msg_1"}]}, "input[0]"),
        ({"input": [{**CALL, "arguments": 3}]}, "input[0].arguments"),
        ({"input": [CALL, {"type": "function_call_output", "call_id": "c1", "output": 3}]}, "input[1].output"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
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
def test_what_cannot_be_meant_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert error.message


def test_the_refusal_of_a_previous_response_says_why() -> None:  # bug 41
    assert "keeps no state yet" in refusal(previous_response_id="resp_1").message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"model": "m", "input": "\\x"}'])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ClientError, match="JSON"):
        WIRE.decode_request(body)


def test_a_missing_model_is_named() -> None:
    with pytest.raises(ClientError) as caught:
        WIRE.decode_request(b'{"input": "Hi"}')
    assert caught.value.param == "model"


def test_a_chat_request_is_told_where_it_belongs() -> None:
    with pytest.raises(ClientError, match="chat/completions"):
        WIRE.decode_request(b'{"model": "m", "messages": []}')


def test_an_output_whose_call_is_nowhere_is_refused() -> None:
    output = {"type": "function_call_output", "call_id": "c9", "output": "x"}
    error = refusal(input=[{"role": "user", "content": "a"}, CALL, {"role": "user", "content": "b"}, output])
    assert error.param == "input[3].call_id"
    assert "c9" in error.message
    assert refusal(input=[{**output, "call_id": "c1"}, CALL]).param == "input[0].call_id"


# What the gateway says to a provider


CHAT = Request(wire="openai_chat", model="m", items=(Message(role="user", content="Hi"),))


def test_a_request_of_few_words_is_written_in_few_words() -> None:
    outgoing = WIRE.encode_request(decode(text={}, tools=[{"type": "function", "name": "f", "strict": None}]), Profile())
    assert outgoing.path == "/responses"
    assert outgoing.dropped == ()
    assert json.loads(outgoing.body) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "name": "f", "parameters": None}],
    }


def test_unknown_fields_pass_within_the_wire_and_are_dropped_from_another() -> None:
    extra = {"prompt_cache_retention": "24h", "future": [1]}
    assert written(decode(**extra)).items() >= extra.items()
    outgoing = WIRE.encode_request(_with(CHAT, extra={"prediction": 1, "modalities": ["text"]}), Profile())
    assert outgoing.dropped == ("prediction", "modalities")
    assert "prediction" not in json.loads(outgoing.body)


def test_unknown_members_of_text_and_format_keep_their_place() -> None:
    text = {"format": {"type": "json_object", "shape": 1}, "style": "plain"}
    assert written(decode(text=text))["text"] == text


def test_members_that_only_another_wire_knows_stay_there() -> None:
    items = (
        Message(role="user", content=(Text(text="a", extra={"cache_control": 1}),), extra={"x": 1}),
        Call(id="c1", name="f", arguments="{}", extra={"x": 1}),
        Result(call_id="c1", output="o", name="f", extra={"x": 1}),
    )
    body = written(_with(CHAT, items=items, tools=(Tool(name="f", parameters={}, extra={"x": 1}),)))
    assert body["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "o"},
    ]
    assert body["tools"] == [{"type": "function", "name": "f", "parameters": {}, "strict": False}]


def test_a_chat_function_that_does_not_ask_to_be_strict_is_not_made_strict() -> None:
    tools = (Tool(name="f", parameters={}), Tool(name="g", parameters={}, strict=True))
    assert [tool["strict"] for tool in written(_with(CHAT, tools=tools))["tools"]] == [False, True]


def test_nothing_is_stored_for_a_client_of_another_wire() -> None:
    assert written(CHAT)["store"] is False
    assert written(_with(CHAT, store=True))["store"] is False
    assert "store" not in written(decode())
    assert written(decode(store=True))["store"] is True


def test_streaming_is_asked_for_only_if_the_client_did() -> None:
    assert written(_with(CHAT, stream=True))["stream"] is True
    assert "stream" not in written(CHAT)


def test_chat_settings_find_their_words() -> None:
    request = _with(
        CHAT,
        sampling=Sampling(max_output_tokens=5, max_tokens_field="max_tokens", logprobs=True, top_logprobs=3, verbosity="high"),
        output=OutputFormat(type="json_object"),
        reasoning=ReasoningWish(effort="low"),
    )
    body = written(request)
    assert body["max_output_tokens"] == 5
    assert body["include"] == ["message.output_text.logprobs"]
    assert body["top_logprobs"] == 3
    assert body["text"] == {"format": {"type": "json_object"}, "verbosity": "high"}
    assert body["reasoning"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", ("a",)),
        ("seed", 0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 1.0),
        ("logit_bias", {"1": 2.0}),
    ],
)
def test_what_this_wire_has_no_word_for_is_dropped_and_said(field: str, value: Any) -> None:
    assert CANNOT_SAY[field] == "dropped"
    outgoing = WIRE.encode_request(_with(CHAT, sampling=Sampling(**{field: value})), Profile())
    assert outgoing.dropped == (field,)
    assert field not in json.loads(outgoing.body)


def test_a_name_on_messages_is_dropped_and_said_once() -> None:
    items = (Message(role="user", content="a", name="Ann"), Message(role="user", content="b", name="Bob"))
    outgoing = WIRE.encode_request(_with(CHAT, items=items), Profile())
    assert outgoing.dropped == ("name",)
    assert b"Ann" not in outgoing.body


_RAW = {"type": "strange"}


@pytest.mark.parametrize(
    ("fields", "what", "param"),
    [
        ({"sampling": Sampling(n=2)}, "n", "n"),
        ({"tools": (OpaqueTool(wire="openai_chat", raw=_RAW),)}, "a provider's own tools", "tools"),
        ({"items": (OpaqueItem(wire="gemini", raw=_RAW),)}, "a provider's own items", "messages"),
        (
            {"items": (Message(role="user", content=(OpaquePart(wire="openai_chat", raw=_RAW),)),)},
            "content parts of unknown type",
            "messages",
        ),
        ({"tool_choice": ToolChoice(raw=_RAW)}, "tool_choice that names a provider's own tool", "tool_choice"),
    ],
)
def test_what_would_change_the_meaning_is_refused(fields: dict[str, Any], what: str, param: str) -> None:
    assert CANNOT_SAY[what] == "refused"
    with pytest.raises(ClientError) as caught:
        WIRE.encode_request(_with(CHAT, **fields), Profile())
    assert (caught.value.status, caught.value.param) == (400, param)


def test_one_answer_may_be_asked_for_by_number() -> None:
    assert WIRE.encode_request(_with(CHAT, sampling=Sampling(n=1)), Profile()).dropped == ()


def test_call_ids_are_shortened_where_the_provider_insists() -> None:
    request = decode(input=[CALL, {"type": "function_call_output", "call_id": "c1", "output": "x"}])
    call, output = written(request, Profile(call_ids="nine"))["input"]
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) == 9


def test_ids_that_are_not_this_apis_own_are_left_out() -> None:
    request = decode(
        input=[
            {"type": "message", "role": "assistant", "id": "42", "content": "a"},
            {**CALL, "id": "call_1"},
            {**CALL, "call_id": "c2", "id": "fc_2"},
        ]
    )
    assert [item.get("id") for item in written(request)["input"]] == [None, None, "fc_2"]


def test_a_summary_without_its_thought_is_not_sent() -> None:
    items = (Reasoning(summary=("s",)), Reasoning(text=("t",)), Message(role="user", content="Hi"))
    body = written(_with(CHAT, items=items))
    assert [item["type"] for item in body["input"]] == ["reasoning", "message"]
    assert body["input"][0]["content"] == [{"type": "reasoning_text", "text": "t"}]


def test_a_lone_surrogate_does_not_stop_a_request() -> None:
    assert written(_with(CHAT, items=(Message(role="user", content="a\ud83d"),)))["input"][0]["content"] == "a\ufffd"


def _with(request: Request, **fields: Any) -> Request:
    return replace(request, **fields)


# Any request


def _objects() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text(max_size=4), st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4), max_size=2)


_WORDS = st.text(max_size=8)
_PARTS = st.one_of(
    st.builds(lambda text: {"type": "input_text", "text": text}, _WORDS),
    st.builds(lambda url: {"type": "input_image", "image_url": url, "detail": "low"}, _WORDS),
    st.builds(lambda name: {"type": "input_file", "file_id": name, "filename": name}, _WORDS),
    st.just({"type": "input_audio", "input_audio": {"data": "A", "format": "mp3"}}),
    st.just({"type": "unheard_of", "x": [1, {"y": None}]}),
)
_SPOKEN = st.one_of(
    st.builds(lambda text: {"type": "output_text", "text": text, "annotations": [{"type": "file_path"}]}, _WORDS),
    st.builds(lambda text: {"type": "refusal", "refusal": text}, _WORDS),
)
_HEARD_MESSAGE = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "system", "developer"]),
    _WORDS | st.lists(_PARTS, max_size=3),
)
_SPOKEN_MESSAGE = st.builds(
    lambda content, phase: {"type": "message", "role": "assistant", "id": "msg_1", "content": content, "phase": phase},
    _WORDS | st.lists(_SPOKEN, max_size=3),
    st.sampled_from([None, "commentary"]),
)
_THOUGHT = st.builds(
    lambda texts, sealed: {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": text} for text in texts],
        "encrypted_content": sealed,
        "status": "completed",
    },
    st.lists(_WORDS, max_size=2),
    st.none() | _WORDS,
)


@st.composite
def _called(draw: st.DrawFn) -> list[dict[str, Any]]:
    identifier = draw(st.sampled_from(["c1", "c2"]))
    output = draw(_WORDS | st.lists(_PARTS, max_size=2))
    if draw(st.booleans()):
        return [
            {"type": "custom_tool_call", "call_id": identifier, "name": "c", "input": draw(_WORDS)},
            {"type": "custom_tool_call_output", "call_id": identifier, "output": output},
        ]
    return [
        {"type": "function_call", "call_id": identifier, "name": "f", "arguments": '{"a": 1}', "id": "fc_1", "extra": 1},
        {"type": "function_call_output", "call_id": identifier, "output": output},
    ]


_ITEMS = st.lists(
    st.one_of(_HEARD_MESSAGE, _SPOKEN_MESSAGE, _THOUGHT).map(lambda item: [item]) | _called(), min_size=1, max_size=4
).map(lambda groups: [item for group in groups for item in group])


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        "instructions": _WORDS,
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "custom", "name": "c"}]),
        "parallel_tool_calls": st.booleans(),
        "max_tool_calls": st.integers(1, 9),
        "temperature": st.floats(0, 2),
        "max_output_tokens": st.integers(1, 99),
        "top_logprobs": st.integers(0, 20),
        "text": st.sampled_from([{}, {"verbosity": "low"}, {"format": {"type": "text"}}, {"format": {"type": "json_object"}}]),
        "reasoning": st.sampled_from([{}, {"effort": "low"}, {"effort": None, "summary": "auto"}, {"context": "auto"}]),
        "include": st.lists(st.sampled_from(["reasoning.encrypted_content", "message.output_text.logprobs", "x"]), unique=True),
        "metadata": st.dictionaries(_WORDS, _WORDS, max_size=2),
        "store": st.booleans(),
        "user": _WORDS,
        "truncation": st.sampled_from(["auto", "disabled"]),
        "stream": st.booleans(),
        "stream_options": st.just({"include_obfuscation": True}),
        "future_field": _objects(),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(optional))))
    return {
        "model": "m",
        "input": draw(_ITEMS | st.text(min_size=1, max_size=5)),
        "tools": TOOLS,
        **{name: draw(optional[name]) for name in sorted(chosen)},
    }


@given(bodies())
def test_any_request_survives_being_written_and_read_again(body: dict[str, Any]) -> None:
    request = WIRE.decode_request(json.dumps(body).encode())
    assert again(request) == request
