"""`reasoning_details` of OpenRouter: read from streams and whole answers, shown to clients, and sent back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exchange import check_one_end, decode_all, envelope, fold
from toolrelay.core.events import AnswerFailed, CallStarted, StreamEvent
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.core.messages import Call, Item, Message, Reasoning, Result
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.wires.base import discover
from toolrelay.wires.sealed_reasoning import seal

CHAT = discover()["openai_chat"]
OPENROUTER = Profile(reasoning_details=True)
Json = dict[str, Any]
SIGNED = {
    "type": "reasoning.text",
    "text": "I look it up.",
    "signature": "sig",
    "id": None,
    "format": "anthropic-claude-v1",
    "index": 0,
}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "AAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1}
SUMMARY = {"type": "reasoning.summary", "summary": "Looked.", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
OF_CALL = {"type": "reasoning.encrypted", "data": "BBBB", "id": "tool_0", "format": "google-gemini-v1", "index": 0}
CALLED: Json = {"index": 0, "id": "tool_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chunks(*deltas: Json, finish: str = "stop") -> bytes:
    choices = [*({"index": 0, "delta": delta} for delta in deltas), {"index": 0, "delta": {}, "finish_reason": finish}]
    return b"".join(b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode() for choice in choices) + b"data: [DONE]\n\n"


def anthropic_stream() -> bytes:
    """Text in pieces, and its signature alone, as OpenRouter sends what Claude thinks."""
    common = {"format": "anthropic-claude-v1", "index": 0, "type": "reasoning.text"}
    return chunks(
        {"role": "assistant", "content": "", "reasoning": "I look", "reasoning_details": [{**common, "text": "I look"}]},
        {"content": "", "reasoning": " it up.", "reasoning_details": [{**common, "text": " it up."}]},
        {"content": "", "reasoning": None, "reasoning_details": [{**common, "signature": "sig", "id": None}]},
        {"content": "Done.", "reasoning": None, "reasoning_details": []},
        {"content": " Yes."},
    )


def items_of(events: list[StreamEvent]) -> list[Item]:
    return [item for item in fold(events).items if isinstance(item, Message | Call | Reasoning)]


def sent_back(*items: Item, profile: Profile = OPENROUTER) -> list[Json]:
    request = Request(wire="openai_responses", model="m", items=(Message(role="user", content="Hi"), *items))
    messages: list[Json] = json.loads(CHAT.encode_request(request, profile).body)["messages"]
    return messages[1:]


def test_streamed_details_are_joined_and_sent_back_as_they_were() -> None:
    items = items_of(decode_all(CHAT, anthropic_stream()))
    assert [type(item).__name__ for item in items] == ["Reasoning", "Message"]
    assert isinstance(items[0], Reasoning)
    assert items[0].text == ("I look it up.",)
    assert sent_back(*items) == [
        {"role": "assistant", "content": [{"type": "text", "text": "Done. Yes."}], "reasoning_details": [SIGNED]}
    ]


def test_whole_answer_has_the_same_details() -> None:
    message = {"role": "assistant", "content": "Done. Yes.", "reasoning": "I look it up.", "reasoning_details": [SIGNED]}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    assert sent_back(*items_of(CHAT.decode_answer(whole))) == sent_back(*items_of(decode_all(CHAT, anthropic_stream())))


def test_details_without_reasoning_are_its_text() -> None:
    items = items_of(decode_all(CHAT, chunks({"reasoning_details": [SUMMARY, ENCRYPTED]}, {"content": "So."})))
    assert isinstance(items[0], Reasoning)
    assert items[0].text == ("Looked.",)
    assert sent_back(*items)[0]["reasoning_details"] == [SUMMARY, ENCRYPTED]


def test_text_of_details_after_plain_reasoning_is_not_shown_again() -> None:
    """As a gateway sends it, which streams the reasoning first."""
    stream = chunks({"reasoning_content": "I look it up."}, {"content": "Done."}, {"reasoning_details": [SIGNED]})
    texts = [item.text for item in items_of(decode_all(CHAT, stream)) if isinstance(item, Reasoning)]
    assert texts == [("I look it up.",), ()]


@pytest.mark.parametrize(
    "deltas",
    [
        ({"reasoning_details": [OF_CALL], "tool_calls": [CALLED]},),
        ({"tool_calls": [CALLED]}, {"reasoning_details": [OF_CALL]}),
        ({"content": "I look."}, {"tool_calls": [CALLED]}, {"reasoning_details": [OF_CALL], "content": ""}),
    ],
    ids=["with the call", "after the call", "after text and call"],
)
def test_detail_of_a_call_gets_the_gateways_id(deltas: tuple[Json, ...]) -> None:
    events = decode_all(CHAT, chunks(*deltas, finish="tool_calls"))
    items = [Call(id="call_ours", name=i.name, arguments="{}") if isinstance(i, Call) else i for i in items_of(events)]
    message, result = sent_back(*items, Result(call_id="call_ours", output="r"))
    assert message["reasoning_details"] == [OF_CALL | {"id": "call_ours"}]
    assert [call["id"] for call in message["tool_calls"]] == ["call_ours"]
    assert result["tool_call_id"] == "call_ours"


def test_detail_of_a_call_that_is_gone_is_left_out() -> None:
    items = items_of(decode_all(CHAT, chunks({"reasoning_details": [SIGNED, OF_CALL], "tool_calls": [CALLED]})))
    [message] = sent_back(*(item for item in items if not isinstance(item, Call)))
    assert message["reasoning_details"] == [SIGNED]


@pytest.mark.parametrize(("form", "count"), [("anthropic-claude-v1", 0), ("google-gemini-v1", 0), ("unknown", 1), (None, 1)])
def test_text_without_the_signature_that_its_provider_wants_is_left_out(form: str | None, count: int) -> None:
    detail = {"type": "reasoning.text", "text": "Hm.", "format": form}
    [message] = sent_back(*items_of(decode_all(CHAT, chunks({"reasoning_details": [detail]}, {"content": "So."}))))
    assert len(message["reasoning_details"]) == count


def test_other_servers_get_the_text_alone() -> None:
    items = items_of(decode_all(CHAT, anthropic_stream()))
    [message] = sent_back(*items, profile=Profile())
    assert ("reasoning_details" in message, message["reasoning_content"]) == (False, "I look it up.")


def test_chat_clients_get_details_with_the_ids_of_their_calls() -> None:
    events = decode_all(CHAT, chunks({"reasoning_details": [SIGNED, OF_CALL], "tool_calls": [CALLED]}, finish="tool_calls"))
    named = [CallStarted(event.index, event.name, "call_ours") if isinstance(event, CallStarted) else event for event in events]
    request = Request(wire="openai_chat", model="m", items=(), stream=True)
    streamed = CHAT.encoder(envelope(request)).encode(named)
    frames = [json.loads(line[6:]) for line in streamed.split(b"\n\n") if line.startswith(b"data: {")]
    deltas = [frame["choices"][0]["delta"] for frame in frames]
    whole = json.loads(CHAT.encode_answer(fold(named), envelope(request)))["choices"][0]["message"]
    expected = [SIGNED, OF_CALL | {"id": "call_ours"}]
    assert [delta["reasoning_details"] for delta in deltas if "reasoning_details" in delta] == [expected]
    assert whole["reasoning_details"] == expected


def test_clients_echo_is_sent_once() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "So.", "reasoning_content": "I look it up.", "reasoning_details": [SIGNED]},
            {"role": "user", "content": "And?"},
        ],
    }
    request = CHAT.decode_request(json.dumps(body).encode())
    message = json.loads(CHAT.encode_request(request, OPENROUTER).body)["messages"][1]
    assert (message["reasoning_details"], "reasoning_content" in message) == ([SIGNED], False)


@pytest.mark.parametrize("sealed", ["no json", "{}", '[3, "a"]', "[[]]", '[{"toolrelay_call": "x"}]', '[{"a": "\\ud800"}]'])
def test_changed_seal_does_no_harm(sealed: str) -> None:
    reasoning = Reasoning(text=("Hm.",), encrypted=seal("openai_chat", sealed))
    assert sent_back(reasoning, Message(role="assistant", content="So."))[0]["content"] == "So."


@pytest.mark.parametrize("details", [3, "a", {"a": 1}, [None, 3, "a", []], [{}], [{"type": 3, "text": 4, "index": "x", "id": 5}]])
def test_odd_details_do_no_harm(details: Any) -> None:
    answer = fold(decode_all(CHAT, chunks({"reasoning_details": details}, {"content": "So."}, {"reasoning_details": details})))
    assert (answer.error, answer.finish) == (None, "stop")


def test_too_many_details_are_a_failure() -> None:
    stream = chunks({"reasoning_details": [ENCRYPTED] * (MAX_INDEXES + 1)})
    assert isinstance(check_one_end(decode_all(CHAT, stream)), AnswerFailed)
