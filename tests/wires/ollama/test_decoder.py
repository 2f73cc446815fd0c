"""Ollama's answers: lines of JSON into stream events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.exchange import check_one_end, decode_all, fold
from toolrelay.core.events import AnswerFailed, AnswerFinished, ReasoningDelta, StreamEvent, TextDelta, Usage
from toolrelay.core.indexes import MAX_INDEXES
from toolrelay.wires import sse
from toolrelay.wires.base import discover_provider_wires
from toolrelay.wires.lines import LineSplitter

WIRE = discover_provider_wires()["ollama"]
STREAMS = Path(__file__).parent / "streams"
DONE = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def said(**message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": False}


def calling(arguments: Any, name: str | None = "f") -> dict[str, Any]:
    return said(tool_calls=[{"function": {"name": name, "arguments": arguments}}])


def failure(events: list[StreamEvent]) -> AnswerFailed:
    last = check_one_end(events)
    assert isinstance(last, AnswerFailed)
    return last


def test_recorded_stream_has_thinking_text_calls_and_usage() -> None:
    answer = fold(decode_all(WIRE, (STREAMS / "calls.ndjson").read_bytes()))
    assert [type(item).__name__ for item in answer.items] == ["Reasoning", "Message", "Call", "Call"]
    assert answer.started.model == "qwen3"
    assert (answer.finish, answer.usage) == ("calls", Usage(input=169, output=15))
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("get_weather", '{"city": "Tokyo", "days": 1.0}'),  # the model's own text
        ("get_time", "{}"),
    ]


def test_whole_answer_equals_its_folded_stream() -> None:
    *parts, last = [json.loads(line) for line in (STREAMS / "calls.ndjson").read_bytes().splitlines()]
    messages = [part["message"] for part in parts]
    whole = last | {
        "message": {
            "role": "assistant",
            "content": "".join(message["content"] for message in messages),
            "thinking": "".join(message.get("thinking", "") for message in messages),
            "tool_calls": [call for message in messages for call in message.get("tool_calls", ())],
        }
    }
    answer = fold(WIRE.decode_answer(json.dumps(whole).encode()))
    assert answer == fold(decode_all(WIRE, (STREAMS / "calls.ndjson").read_bytes()))


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), ("load", "stop"), (None, "stop")])
def test_done_reason_is_the_finish(reason: str | None, finish: str) -> None:
    last = check_one_end(decode_all(WIRE, lines(said(content="a"), {**DONE, "done_reason": reason})))
    assert isinstance(last, AnswerFinished)
    assert (last.finish, last.usage) == (finish, None)


def test_last_line_needs_no_end() -> None:
    assert isinstance(check_one_end(decode_all(WIRE, lines(said(content="a"), DONE)[:-1])), AnswerFinished)


@pytest.mark.parametrize("arguments", [None, "", "{}"])
def test_call_without_arguments_has_an_empty_object(arguments: Any) -> None:
    assert fold(decode_all(WIRE, lines(calling(arguments), DONE))).calls[0].arguments == "{}"


def test_arguments_as_a_string_are_taken_as_they_are() -> None:
    assert fold(decode_all(WIRE, lines(calling('{"a": 1}'), DONE))).calls[0].arguments == '{"a": 1}'


def test_logprobs_come_with_their_text() -> None:
    entry: dict[str, Any] = {"token": "a", "logprob": -0.5, "top_logprobs": []}
    events = decode_all(WIRE, lines(said(content="a") | {"logprobs": [entry]}, DONE))
    assert TextDelta("a", 0, [entry]) in events


def test_error_in_mid_stream_ends_the_answer() -> None:
    events = decode_all(WIRE, lines(said(content="a"), {"error": "an error was encountered while running the model: EOF"}, DONE))
    assert failure(events).error.message == "an error was encountered while running the model: EOF"


def test_error_with_status_keeps_its_message() -> None:
    error = WIRE.decode_error(404, b'{"error":"model \'x\' not found"}')
    assert (error.status, error.message) == (404, "model 'x' not found")


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (lines(said(content="a")), "upstream_cut"),
        (b"", "upstream_cut"),
        (b"data: {}\n", "upstream_invalid"),
        (lines({"message": 3}), "upstream_invalid"),
        (lines(calling({}, name=None)), "upstream_invalid"),
        (lines(*[calling({})] * (MAX_INDEXES + 1)), "upstream_invalid"),
        (b'{"message":{"content":"a"},"x":' + b"[" * 300 + b"]" * 300 + b"}\n", "upstream_invalid"),
    ],
    ids=["cut", "empty", "sse", "type", "nameless", "many", "deep"],
)
def test_unreadable_stream_is_a_failure(stream: bytes, code: str) -> None:
    assert failure(decode_all(WIRE, stream)).error.code == code


def test_line_that_is_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.wires.lines.MAX_FRAME", 100)
    assert sse.MAX_FRAME > 100
    assert "too large" in failure(decode_all(WIRE, lines(said(content="a" * 200)))).error.message


def test_lone_surrogates_and_invalid_bytes_are_replaced() -> None:
    stream = b'{"message":{"content":"a\\ud800b"}}\n{"message":{"thinking":"\xff"}}\n' + lines(DONE)
    events = decode_all(WIRE, stream)
    assert (TextDelta("a\ufffdb") in events, ReasoningDelta("\ufffd") in events) == (True, True)


def test_splitter_returns_each_line_once() -> None:
    splitter = LineSplitter()
    assert [splitter.feed(piece) for piece in (b"a\r\n\n b", b"c", b"\nd")] == [[b"a"], [], [b"bc"]]
    assert (splitter.flush(), splitter.flush()) == ([b"d"], [])
