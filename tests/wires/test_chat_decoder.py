"""Providers' answers over Chat, with the faults that providers have: streams cut anywhere, and whole answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import cut_bytes, json_values
from tests.wires.chat_chunks import (
    DONE,
    PARALLEL,
    answer,
    call,
    chunk,
    complete,
    completion,
    data,
    decode,
    failure,
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
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Message, Reasoning, Refusal, Text
from toolrelay.wires.openai_chat import WIRE

TEXT = stream(chunk({"content": "Grüß"}), chunk({"content": " Gott 😀"}))
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
def test_cuts_never_matter(recorded: bytes, draw: st.DataObject) -> None:  # bug 1, 2, 24
    pieces = draw.draw(cut_bytes(recorded))
    assert said(decode(*pieces)) == said(decode(recorded))


def said(events: list[StreamEvent]) -> list[object]:
    """Errors compare by what they say."""
    return [(event.error.message, event.error.code) if isinstance(event, AnswerFailed) else event for event in events]


def test_cuts_at_every_byte_never_matter() -> None:  # bug 24
    for recorded in RECORDED.values():
        assert said(decode(*(recorded[place : place + 1] for place in range(len(recorded))))) == said(decode(recorded))


# Text


def test_text_comes_as_it_was_cut() -> None:
    assert decode(TEXT) == [
        AnswerStarted(model="provider-model"),
        TextDelta("Grüß"),
        TextDelta(" Gott 😀"),
        AnswerFinished(finish="stop"),
    ]


def test_fingerprint_tier_and_usage() -> None:
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


def test_the_head_is_taken_from_the_first_chunk_that_says_something() -> None:
    """Azure begins with a chunk about its filters, which names no model."""
    filters = data({"choices": [], "model": "", "prompt_filter_results": []})
    assert decode(filters + chunk({"content": "a"}, "stop") + DONE)[0] == AnswerStarted(model="provider-model")


def test_usage_in_every_chunk_is_the_last_ones() -> None:  # bug 40
    events = decode(
        chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1})
        + chunk({"content": "b"}, usage={"prompt_tokens": 1, "completion_tokens": 2})
        + chunk({}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4})
        + DONE
    )
    assert events[-1] == AnswerFinished(finish="stop", usage=Usage(input=1, output=3, total=4))
    assert len(events) == 4


def test_chunks_that_say_nothing_say_nothing() -> None:
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
    ("said_", "meant"),
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
def test_finishes_in_the_words_of_others(said_: str, meant: str) -> None:
    assert answer(chunk({"content": "a"}, said_) + DONE).finish == meant
    assert complete({"content": "a"}, said_).finish == meant


def test_logprobs_come_with_their_text() -> None:
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


def test_a_refusal() -> None:
    assert answer(stream(chunk({"refusal": "I "}), chunk({"refusal": "cannot."}))).items == (
        Message(role="assistant", content=(Refusal(text="I cannot."),)),
    )


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_by_either_name(name: str) -> None:
    assert decode(stream(chunk({name: "hm"}), chunk({name: "m", "content": "4"}), chunk({"content": "2"})))[1:-1] == [
        ReasoningDelta("hm"),
        ReasoningDelta("m"),
        TextDelta("4"),
        TextDelta("2"),
    ]


def test_thoughts_by_both_names_are_taken_once() -> None:
    assert decode(stream(chunk({"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [{"text": "hm"}]})))[1:-1] == [
        ReasoningDelta("hm")
    ]


def test_mistrals_parts() -> None:
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


def test_the_logprobs_of_parts_are_taken_once() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    frame = {"choices": [{"index": 0, "delta": {"content": parts}, "logprobs": {"content": [{"token": "ab"}]}}]}
    assert decode(stream(data(frame)))[1:-1] == [TextDelta("a", 0, [{"token": "ab"}]), TextDelta("b")]


def test_citations() -> None:
    members: JsonObject = {"url": "u", "title": "t", "start_index": 0, "end_index": 1}
    notes = [{"type": "url_citation", "url_citation": members}, {"type": "file", "file": {"hash": "x"}}, None, 5]
    assert decode(stream(chunk({"content": "a", "annotations": notes})))[2:-1] == [
        AnnotationAdded({"type": "url_citation", **members}),
        AnnotationAdded({"type": "file", "file": {"hash": "x"}}),
    ]


def test_choices_are_told_apart() -> None:
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


# Ends


def test_an_end_mark_is_not_needed_after_the_finish() -> None:
    assert decode(TEXT.removesuffix(DONE)) == decode(TEXT)


def test_nothing_comes_after_the_end() -> None:
    decoder = WIRE.decoder()
    decoder.feed(TEXT)
    assert decoder.feed(TEXT) == []
    assert decoder.flush() == []


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        DONE,
        b": comment\n\n",
        chunk({"content": "a"}),
        chunk({"content": "a"}) + DONE,
        stream(function("f", '{"a"', index=0, id="a"), finish=None),
        chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1) + DONE,
        chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1),
        TEXT[:-120],
    ],
)
def test_a_stream_without_a_finish_has_failed(cut: bytes) -> None:  # bug 38
    error = failure(cut)
    assert (error.status, error.code) == (502, "upstream_cut")
    assert sum(isinstance(event, AnswerFailed | AnswerFinished) for event in decode(cut)) == 1


@pytest.mark.parametrize(
    "bad", [b"data: {nonsense\n\n", b"data: 5\n\n", b"data: null\n\n", b'data: "x"\n\n', b'data: {"choices": 5}\n\n']
)
def test_a_frame_that_cannot_be_read_is_a_failure(bad: bytes) -> None:  # bug 18
    events = decode(chunk({"content": "a"}) + bad + TEXT)
    assert events[1] == TextDelta("a")
    assert len(events) == 3
    assert failure(chunk({"content": "a"}) + bad + TEXT).code == "upstream_invalid"


@pytest.mark.parametrize(
    ("frame", "message", "status"),
    [
        ({"error": {"message": "overloaded", "type": "server_error", "code": "x"}}, "overloaded", 502),
        ({"error": {"message": "slow down", "code": 429}}, "slow down", 429),
        ({"error": "plain words"}, "plain words", 502),
        ({"error": {"message": "mid"}, "choices": []}, "mid", 502),
        (  # OpenRouter
            {
                "error": {"message": "gone", "code": 503},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            },
            "gone",
            503,
        ),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long", 400),  # vLLM
        ({"type": "error", "message": "odd"}, "odd", 502),
        ({"message": "no such model", "code": 404}, "no such model", 404),
        ({"detail": "Not Found"}, "Not Found", 502),
    ],
)
def test_an_error_in_the_stream_is_the_end_of_it(frame: dict[str, Any], message: str, status: int) -> None:  # bug 38, 39
    error = failure(chunk({"content": "a"}) + data(frame) + TEXT)
    assert (error.message, error.status) == (message, status)
    told = WIRE.decode_answer(json.dumps(frame).encode())[-1]
    assert isinstance(told, AnswerFailed)
    assert (told.error.message, told.error.status) == (message, status)


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_a_finish_that_speaks_of_a_failure_is_one(reason: str) -> None:  # bug 38
    assert reason in failure(chunk({"content": "a"}, reason) + DONE).message
    told = WIRE.decode_answer(completion({"content": "a"}, reason))[-1]
    assert isinstance(told, AnswerFailed)


def test_a_frame_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.wires._sse.MAX_FRAME", 1000)
    decoder = WIRE.decoder()
    events = [event for _ in range(30) for event in decoder.feed(b"x" * 100)]
    assert [type(event) for event in events] == [AnswerFailed]
    assert decoder.flush() == []


# Whole answers


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b"5", b"null", b'{"choices": 5}', b"{}", b'{"choices": []}', b'{"choices": null}']
)
def test_a_body_that_is_no_completion_is_a_failure(body: bytes) -> None:  # bug 39
    (failed,) = WIRE.decode_answer(body)
    assert isinstance(failed, AnswerFailed)
    assert (failed.error.status, failed.error.code) == (502, "upstream_invalid")


def test_a_whole_answer_is_the_stream_in_one() -> None:  # bug 4
    made = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"content": "hi", "refusal": None, "reasoning_content": "hm", "tool_calls": made}
    streamed = stream(
        chunk({"reasoning_content": "hm"}), chunk({"content": "hi"}), function("f", "{}", index=0, id="a"), finish="tool_calls"
    )
    assert WIRE.decode_answer(completion(message, "tool_calls")) == decode(streamed)


def test_choices_without_index_are_counted() -> None:
    body = {
        "choices": [
            {"message": {"content": "a"}, "finish_reason": "stop"},
            {"message": {"content": "b"}, "finish_reason": "stop"},
        ]
    }
    folded = fold(WIRE.decode_answer(json.dumps(body).encode()))
    assert (text_of(folded), text_of(folded.others[0])) == ("a", "b")


# Anything at all


_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": json_values(),
        "reasoning_content": json_values(leaves=1),
        "refusal": json_values(leaves=1),
        "annotations": json_values(),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | st.none() | json_values(leaves=1),
                    "id": st.sampled_from(["a", "b", "", None]),
                    "function": st.fixed_dictionaries(
                        {}, optional={"name": st.sampled_from(["f", "g", "", None]), "arguments": json_values()}
                    ),
                },
            ),
            max_size=3,
        ),
    },
)
_FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | st.none(),
                    "delta": _DELTAS,
                    "message": _DELTAS,
                    "finish_reason": st.sampled_from(["stop", "length", "tool_calls", None]),
                    "logprobs": json_values(),
                },
            ),
            max_size=2,
        ),
        "usage": json_values(),
        "error": st.none() | json_values(leaves=1),
        "model": json_values(leaves=1),
    },
)


@given(st.lists(_FRAMES, max_size=5), st.booleans())
@example([{"choices": [{"index": -1, "delta": {"content": "a"}, "finish_reason": "stop"}]}], True)
def test_whatever_comes_gives_one_end_and_well_formed_calls(values: list[Any], marked: bool) -> None:  # noqa: FBT001 -- Hypothesis gives it
    check_grammar(decode(b"".join(map(data, values)) + (DONE if marked else b"")))
    for value in values:
        check_grammar(WIRE.decode_answer(json.dumps(value).encode()))


@given(st.binary(max_size=200))
def test_bytes_without_any_sense_give_one_end(raw: bytes) -> None:
    check_grammar(decode(raw))
    check_grammar(decode(b"data: " + raw + b"\n\n"))
    check_grammar(WIRE.decode_answer(raw))


def check_grammar(events: list[StreamEvent]) -> None:
    """See core.events."""
    *before, last = events
    assert isinstance(last, AnswerFinished | AnswerFailed)
    assert not any(isinstance(event, AnswerFinished | AnswerFailed) for event in before)
    assert [isinstance(event, AnswerStarted) for event in before] == [place == 0 for place in range(len(before))]
    opened: dict[int, int] = {}
    closed: set[tuple[int, int]] = set()
    for event in before:
        match event:
            case CallStarted(choice=choice, index=index):
                assert index == opened.get(choice, 0)
                opened[choice] = index + 1
            case ArgumentsDelta(choice=choice, index=index) | CallFinished(choice=choice, index=index):
                assert index < opened.get(choice, 0)
                assert (choice, index) not in closed
                if isinstance(event, CallFinished):
                    closed.add((choice, index))
            case TextDelta(logprobs=None) | RefusalDelta() | ReasoningDelta():
                assert event.text
            case _:
                pass
