"""Decoding of providers' answers over Chat, streamed and whole, with the faults of providers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import cut_bytes
from tests.wires.chat.chunks import (
    DONE,
    PARALLEL,
    TEXT,
    answer,
    call,
    chunk,
    complete,
    completion,
    data,
    decode,
    fold,
    function,
    named,
    stream,
    text_of,
)
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Message, Reasoning, Refusal, Text
from toolrelay.wires.chat import WIRE

RECORDED: dict[str, bytes] = {
    "text": TEXT,
    "calls": PARALLEL,
    "CR LF": PARALLEL.replace(b"\n", b"\r\n"),
    "CR": TEXT.replace(b"\n", b"\r"),
    "comments and other members": b": hello\n\n" + TEXT.replace(b"data: ", b"event: message\nid: 7\ndata: "),
    "several data lines": TEXT.replace(b'"choices": ', b'\ndata: "choices": '),
    "without the last line end": TEXT.removesuffix(b"\n\n"),
    "without an end mark": TEXT.removesuffix(DONE),
    "escaped": stream(data({"choices": [{"index": 0, "delta": {"content": "x"}}]}).replace(b'"x"', b'"\\ud83d\\ude00"')),
    "torn": stream(
        data({"choices": [{"index": 0, "delta": {"content": "x"}}]}).replace(b'"x"', b'"\\ud83d"'),
        data({"choices": [{"index": 0, "delta": {"content": "x"}}]}).replace(b'"x"', b'"\\ude00"'),
    ),
    "an error": TEXT.removesuffix(DONE + b"") [:-200] + b"\n\n" + data({"error": {"message": "m", "code": 500}}),
    "cut": TEXT[:300],
    "nonsense": chunk({"content": "a"}) + b"data: {nonsense\n\n" + TEXT,
}  # fmt: skip


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
@given(st.data())
def test_chunking_does_not_change_events(recorded: bytes, draw: st.DataObject) -> None:  # bug 1, 2, 24
    pieces = draw.draw(cut_bytes(recorded))
    assert comparable(decode(*pieces)) == comparable(decode(recorded))


def comparable(events: list[StreamEvent]) -> list[object]:
    """The events with errors as their message and code, so that they compare."""
    return [(event.error.message, event.error.code) if isinstance(event, AnswerFailed) else event for event in events]


def test_chunking_at_every_byte_does_not_change_events() -> None:  # bug 24
    for recorded in RECORDED.values():
        assert comparable(decode(*(recorded[place : place + 1] for place in range(len(recorded))))) == comparable(
            decode(recorded)
        )


# Text


def test_text_deltas_are_not_merged() -> None:
    assert decode(TEXT) == [
        AnswerStarted(model="provider-model"),
        TextDelta("Grüß"),
        TextDelta(" Gott 😀"),
        AnswerFinished(finish="stop"),
    ]


def test_fingerprint_tier_and_usage_are_decoded() -> None:
    head: dict[str, Any] = {"system_fingerprint": "fp", "service_tier": "default"}
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2, "audio_tokens": 3},
        "completion_tokens_details": {
            "reasoning_tokens": 1,
            "audio_tokens": 2,
            "accepted_prediction_tokens": 3,
            "rejected_prediction_tokens": 4,
        },
    }
    events = decode(
        chunk({"content": "a"}, **head, usage=None)
        + chunk({}, "stop", **head, usage=None)
        + data({"choices": [], "usage": usage, "service_tier": "flex"})
        + DONE
    )
    assert events[0] == AnswerStarted(model="provider-model", fingerprint="fp", service_tier="default")
    assert events[-1] == AnswerFinished(
        finish="stop",
        service_tier="flex",
        usage=Usage(
            input=7,
            output=5,
            total=12,
            cached=1,
            cache_written=2,
            audio_in=3,
            reasoning=1,
            audio_out=2,
            accepted_prediction=3,
            rejected_prediction=4,
        ),
    )


def test_model_is_taken_from_the_first_chunk_with_choices() -> None:
    """Azure starts with a chunk about its filters, without a model."""
    filters = data({"choices": [], "model": "", "prompt_filter_results": []})
    assert decode(filters + chunk({"content": "a"}, "stop") + DONE)[0] == AnswerStarted(model="provider-model")


def test_last_of_several_usages_counts() -> None:  # bug 40
    events = decode(
        chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1})
        + chunk({"content": "b"}, usage={"prompt_tokens": 1, "completion_tokens": 2})
        + chunk({}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4})
        + DONE
    )
    assert events[-1] == AnswerFinished(finish="stop", usage=Usage(input=1, output=3, total=4))
    assert len(events) == 4


def test_empty_chunks_give_no_events() -> None:
    empty = [
        chunk({}),
        chunk({"content": ""}),
        chunk({"content": None, "refusal": None, "tool_calls": None, "function_call": None, "reasoning_content": None}),
        chunk({"role": "assistant"}),
        chunk({"tool_calls": []}),
        data({}),
        data({"choices": []}),
        data({"choices": None, "usage": None, "error": None}),
        data({"choices": [{"index": 0}]}),
        data({"choices": [{"index": 0, "delta": None, "finish_reason": None, "logprobs": None}]}),
        b": keep-alive\n\n",
        b"data:\n\n",
        b"data: \n\n",
        b"event: ping\n\n",
    ]
    assert decode(stream(*empty, chunk({"content": "a"}), *empty))[1:] == [TextDelta("a"), AnswerFinished(finish="stop")]


@pytest.mark.parametrize(
    ("finish_reason", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("end_turn", "stop"),
        ("eos", "stop"),
        ("sensitive", "content_filter"),
        ("something new", "stop"),
    ],
)
def test_finish_reasons_of_other_providers_are_mapped(finish_reason: str, expected: str) -> None:
    assert answer(chunk({"content": "a"}, finish_reason) + DONE).finish == expected
    assert complete({"content": "a"}, finish_reason).finish == expected


def test_logprobs_belong_to_their_text_delta() -> None:
    probability: JsonObject = {"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}
    frame = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [probability], "refusal": None}}]}
    silent = {"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content": [probability]}}]}
    empty = {"choices": [{"index": 0, "delta": {"content": "b"}, "logprobs": {"content": []}}]}
    nothing = {"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": {"content": None}}]}
    assert decode(stream(data(frame), data(silent), data(empty), data(nothing)))[1:-1] == [
        TextDelta("a", 0, [probability]),
        TextDelta("", 0, [probability]),
        TextDelta("b"),
    ]


def test_refusal_is_decoded() -> None:
    assert answer(stream(chunk({"refusal": "I "}), chunk({"refusal": "cannot."}))).items == (
        Message(role="assistant", content=(Refusal(text="I cannot."),)),
    )


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_decoded_under_either_name(name: str) -> None:
    assert decode(stream(chunk({name: "hm"}), chunk({name: "m", "content": "4"}), chunk({"content": "2"})))[1:-1] == [
        ReasoningDelta("hm"),
        ReasoningDelta("m"),
        TextDelta("4"),
        TextDelta("2"),
    ]


def test_reasoning_under_both_names_is_taken_once() -> None:
    assert decode(stream(chunk({"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [{"text": "hm"}]})))[1:-1] == [
        ReasoningDelta("hm")
    ]


def test_mistral_content_parts_are_decoded() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}, {"type": "x"}, None]},
        {"type": "text", "text": "4"},
        {"type": "text", "text": "2"},
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": []},
        {"type": "reference", "reference_ids": [1]},
    ]
    assert decode(stream(chunk({"content": parts})))[1:-1] == [ReasoningDelta("hm"), TextDelta("4"), TextDelta("2")]
    assert complete({"content": parts}).items == (
        Reasoning(text=("hm",)),
        Message(role="assistant", content=(Text(text="42"),)),
    )


def test_logprobs_of_content_parts_are_taken_once() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    frame = {"choices": [{"index": 0, "delta": {"content": parts}, "logprobs": {"content": [{"token": "ab"}]}}]}
    assert decode(stream(data(frame)))[1:-1] == [TextDelta("a", 0, [{"token": "ab"}]), TextDelta("b")]


def test_citations_are_flattened() -> None:
    members: JsonObject = {"url": "u", "title": "t", "start_index": 0, "end_index": 1}
    notes = [{"type": "url_citation", "url_citation": members}, {"type": "file", "file": {"hash": "x"}}, None, 5]
    assert decode(stream(chunk({"content": "a", "annotations": notes})))[2:-1] == [
        AnnotationAdded({"type": "url_citation", **members}),
        AnnotationAdded({"type": "file", "file": {"hash": "x"}}),
    ]


def test_choices_are_kept_apart() -> None:
    events = decode(
        chunk({"content": "a"})
        + chunk({"content": "b"}, index=1)
        + call(index=0, id="x", function={"name": "f", "arguments": "{}"}).replace(
            b'{"index": 0, "delta"', b'{"index": 1, "delta"'
        )
        + chunk({}, "tool_calls", index=1)
        + chunk({}, "length")
        + DONE
    )
    folded = fold(events)
    assert folded.finish == "length"
    assert text_of(folded) == "a"
    assert text_of(folded.others[0]) == "b"
    assert named(folded.others[0]) == [("f", "{}")]
    assert folded.others[0].finish == "calls"


# Whole answers


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b"5", b"null", b'{"choices": 5}', b"{}", b'{"choices": []}', b'{"choices": null}']
)
def test_body_that_is_not_a_completion_is_a_failure(body: bytes) -> None:  # bug 39
    (failed,) = WIRE.decode_answer(body)
    assert isinstance(failed, AnswerFailed)
    assert (failed.error.status, failed.error.code) == (502, "upstream_invalid")


def test_whole_answer_gives_the_events_of_its_stream() -> None:  # bug 4
    made = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"content": "hi", "refusal": None, "reasoning_content": "hm", "tool_calls": made}
    streamed = stream(
        chunk({"reasoning_content": "hm"}), chunk({"content": "hi"}), function("f", "{}", index=0, id="a"), finish="tool_calls"
    )
    assert WIRE.decode_answer(completion(message, "tool_calls")) == decode(streamed)


def test_choices_without_index_are_numbered_by_position() -> None:
    body = {
        "choices": [
            {"message": {"content": "a"}, "finish_reason": "stop"},
            {"message": {"content": "b"}, "finish_reason": "stop"},
        ]
    }
    folded = fold(WIRE.decode_answer(json.dumps(body).encode()))
    assert (text_of(folded), text_of(folded.others[0])) == ("a", "b")
