"""Decoding of providers' answers over Responses, and their ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wires.responses.frames import Frame, fold, read, stream
from tests.wires.responses.provider import (
    CREATED,
    DONE_USAGE,
    added,
    args,
    calls,
    completed,
    done,
    events_between,
    failure,
    function,
    incomplete,
    message,
    placed,
    text,
)
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call
from toolrelay.wires.responses import WIRE

RECORDED = stream(
    CREATED,
    {"type": "response.in_progress", "sequence_number": 1, "response": CREATED["response"]},
    added(0, {"type": "reasoning", "id": "rs_1", "summary": []}),
    placed("response.reasoning_summary_part.added", 0, summary_index=0, part={"type": "summary_text", "text": ""}),
    placed("response.reasoning_summary_text.delta", 0, summary_index=0, item_id="rs_1", delta="Hm, ", obfuscation="x7"),
    placed("response.reasoning_summary_text.delta", 0, summary_index=0, item_id="rs_1", delta="weather."),
    placed("response.reasoning_summary_text.done", 0, summary_index=0, item_id="rs_1", text="Hm, weather."),
    placed("response.reasoning_summary_part.done", 0, summary_index=0, part={"type": "summary_text", "text": "Hm, weather."}),
    done(
        0,
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm, weather."}],
            "encrypted_content": "sealed",
        },
    ),
    added(1, message(status="in_progress")),
    placed("response.content_part.added", 1, content_index=0, part={"type": "output_text", "text": "", "annotations": []}),
    text("Ich schaue nach", 1),
    text(": 🌦️", 1),
    placed("response.output_text.done", 1, item_id="msg_1", content_index=0, text="Ich schaue nach: 🌦️", logprobs=[]),
    placed("response.content_part.done", 1, content_index=0, part=message("Ich schaue nach: 🌦️")["content"][0]),
    done(1, message("Ich schaue nach: 🌦️")),
    added(2, function(status="in_progress")),
    args('{"city":', 2),
    args('"Köln"}', 2),
    placed("response.function_call_arguments.done", 2, item_id="fc_1", arguments='{"city":"Köln"}'),
    done(2, function('{"city":"Köln"}')),
    completed(
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm, weather."}]},
        message("Ich schaue nach: 🌦️"),
        function('{"city":"Köln"}'),
        usage=DONE_USAGE,
        service_tier="default",
    ),
)
EVENTS: list[StreamEvent] = [
    AnswerStarted(model="gpt-6-mini", service_tier="auto"),
    ReasoningStarted(id="rs_1"),
    ReasoningDelta("Hm, ", "summary", 0),
    ReasoningDelta("weather.", "summary", 0),
    ReasoningFinished(encrypted="sealed"),
    MessageStarted(),
    TextDelta("Ich schaue nach"),
    TextDelta(": 🌦️"),
    CallStarted(0, "f"),
    ArgumentsDelta(0, '{"city":'),
    ArgumentsDelta(0, '"Köln"}'),
    CallFinished(0),
    AnswerFinished(
        finish="calls",
        usage=Usage(input=9, output=7, total=16, cached=4, cache_written=1, reasoning=5),
        service_tier="default",
    ),
]


def test_stream_is_decoded() -> None:  # bug 10  # bug 12  # bug 31  # bug 40
    assert read(RECORDED) == EVENTS


@given(st.lists(st.integers(0, len(RECORDED)), max_size=30), st.booleans())
def test_chunking_of_a_recorded_stream_does_not_change_events(cuts: list[int], crlf: bool) -> None:  # noqa: FBT001 -- Hypothesis gives it by position; # bug 1, # bug 2, # bug 24
    data = RECORDED.replace(b"\n", b"\r\n") if crlf else RECORDED
    decoder = WIRE.decoder()
    got: list[StreamEvent] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        got += decoder.feed(data[start:end])
    assert got + decoder.flush() == EVENTS


def test_raw_utf8_is_decoded() -> None:  # bug 24
    raw = json.dumps(text("🌦️ö"), ensure_ascii=False).encode()
    data = stream(CREATED, raw, completed())
    for cut in range(len(data)):
        decoder = WIRE.decoder()
        events = decoder.feed(data[:cut]) + decoder.feed(data[cut:]) + decoder.flush()
        assert TextDelta("🌦️ö") in events


def test_whole_resource_gives_the_answer_of_its_stream() -> None:  # bug 4
    output = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm, weather."}],
            "encrypted_content": "sealed",
        },
        message("Ich schaue nach: 🌦️"),
        function('{"city":"Köln"}'),
    ]
    body = {"object": "response", "status": "completed", "model": "m", "output": output, "usage": DONE_USAGE}
    events = WIRE.decode_answer(json.dumps(body).encode())
    whole, streamed = fold(events), fold(EVENTS)
    assert (whole.items, whole.finish, whole.usage) == (streamed.items, streamed.finish, streamed.usage)


def test_refusals_annotations_and_logprobs_are_decoded() -> None:
    cite: JsonObject = {"type": "url_citation", "url": "u"}
    logprob: JsonObject = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    assert events_between(
        added(0, message()),
        {**text("a"), "logprobs": [logprob]},
        placed("response.output_text.annotation.added", 0, item_id="msg_1", content_index=0, annotation=cite),
        placed("response.refusal.delta", 0, item_id="msg_1", content_index=1, delta="no"),
        placed("response.refusal.done", 0, item_id="msg_1", content_index=1, refusal="nope"),
        completed(),
    ) == [
        MessageStarted(),
        TextDelta("a", 0, [logprob]),
        AnnotationAdded(cite),
        RefusalDelta("no"),
        RefusalDelta("pe"),
    ]


def test_annotations_and_logprobs_of_the_done_item_are_taken_once() -> None:
    cite: JsonObject = {"type": "url_citation", "url": "u"}
    logprob: JsonObject = {"token": "a", "logprob": -1.0}
    part = {"type": "output_text", "text": "a", "annotations": [cite], "logprobs": [logprob]}
    item = {**message(), "content": [part]}
    assert events_between(added(0, message()), text("a"), done(0, item), completed(item)) == [
        MessageStarted(),
        TextDelta("a"),
        TextDelta("", 0, [logprob]),
        AnnotationAdded(cite),
    ]


def test_messages_with_phases_are_kept_apart() -> None:
    second = message("b", id="msg_2")
    first = message("a", phase="commentary")
    events = events_between(
        added(0, first), text("a"), done(0, first), added(1, second), text("b", 1, "msg_2"), done(1, second), completed()
    )
    assert events == [MessageStarted(phase="commentary"), TextDelta("a"), MessageStarted(is_separate=True), TextDelta("b")]


def test_custom_call_is_decoded() -> None:  # bug 33
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "sql", "input": ""}
    delta = placed("response.custom_tool_call_input.delta", 0, item_id="ctc_1", delta="SELECT")
    finished = {**item, "input": "SELECT 1"}
    assert events_between(added(0, item), delta, done(0, finished), completed(finished)) == [
        CallStarted(0, "sql", kind="custom"),
        ArgumentsDelta(0, "SELECT"),
        ArgumentsDelta(0, " 1"),
        CallFinished(0),
    ]


def test_custom_call_without_input_is_empty() -> None:  # bug 22
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "sql", "input": ""}
    assert events_between(added(0, item), done(0, item), completed(item)) == [
        CallStarted(0, "sql", kind="custom"),
        CallFinished(0),
    ]


def test_unknown_members_of_a_call_are_kept() -> None:
    item = function("{}", namespace="crm", caller={"type": "direct"}, future=None)
    (call,) = fold(read(stream(CREATED, added(0, item), done(0, item), completed(item)))).calls
    assert call == Call(id="", name="f", arguments="{}", namespace="crm", extra={"caller": {"type": "direct"}})


def test_unknown_item_is_emitted_once() -> None:
    item: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}}
    events = events_between(
        added(0, {**item, "status": "in_progress"}),
        placed("response.web_search_call.searching", 0, item_id="ws_1"),
        done(0, item),
        completed(item),
    )
    assert events == [ItemReceived(wire=WIRE.name, raw=item)]


def test_interleaved_calls_are_kept_apart() -> None:  # bug 7  # bug 8
    one, two = function(id="fc_1", call_id="a"), function(id="fc_2", call_id="b", name="g")
    frames = [
        added(0, one),
        added(1, two),
        args("{1", 0, "fc_1"),
        args("[2", 1, "fc_2"),
        args("}", 0, "fc_1"),
        args("]", 1, "fc_2"),
    ]
    ends = [done(1, {**two, "arguments": "[2]"}), done(0, {**one, "arguments": "{1}"})]
    assert calls(*frames, *ends, completed()) == [("f", "{1}"), ("g", "[2]")]
    starts = [event for event in events_between(*frames, *ends, completed()) if isinstance(event, CallStarted)]
    assert [start.index for start in starts] == [0, 1]


def test_finish_is_calls_only_with_a_finished_call() -> None:  # bug 10
    item = function("{}")
    assert fold(read(stream(CREATED, added(0, item), done(0, item), completed()))).finish == "calls"
    assert fold(read(stream(CREATED, text("a"), completed()))).finish == "stop"


def test_unknown_frames_are_ignored() -> None:
    odd: list[Frame | bytes] = [{"type": "response.audio.delta", "delta": "AAA"}, {"type": "x"}, {"hello": 1}, b"", b"{}"]
    assert events_between(*odd, text("a"), completed()) == [MessageStarted(), TextDelta("a")]


# Ends


def test_truncated_answer_keeps_text_but_not_the_open_call() -> None:  # bug 5
    cut = function('{"a', status="incomplete")
    ends = [[incomplete()], [done(0, cut), incomplete(cut)], [incomplete(cut)], [incomplete({**cut, "status": None})]]
    for end in ends:
        answer = fold(read(stream(CREATED, added(0, function()), args('{"a'), *end)))
        assert answer.finish == "length"
        assert answer.calls == ()


def test_truncated_answer_keeps_complete_calls() -> None:
    one = function("{}", id="fc_1", call_id="a")
    assert calls(added(0, one), done(0, one), text("and", 1), incomplete(one)) == [("f", "{}")]
    assert calls(incomplete({**one, "status": None}, message("x"))) == [("f", "{}")]


def test_filtered_answer_finishes_with_content_filter() -> None:
    answer = fold(read(stream(CREATED, text("a"), incomplete(reason="content_filter"))))
    assert answer.finish == "content_filter"


def test_truncated_stream_is_a_failure() -> None:  # bug 38
    for data in (b"", stream(CREATED, end=b""), stream(CREATED, text("a"), end=b""), stream(CREATED, text("a"))):
        error = failure(data)
        assert "closed the stream before its end" in error.message
        assert error.status == 502


def test_last_frame_without_blank_line_is_decoded() -> None:
    data = stream(CREATED, text("a"), completed(), end=b"").removesuffix(b"\n\n")
    assert isinstance(read(data)[-1], AnswerFinished)


@pytest.mark.parametrize("junk", [b"{", b"nonsense", b"3", b'["a"]', b'{"type": "\xff"}', b"[" * 100_000])
def test_unreadable_frame_is_a_failure(junk: bytes) -> None:
    error = failure(stream(CREATED, text("a"), junk, completed()))
    assert "not JSON" in error.message


def test_repeated_failure_is_emitted_once() -> None:  # bug 38
    flat_error = {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}
    failed = {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": "server_error", "message": "broken"}, "output": []},
    }
    error = failure(stream(CREATED, text("a"), flat_error, failed))
    assert (error.message, error.code, error.status) == ("slow down", "rate_limit_exceeded", 429)
    error = failure(stream(CREATED, failed))
    assert (error.message, error.code, error.status) == ("broken", "server_error", 502)


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "error", "error": {"type": "invalid_request_error", "message": "m", "code": "c"}},
        {"error": {"type": "invalid_request_error", "message": "m", "code": "c"}},
        {"type": "response.failed", "response": {"error": {"type": "invalid_request_error", "message": "m", "code": "c"}}},
        {"type": "response.completed", "response": {"status": "failed", "error": {"code": "invalid_prompt", "message": "m"}}},
        {"type": "error", "error": {"message": "m", "code": 400}},
    ],
)
def test_failure_of_every_shape_is_decoded(frame: Frame) -> None:
    error = failure(stream(CREATED, frame))
    assert (error.message, error.status) == ("m", 400)


@pytest.mark.parametrize("frame", [{"type": "error"}, {"type": "response.failed"}, {"type": "error", "code": {"odd": 1}}])
def test_failure_without_message_is_a_failure(frame: Frame) -> None:
    assert failure(stream(CREATED, frame)).message


def test_input_after_the_end_is_ignored() -> None:
    decoder = WIRE.decoder()
    decoder.feed(stream(CREATED, completed()))
    assert decoder.feed(stream(text("late"), completed())) == []
    assert decoder.flush() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"status":"failed","error":{"code":"server_error","message":"m"},"output":[]}',
        b'{"status":"queued","output":[]}',
        b'{"error":"m"}',
        b'{"error":{"message":"m"}}',
    ],
)
def test_body_that_is_not_a_finished_response_is_a_failure(body: bytes) -> None:  # bug 39
    (event,) = WIRE.decode_answer(body)
    assert isinstance(event, AnswerFailed)
    assert event.error.message


def test_truncated_whole_answer_finishes_with_length() -> None:  # bug 5
    body = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [message("a"), function('{"a', status="incomplete")],
    }
    answer = fold(WIRE.decode_answer(json.dumps(body).encode()))
    assert (answer.finish, answer.calls, len(answer.items)) == ("length", (), 1)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "id", "text", "content"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_TYPES = st.sampled_from(
    [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_text.annotation.added",
        "response.refusal.delta",
        "response.refusal.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.incomplete",
        "response.completed",
        "response.failed",
        "error",
        "other",
    ]
)
_ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "x"])},
    optional={
        name: _JSON | st.text(max_size=3)
        for name in ("id", "call_id", "name", "arguments", "input", "content", "summary", "status", "encrypted_content", "phase")
    },
)
_FRAME = st.fixed_dictionaries(
    {"type": _TYPES},
    optional={
        "output_index": st.integers(0, 2) | _JSON,
        "content_index": st.integers(0, 2) | _JSON,
        "summary_index": st.integers(0, 2) | _JSON,
        "item_id": st.sampled_from(["a", "b"]) | _JSON,
        "delta": st.text(max_size=3) | st.just("\ud83c") | _JSON,
        "text": st.text(max_size=3) | _JSON,
        "logprobs": _JSON,
        "arguments": _JSON,
        "refusal": _JSON,
        "name": _JSON,
        "part": _JSON
        | st.fixed_dictionaries({"type": st.sampled_from(["output_text", "refusal", "reasoning_text"]), "text": _JSON}),
        "annotation": _JSON,
        "item": _ITEM | _JSON,
        "response": st.fixed_dictionaries({"output": st.lists(_ITEM | _JSON, max_size=3) | _JSON, "usage": _JSON}) | _JSON,
        "error": _JSON,
        "code": _JSON,
        "message": _JSON,
    },
)


@given(st.lists(_FRAME, max_size=8))
def test_any_stream_never_raises_and_ends_once(frames: list[Frame]) -> None:
    events = read(stream(*frames))
    assert [event for event in events if isinstance(event, AnswerFinished | AnswerFailed)] == events[-1:]
    started = [event.index for event in events if isinstance(event, CallStarted)]
    assert started == list(range(len(started)))
    fold(events)


@given(_JSON | st.fixed_dictionaries({"output": st.lists(_ITEM | _JSON, max_size=3) | _JSON, "usage": _JSON, "error": _JSON}))
def test_any_body_never_raises_and_ends_once(body: Any) -> None:
    events = WIRE.decode_answer(json.dumps(body).encode())
    assert [event for event in events if isinstance(event, AnswerFinished | AnswerFailed)] == events[-1:]
