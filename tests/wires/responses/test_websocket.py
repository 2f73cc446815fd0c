"""Messages over a WebSocket: the same events as a stream, and requests that continue what the connection keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.errors import BackendError, ClientError
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.request import decode_request
from toolrelay.wires.responses.websocket import KeptResponse, MessageEncoder, decode_message, encode_body, keep

ANSWER: list[StreamEvent] = [
    AnswerStarted(),
    ReasoningDelta("Hm", "text", 0),
    TextDelta("Hello"),
    TextDelta(" \ud83d"),
    CallStarted(0, "f", "call_1", "function", 0, None, None),
    ArgumentsDelta(0, '{"a":'),
    ArgumentsDelta(0, "1}"),
]


def envelope(**members: Any) -> Envelope:
    body = {"model": "m", "input": "Hi", "store": False, "stream": True, **members}
    return Envelope(token="0" * 20, created=1, model="m", request=decode_request(json.dumps(body).encode()))


def create(**members: Any) -> bytes:
    return json.dumps({"type": "response.create", "model": "m", "input": "Hi", **members}).encode()


def line_break(_size: int) -> bytes:
    """Separate messages for the test, instead of the head of a frame."""
    return b"\n"


def messages(encoder: MessageEncoder, events: list[StreamEvent]) -> list[Any]:
    return [json.loads(line) for line in (encoder.encode(events) + encoder.keep_alive()).split(b"\n") if line]


@pytest.mark.parametrize("lane", [None, "a.b"])
@pytest.mark.parametrize("last", [AnswerFinished(finish="stop"), AnswerFailed(BackendError("gone"))])
def test_messages_are_the_events_of_a_stream_without_error(lane: str | None, last: StreamEvent) -> None:
    events = [*ANSWER, CallFinished(0), last]
    streamed = ResponsesEncoder(envelope()).encode(events).split(b"\n")
    expected = [json.loads(line[6:]) for line in streamed if line.startswith(b"data: {")]
    expected = [event for event in expected if event["type"] != "error"]
    for number, event in enumerate(expected):
        event["sequence_number"] = number
        if lane is not None:
            event["stream_id"] = lane
    assert messages(MessageEncoder(envelope(), line_break, lane, None), events) == expected


def test_kept_response_is_continued_with_its_items() -> None:
    first = decode_message(create())
    encoder = MessageEncoder(envelope(), line_break, None, None)
    encoder.encode([*ANSWER, CallFinished(0), AnswerFinished(finish="calls")])
    kept = keep(first, None, encoder)
    assert kept is not None
    following = decode_message(create(input=[{"role": "user", "content": "More"}], previous_response_id=kept.id))
    body = json.loads(encode_body(following, kept))
    kinds = [item.get("type", item.get("role")) for item in body["input"]]
    assert kinds == ["user", "reasoning", "message", "function_call", "user"]
    assert body.keys() == {"model", "input", "stream"}


def test_call_that_was_cut_off_is_not_kept() -> None:
    encoder = MessageEncoder(envelope(), line_break, None, None)
    encoder.encode([*ANSWER, AnswerFinished(finish="length")])
    kept = keep(decode_message(create()), None, encoder)
    assert kept is not None
    assert b"function_call" not in kept.items


@pytest.mark.parametrize("members", [{"store": True}, {"conversation": "conv_1"}])
def test_response_that_is_kept_elsewhere_is_not_kept(members: dict[str, Any]) -> None:
    encoder = MessageEncoder(envelope(**members), line_break, None, None)
    encoder.encode([TextDelta("Hi"), AnswerFinished(finish="stop")])
    assert keep(decode_message(create()), None, encoder) is None


def test_stored_response_before_a_kept_one_is_still_named() -> None:
    kept = KeptResponse(id="resp_2", items=b'{"role":"user","content":"Two"}', previous="resp_1")
    body = json.loads(encode_body(decode_message(create(previous_response_id="resp_2")), kept))
    assert (body["previous_response_id"], len(body["input"])) == ("resp_1", 2)


def test_input_that_is_no_list_of_items_is_refused() -> None:
    kept = KeptResponse(id="resp_2", items=b"")
    with pytest.raises(ClientError, match="'input' must be"):
        encode_body(decode_message(create(input=7, previous_response_id="resp_2")), kept)
