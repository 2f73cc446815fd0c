"""Requests to a provider over Chat, from both wires and with every profile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.strategies import chat_bodies
from toolrelay.core.identity import shorten_id
from toolrelay.core.messages import (
    Call,
    Content,
    File,
    Image,
    Item,
    Message,
    OpaqueItem,
    OpaquePart,
    Reasoning,
    Refusal,
    Result,
    Text,
)
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OpaqueTool, OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.base import OutgoingRequest
from toolrelay.wires.chat import WIRE
from toolrelay.wires.chat.outgoing import UNSUPPORTED

FULL = Profile(developer_role=True)
USER = Message(role="user", content="hi")


def outgoing(*items: Item, profile: Profile = FULL, wire: str = "openai_chat", **members: Any) -> OutgoingRequest:
    return WIRE.encode_request(Request(wire=wire, model="m", items=items or (USER,), **members), profile)


def body(*items: Item, **members: Any) -> Any:
    return json.loads(outgoing(*items, **members).body)


def messages(*items: Item, **members: Any) -> Any:
    return body(*items, **members)["messages"]


def relayed(raw: dict[str, Any], profile: Profile = FULL) -> Any:
    return json.loads(WIRE.encode_request(WIRE.decode_request(json.dumps(raw).encode()), profile).body)


# The same wire on both sides


@given(chat_bodies())
def test_chat_request_is_sent_unchanged(raw: dict[str, Any]) -> None:
    assert relayed(raw) == raw


@given(chat_bodies())
def test_decoding_an_encoded_request_gives_the_same_request_and_bytes(raw: dict[str, Any]) -> None:
    request = WIRE.decode_request(json.dumps(raw).encode())
    written = WIRE.encode_request(request, FULL)
    assert written.dropped == ()
    assert WIRE.decode_request(written.body) == request
    assert WIRE.encode_request(WIRE.decode_request(written.body), FULL) == written


def test_numbers_keep_their_form() -> None:
    written = outgoing(sampling=Sampling(temperature=1, top_p=1.0, logit_bias={"5": -100})).body
    assert b'"temperature":1,' in written
    assert b'"top_p":1.0,' in written
    assert b'"logit_bias":{"5":-100}' in written


def test_legacy_functions_are_sent_as_tools() -> None:
    out = relayed(
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "ok"},
            ],
            "functions": [{"name": "f", "parameters": {}}],
            "function_call": {"name": "f"},
        }
    )
    assert out["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert out["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert "functions" not in out
    _, assistant, result = out["messages"]
    assert assistant["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert result["tool_call_id"] == assistant["tool_calls"][0]["id"]
    assert result["role"] == "tool"


def test_null_strict_is_not_sent() -> None:
    tool = {"type": "function", "function": {"name": "f", "strict": None, "parameters": {}}}
    out = relayed({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [tool]})
    assert out["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_flat_tools_are_nested() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}, "x": 1}
    out = relayed({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [tool]})
    assert out["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {}}, "x": 1}]


@pytest.mark.parametrize("without", [{}, {"tools": []}])
def test_tool_choice_without_tools_is_not_sent(without: dict[str, Any]) -> None:
    raw = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        **without,
    }
    assert set(relayed(raw)) == {"model", "messages"}


def test_stream_options_are_not_sent_without_stream() -> None:
    raw = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream_options": {"include_obfuscation": False}}
    assert "stream_options" not in relayed(raw)


# The conversation


def test_reasoning_text_and_calls_of_the_assistant_are_one_message() -> None:
    assert messages(
        Reasoning(text=("hm", "so")),
        Message(role="assistant", content="let me see"),
        Call(id="a", name="f", arguments="{}"),
        Call(id="b", name="c", arguments="x", kind="custom"),
        Result(call_id="a", output="1"),
        Result(call_id="b", output="2", kind="custom"),
    ) == [
        {
            "role": "assistant",
            "content": "let me see",
            "reasoning_content": "hm\n\nso",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "custom", "custom": {"name": "c", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]


def test_calls_without_text_have_null_content() -> None:
    (message,) = messages(Call(id="a", name="f", arguments="{}"))
    assert message["content"] is None


def test_consecutive_messages_are_not_merged() -> None:
    contents: list[Content] = ["a", "b", (Refusal(text="c"),), "d"]
    sent = messages(*(Message(role="assistant", content=content) for content in contents))
    assert [message["content"] for message in sent] == ["a", "b", None, "d"]


def test_results_are_moved_behind_their_calls() -> None:  # bug 30
    """Responses allows messages between a call and its result. Chat does not."""
    sent = messages(
        Call(id="a", name="f", arguments="{}"),
        Call(id="b", name="f", arguments="{}"),
        Message(role="assistant", content="one moment"),
        Result(call_id="b", output="2"),
        USER,
        Result(call_id="a", output="1"),
    )
    assert [(message["role"], message.get("tool_call_id")) for message in sent] == [
        ("assistant", None),
        ("tool", "b"),
        ("tool", "a"),
        ("assistant", None),
        ("user", None),
    ]


def test_result_belongs_to_the_latest_call_with_its_id() -> None:  # bug 29
    sent = messages(
        Call(id="a", name="f", arguments="{}"),
        Result(call_id="a", output="1"),
        USER,
        Call(id="a", name="f", arguments="{}"),
        USER,
        Result(call_id="a", output="2"),
    )
    assert [message["content"] for message in sent] == [None, "1", "hi", None, "2", "hi"]


def test_encrypted_reasoning_is_dropped_by_name() -> None:  # bug 31
    out = outgoing(Reasoning(encrypted="xyz"), USER, Reasoning(summary=("s",)), Call(id="a", name="f", arguments="{}"))
    assert [message["role"] for message in json.loads(out.body)["messages"]] == ["user", "assistant"]
    assert out.dropped == ("reasoning items that are summarised or sealed",)


def test_instructions_are_the_first_message() -> None:
    assert messages(USER, instructions="be brief")[0] == {"role": "developer", "content": "be brief"}


def test_empty_arguments_become_an_empty_object() -> None:  # bug 22
    (message,) = messages(Call(id="a", name="f", arguments=""))
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"
    (message,) = messages(Call(id="a", name="c", arguments="", kind="custom"))
    assert message["tool_calls"][0]["custom"]["input"] == ""


def test_arguments_are_not_reserialized() -> None:  # bug 21
    (message,) = messages(Call(id="a", name="f", arguments='{ "a" : 1.0 }'))
    assert message["tool_calls"][0]["function"]["arguments"] == '{ "a" : 1.0 }'


def test_content_parts_in_results_stay_an_array() -> None:  # bug 34
    *_, result = messages(
        Call(id="a", name="f", arguments="{}"), Result(call_id="a", output=(Text(text="x"), Image(url="u", detail="low")))
    )
    assert result["content"] == [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
    ]


def test_refusal_with_extra_members_stays_a_part() -> None:
    (message,) = messages(Message(role="assistant", content=(Refusal(text="no", extra={"x": 1}),)))
    assert message["content"] == [{"type": "refusal", "refusal": "no", "x": 1}]


# Profiles


def test_developer_role_becomes_system_if_unsupported() -> None:
    sent = messages(Message(role="developer", content="d"), USER, instructions="i", profile=Profile(developer_role=False))
    assert [message["role"] for message in sent] == ["system", "system", "user"]


@pytest.mark.parametrize(
    ("profile", "sent", "written"),
    [
        (None, "max_tokens", "max_tokens"),
        (None, "max_completion_tokens", "max_completion_tokens"),
        (None, None, "max_tokens"),
        ("max_tokens", "max_completion_tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens", "max_completion_tokens"),
        ("max_completion_tokens", None, "max_completion_tokens"),
    ],
)
def test_token_limit_uses_the_field_of_provider_or_client(profile: Any, sent: Any, written: str) -> None:
    out = body(sampling=Sampling(max_output_tokens=5, max_tokens_field=sent), profile=Profile(max_tokens_field=profile))
    assert {key: value for key, value in out.items() if key.startswith("max_")} == {written: 5}


def test_nine_character_ids_match_between_call_and_result() -> None:
    history = (Call(id="call_123456789", name="f", arguments="{}"), Result(call_id="call_123456789", output="x"))
    call, result = messages(*history, profile=Profile(call_ids="nine"))
    identifier = call["tool_calls"][0]["id"]
    assert identifier == result["tool_call_id"] == shorten_id("call_123456789")
    assert len(identifier) == 9
    assert identifier.isalnum()
    assert messages(*history, profile=Profile(call_ids="nine")) == [call, result]


def test_ids_of_nine_characters_are_unchanged() -> None:
    (call,) = messages(Call(id="abcDEF123", name="f", arguments="{}"), profile=Profile(call_ids="nine"))
    assert call["tool_calls"][0]["id"] == "abcDEF123"


def test_usage_is_requested_only_if_the_profile_allows() -> None:
    assert body(stream=True)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body(stream=True, profile=Profile(stream_usage=False))
    assert not {"stream", "stream_options"} & set(body(stream=False))


# From another wire


def other(*items: Item, **members: Any) -> OutgoingRequest:
    return outgoing(*items, wire="another_wire", **members)


def test_harmless_unsupported_fields_are_dropped_by_name() -> None:
    out = other(
        Message(role="assistant", content="x", phase="commentary"),
        include=("reasoning.encrypted_content", "message.output_text.logprobs"),
        max_tool_calls=3,
        truncation="auto",
        reasoning=ReasoningOptions(effort="low", summary="auto"),
        extra={"background": True},
        store=True,
    )
    assert set(out.dropped) == {
        "message phase",
        "include",
        "max_tool_calls",
        "truncation: auto",
        "reasoning.summary",
        "background",
    }
    assert set(json.loads(out.body)) == {"model", "messages", "reasoning_effort"}


def test_extra_members_of_another_wire_are_dropped() -> None:
    out = other(
        Message(role="user", content=(Text(text="x", extra={"a": 1}),), extra={"b": 2}, id="msg_1"),
        Call(id="a", name="f", arguments="{}", extra={"c": 3}, item_id="fc_1"),
        Result(call_id="a", output="x", extra={"d": 4}),
        tools=(Tool(name="f", extra={"e": 5}),),
    )
    assert json.loads(out.body) == {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "x"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }


@pytest.mark.parametrize(
    "request_",
    [
        Request(wire="o", model="m", items=(OpaqueItem(wire="o", raw={"type": "web_search_call"}),)),
        Request(wire="o", model="m", items=(Message(role="user", content=(Image(file_id="file-1"),)),)),
        Request(wire="o", model="m", items=(Message(role="user", content=(File(url="u"),)),)),
        Request(wire="o", model="m", items=(Message(role="user", content=(OpaquePart(wire="o", raw={"type": "x"}),)),)),
        Request(wire="o", model="m", items=(USER,), tools=(OpaqueTool(wire="o", raw={"type": "web_search"}),)),
        Request(wire="o", model="m", items=(USER,), tools=(Tool(name="f"),), tool_choice=ToolChoice(raw={"type": "web_search"})),
    ],
)
def test_unsupported_features_that_change_the_meaning_are_refused(request_: Request) -> None:
    with pytest.raises(ClientError) as caught:
        WIRE.encode_request(request_, FULL)
    assert (caught.value.status, caught.value.code) == (400, "unsupported_by_upstream")
    assert caught.value.param


def test_json_schema_is_sent_as_response_format() -> None:
    wanted = OutputFormat(type="json_schema", name="n", schema={"type": "object"}, strict=True)
    assert body(output=wanted)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }


def test_unsupported_table_has_only_dropped_and_refused() -> None:
    assert set(UNSUPPORTED.values()) == {"dropped", "refused"}


def test_encoding_does_not_change_the_request() -> None:
    request = Request(wire="openai_chat", model="m", items=(USER,), stream=True, extra={"stream_options": {"a": 1}})
    before = replace(request)
    WIRE.encode_request(request, FULL)
    assert request == before
    assert request.extra == {"stream_options": {"a": 1}}
