"""Anthropic Messages, providers' answers that differ from Anthropic's own, and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.exchange import check_one_end, decode_all, envelope, fold
from toolrelay.core.assembly import Answer
from toolrelay.core.events import AnswerFailed, AnswerFinished, CallFinished, StreamEvent, Usage
from toolrelay.core.messages import Call, Message, Reasoning, Text
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ClientError
from toolrelay.wires.anthropic.thinking import foreign_signature, own_block, seal_block
from toolrelay.wires.base import discover

WIRE = discover()["anthropic_messages"]
START = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def ending(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3, **usage}}


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def decode(*values: Any) -> list[StreamEvent]:
    return decode_all(WIRE, *(b"event: x\ndata: " + json.dumps(value).encode() + b"\n\n" for value in values))


def text_of(events: list[StreamEvent]) -> str:
    items = fold(events).items
    return "".join(part.text for item in items if isinstance(item, Message) for part in item.content if isinstance(part, Text))


CALL = begin(0, type="tool_use", id="t", name="f", input={})


def calls_of(events: list[StreamEvent]) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in fold(events).calls]


@pytest.mark.parametrize(
    ("frames", "arguments"),
    [
        ([CALL, delta(0, "input_json_delta", partial_json=""), end(0)], "{}"),
        ([CALL, end(0)], "{}"),
        ([CALL], "{}"),
        ([begin(0, type="tool_use", name="f", input={"a": 1}), end(0)], '{"a":1}'),
        (
            [CALL, delta(0, "input_json_delta", partial_json='{"a": '), delta(0, "input_json_delta", partial_json="1}")],
            '{"a": 1}',
        ),
        ([CALL, delta(0, "input_json_delta", partial_json='{"a"'), end(0)], '{"a"'),
    ],
)
def test_call_is_finished_with_its_arguments(frames: list[Any], arguments: str) -> None:
    events = decode(START, *frames, ending("tool_use"), STOP)
    assert calls_of(events) == [("f", arguments)]
    assert fold(events).finish == "calls"


@pytest.mark.parametrize("piece", ["", '{"a"'])
@pytest.mark.parametrize("reason", ["tool_use", "max_tokens"])
def test_call_that_another_block_follows_was_not_truncated(piece: str, reason: str) -> None:
    """Clients take calls in the order of their ends."""
    first = [CALL, delta(0, "input_json_delta", partial_json=piece), end(0)]
    second = [begin(1, type="tool_use", name="g", input={}), delta(1, "input_json_delta", partial_json="{}"), end(1)]
    events = decode(START, *first, *second, ending(reason), STOP)
    assert [event.index for event in events if isinstance(event, CallFinished)] == [0, 1]
    assert calls_of(events) == [("f", piece or "{}"), ("g", "{}")]


@pytest.mark.parametrize("pieces", [[], ['{"a"']])
def test_truncated_call_is_no_call(pieces: list[str]) -> None:
    deltas = [delta(0, "input_json_delta", partial_json=piece) for piece in pieces]
    events = decode(START, CALL, *deltas, end(0), ending("max_tokens"), STOP)
    assert calls_of(events) == []
    assert fold(events).finish == "length"


def test_blocks_side_by_side_are_told_apart_by_their_index() -> None:
    second = begin(1, type="tool_use", name="g", input={})
    mixed = [delta(index, "input_json_delta", partial_json=piece) for piece in ('{"a":', "1}") for index in (1, 0)]
    assert calls_of(decode(START, CALL, second, *mixed, end(1), end(0), ending("end_turn"), STOP)) == [
        ("f", '{"a":1}'),
        ("g", '{"a":1}'),
    ]


def test_surrogate_pair_split_over_deltas_is_joined() -> None:
    pair = [delta(0, "text_delta", text=half) for half in ("\ud83d", "\ude00", "x\ud83d")]
    assert text_of(decode(START, begin(0, type="text", text=""), *pair, end(0), ending(), STOP)) == "😀x\ufffd"


def test_events_of_later_versions_are_ignored() -> None:
    later = [{"type": "usage_update", "delta": "odd"}, {"type": "ping"}, delta(0, "later_delta", later=1)]
    events = decode(START, begin(0, type="text", text="Hi"), *later, end(0), ending(), STOP)
    assert text_of(events) == "Hi"


def test_missing_beginnings_and_ends_of_blocks_are_tolerated() -> None:
    events = decode(
        delta(0, "text_delta", text="a"), begin(0, type="text", text="b"), delta(0, "text_delta", text="c"), ending(), STOP
    )
    assert text_of(events) == "abc"


def test_caches_are_part_of_the_input() -> None:
    usage: dict[str, Any] = {"input_tokens": 7, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100}
    last = check_one_end(decode(START, ending(**usage, output_tokens_details={"thinking_tokens": 2}), STOP))
    assert isinstance(last, AnswerFinished)
    assert last.usage == Usage(input=127, output=3, cached=100, cache_written=20, reasoning=2)


@pytest.mark.parametrize("odd", [-1, 1e300, "7", True, None, [], {}])
def test_odd_usage_does_no_harm(odd: Any) -> None:
    last = check_one_end(decode(START, ending(input_tokens=odd, cache_read_input_tokens=odd), STOP))
    assert isinstance(last, AnswerFinished)
    assert last.usage is not None
    assert last.usage.input >= 0


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("overloaded_error", 529, "overloaded"),
        ("rate_limit_error", 429, None),
        ("invalid_request_error", 400, None),
        ("api_error", 502, None),
        ("authentication_error", 502, "upstream_auth"),
        ("later_error", 502, None),
    ],
)
def test_error_event_ends_the_answer(kind: str, status: int, code: str | None) -> None:
    last = check_one_end(decode(START, {"type": "error", "error": {"type": kind, "message": "No."}}, STOP))
    assert isinstance(last, AnswerFailed)
    assert last.error.status == status
    if code is not None:
        assert last.error.code == code


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "a web page": b"<html>No.</html>",
    "an answer of another API": b'{"id": "x", "object": "chat.completion", "choices": []}',
    "half an answer": b'{"type": "message", "content": [{"type": "te',
    "content that is no list": b'{"type": "message", "content": "Hi"}',
    "a block that is no object": b'{"type": "message", "content": [1]}',
    "a call without name": b'{"type": "message", "content": [{"type": "tool_use", "input": {}}]}',
    "nested too deeply": b'{"type": "message", "content": [' + b"[" * 300 + b"]" * 300 + b"]}",
    "a number that is too large": b'{"type": "message", "content": [{"type": "server_tool_use", "input": {"n": 1e400}}]}',
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_broken_whole_answer_is_a_failure(body: bytes) -> None:
    last = check_one_end(WIRE.decode_answer(body))
    assert isinstance(last, AnswerFailed)
    assert last.error.code == "upstream_invalid"


def test_error_with_status_200_is_that_error() -> None:
    body = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    last = check_one_end(WIRE.decode_answer(body))
    assert isinstance(last, AnswerFailed)
    assert (last.error.status, last.error.message) == (529, "Overloaded")


def test_numbers_in_a_call_of_a_whole_answer_may_be_of_any_size() -> None:
    body = (
        b'{"type": "message", "content": [{"type": "tool_use", "name": "f", "input": {"n": 1e400}}], "stop_reason": "tool_use"}'
    )
    (called,) = fold(WIRE.decode_answer(body)).items
    assert isinstance(called, Call)
    assert called.arguments == '{"n": 1e400}'


def test_lone_surrogates_of_a_whole_answer_are_replaced() -> None:
    body = b'{"type": "message", "content": [{"type": "text", "text": "\\ud83d!"}], "stop_reason": "end_turn"}'
    assert text_of(WIRE.decode_answer(body)) == "\ufffd!"


def test_errors_have_anthropics_types() -> None:
    kinds = {
        status: json.loads(WIRE.encode_error(ClientError("No.", status=status)))["error"]["type"]
        for status in (400, 401, 403, 404, 413, 418, 422, 429, 500, 502, 503, 504, 529)
    }
    assert kinds == {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        418: "invalid_request_error",
        422: "invalid_request_error",
        429: "rate_limit_error",
        500: "api_error",
        502: "api_error",
        503: "overloaded_error",
        504: "timeout_error",
        529: "overloaded_error",
    }


def test_code_of_a_providers_details_is_kept() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "No.", "details": details}}
    error = WIRE.decode_error(429, json.dumps(body).encode())
    assert (error.status, error.code) == (429, "enforced_spend_limit_reached")


def test_key_in_an_authentication_error_is_not_repeated() -> None:
    error = WIRE.decode_error(401, b'{"error": {"type": "authentication_error", "message": "invalid x-api-key sk-1"}}')
    assert isinstance(error, BackendError)
    assert "sk-1" not in error.message


# Reasoning of other wires


def test_reasoning_that_another_wire_encrypted_comes_back_to_it() -> None:
    shown = Reasoning(id="rs_1", summary=("Hm.",), encrypted="gAAAA")
    asked = envelope(Request(wire=WIRE.name, model="m", items=()))
    (block,) = json.loads(WIRE.encode_answer(Answer(items=(shown,)), asked))["content"]
    assert block == {"type": "thinking", "thinking": "Hm.", "signature": foreign_signature("rs_1", "gAAAA")}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [block]}]
    request = WIRE.decode_request(json.dumps({"model": "m", "max_tokens": 1, "messages": messages}).encode())
    assert request.items[1] == shown


def test_own_blocks_are_recognised() -> None:
    assert own_block(seal_block("thinking", "a:b")) == ("thinking", "a:b")
    assert own_block(seal_block("redacted_thinking", "")) == ("redacted_thinking", "")
    assert own_block("gAAAA") is None
    assert own_block(foreign_signature(None, "x")) is None
