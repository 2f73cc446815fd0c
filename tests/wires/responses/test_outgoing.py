"""Requests to a provider over Responses, from both wires."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import (
    Call,
    Message,
    OpaqueItem,
    OpaquePart,
    Reasoning,
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
from toolrelay.errors import ClientError
from toolrelay.wires.responses import WIRE
from toolrelay.wires.responses.outgoing import UNSUPPORTED

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


def test_empty_text_before_calls_of_another_api_is_left_out() -> None:
    """Chat clients send `content: ""` beside tool_calls."""
    items = (
        Message(role="assistant", content=""),
        Call(id="c1", name="f", arguments="{}"),
        Message(role="assistant", content=""),
    )
    request = Request(wire="openai_chat", model="m", items=items)
    assert [item["type"] for item in written(request)["input"]] == ["function_call", "message"]
    assert len(written(replace(request, wire=WIRE_NAME))["input"]) == 3


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {}},
    {"type": "custom", "name": "c"},
    {"type": "mcp", "server_label": "s"},
]


CHAT = Request(wire="openai_chat", model="m", items=(Message(role="user", content="Hi"),))


def test_minimal_request_is_encoded_minimally() -> None:
    outgoing = WIRE.encode_request(decode(text={}, tools=[{"type": "function", "name": "f", "strict": None}]), Profile())
    assert outgoing.path == "/responses"
    assert outgoing.dropped == ()
    assert json.loads(outgoing.body) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "name": "f", "parameters": None}],
        "store": False,
    }


def test_unknown_fields_pass_on_the_same_wire_and_are_dropped_from_another() -> None:
    extra = {"prompt_cache_retention": "24h", "future": [1]}
    assert written(decode(**extra)).items() >= extra.items()
    outgoing = WIRE.encode_request(_with(CHAT, extra={"prediction": 1, "modalities": ["text"]}), Profile())
    assert outgoing.dropped == ("prediction", "modalities")
    assert "prediction" not in json.loads(outgoing.body)


def test_unknown_members_of_text_and_format_keep_their_level() -> None:
    text = {"format": {"type": "json_object", "shape": 1}, "style": "plain"}
    assert written(decode(text=text))["text"] == text


def test_extra_members_of_another_wire_are_dropped() -> None:
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


def test_chat_function_without_strict_is_sent_as_not_strict() -> None:
    tools = (Tool(name="f", parameters={}), Tool(name="g", parameters={}, strict=True))
    assert [tool["strict"] for tool in written(_with(CHAT, tools=tools))["tools"]] == [False, True]


def test_providers_are_asked_to_store_nothing() -> None:
    assert written(CHAT)["store"] is False
    assert written(_with(CHAT, store=True))["store"] is False
    assert written(decode())["store"] is False
    assert written(decode(store=True))["store"] is False


def test_stream_is_requested_only_if_the_client_streams() -> None:
    assert written(_with(CHAT, stream=True))["stream"] is True
    assert "stream" not in written(CHAT)


def test_chat_settings_are_translated() -> None:
    request = _with(
        CHAT,
        sampling=Sampling(max_output_tokens=5, max_tokens_field="max_tokens", logprobs=True, top_logprobs=3, verbosity="high"),
        output=OutputFormat(type="json_object"),
        reasoning=ReasoningOptions(effort="low"),
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
        ("seed", 0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 1.0),
        ("logit_bias", {"1": 2.0}),
    ],
)
def test_unsupported_sampling_is_dropped_by_name(field: str, value: Any) -> None:
    assert UNSUPPORTED[field] == "dropped"
    outgoing = WIRE.encode_request(_with(CHAT, sampling=Sampling(**{field: value})), Profile())
    assert outgoing.dropped == (field,)
    assert field not in json.loads(outgoing.body)


def test_message_names_are_dropped_and_reported_once() -> None:
    items = (Message(role="user", content="a", name="Ann"), Message(role="user", content="b", name="Bob"))
    outgoing = WIRE.encode_request(_with(CHAT, items=items), Profile())
    assert outgoing.dropped == ("name",)
    assert b"Ann" not in outgoing.body


_RAW: JsonObject = {"type": "strange"}


@pytest.mark.parametrize(
    ("fields", "what", "param"),
    [
        ({"sampling": Sampling(n=2)}, "n", "n"),
        ({"sampling": Sampling(stop=("a",))}, "stop", "stop"),
        ({"sampling": Sampling(stop="a")}, "stop", "stop"),
        (
            {"tools": (OpaqueTool(wire="openai_chat", raw=_RAW),)},
            "a provider's own tools (web_search, file_search, mcp, …)",
            "tools",
        ),
        ({"items": (OpaqueItem(wire="gemini", raw=_RAW),)}, "a provider's own items (web_search_call, …)", "messages"),
        (
            {"items": (Message(role="user", content=(OpaquePart(wire="openai_chat", raw=_RAW),)),)},
            "content parts of unknown type",
            "messages",
        ),
        ({"tool_choice": ToolChoice(raw=_RAW)}, "tool_choice that names a provider's own tool", "tool_choice"),
    ],
)
def test_unsupported_features_that_change_the_meaning_are_refused(fields: dict[str, Any], what: str, param: str) -> None:
    assert UNSUPPORTED[what] == ("emulated" if what == "stop" else "refused")
    with pytest.raises(ClientError) as caught:
        WIRE.encode_request(_with(CHAT, **fields), Profile())
    assert (caught.value.status, caught.value.param) == (400, param)


def test_n_of_one_is_accepted() -> None:
    assert WIRE.encode_request(_with(CHAT, sampling=Sampling(n=1)), Profile()).dropped == ()


@pytest.mark.parametrize("stop", [(), ""])
def test_empty_stop_is_accepted(stop: tuple[str, ...] | str) -> None:
    outgoing = WIRE.encode_request(_with(CHAT, sampling=Sampling(stop=stop)), Profile())
    assert outgoing.dropped == ()
    assert "stop" not in json.loads(outgoing.body)


def test_call_ids_are_shortened_for_mistral() -> None:
    request = decode(input=[CALL, {"type": "function_call_output", "call_id": "c1", "output": "x"}])
    call, output = written(request, Profile(call_ids="nine"))["input"]
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) == 9


def test_item_ids_with_foreign_prefixes_are_left_out() -> None:
    request = decode(
        input=[
            {"type": "message", "role": "assistant", "id": "42", "content": "a"},
            {**CALL, "id": "call_1"},
            {**CALL, "call_id": "c2", "id": "fc_2"},
        ]
    )
    assert [item.get("id") for item in written(request)["input"]] == [None, None, "fc_2"]


def test_reasoning_summary_alone_is_not_sent() -> None:
    items = (Reasoning(summary=("s",)), Reasoning(text=("t",)), Message(role="user", content="Hi"))
    body = written(_with(CHAT, items=items))
    assert [item["type"] for item in body["input"]] == ["reasoning", "message"]
    assert body["input"][0]["content"] == [{"type": "reasoning_text", "text": "t"}]


def test_lone_surrogate_is_replaced() -> None:
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
def test_any_request_survives_encoding_and_decoding(body: dict[str, Any]) -> None:
    request = WIRE.decode_request(json.dumps(body).encode())
    assert again(request) == _with(request, store=False)
