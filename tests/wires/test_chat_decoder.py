"""Providers' answers over Chat, with the faults that providers have: streams cut anywhere, and whole answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import cut_bytes, json_values
from tests.wires.chat_chunks import DONE, call, calls, chunk, completion, data, decode, fold, function, named, stream
from toolrelay.core.assembly import Answer
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
from toolrelay.errors import ToolrelayError
from toolrelay.wires.openai_chat import WIRE


def answer(*pieces: bytes) -> Answer:
    folded = fold(decode(*pieces))
    assert folded.error is None
    return folded


def failure(*pieces: bytes) -> ToolrelayError:
    *_, last = decode(*pieces)
    assert isinstance(last, AnswerFailed)
    return last.error


def words(*pieces: bytes) -> str:
    return text_of(answer(*pieces))


def text_of(folded: Answer) -> str:
    return "".join(
        part.text
        for item in folded.items
        if isinstance(item, Message) and isinstance(item.content, tuple)
        for part in item.content
        if isinstance(part, Text)
    )


def whole(message: dict[str, Any], finish: str | None = "stop", **members: Any) -> Answer:
    folded = fold(WIRE.decode_answer(completion(message, finish, **members)))
    assert folded.error is None
    return folded


TEXT = stream(chunk({"content": "Grüß"}), chunk({"content": " Gott 😀"}))
PARALLEL = stream(
    function("f", "", index=0, id="a", type="function"),
    function(arguments='{"city":', index=0),
    function("g", "", index=1, id="b", type="function"),
    function(arguments='{"n":', index=1),
    function(arguments='"Zürich"}', index=0),
    function(arguments="1}", index=1),
    finish="tool_calls",
)
BOTH = [("f", '{"city":"Zürich"}'), ("g", '{"n":1}')]

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


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 1.0, "completion_tokens": 2.0, "total_tokens": 3.0},
        {"prompt_tokens": 1, "completion_tokens": 2, "x": {}},
    ],
)
def test_usage_is_read_however_the_numbers_are_written(usage: dict[str, Any]) -> None:  # bug 40
    last = decode(chunk({}, "stop", usage=usage) + DONE)[-1]
    assert isinstance(last, AnswerFinished)
    assert last.usage is not None
    assert (last.usage.input, last.usage.output) == (1, 2)


@pytest.mark.parametrize(
    "oddity",
    [
        {"usage": []},
        {"usage": {"prompt_tokens": 1, "prompt_tokens_details": []}},
        {"service_tier": 5},
        {"system_fingerprint": {}},
        {"model": 7},
        {"id": 5, "created": "x", "object": None},
    ],
)
def test_an_odd_member_beside_the_answer_does_not_spoil_it(oddity: dict[str, Any]) -> None:
    assert words(chunk({"content": "a"}, **oddity) + chunk({"content": "b"}, "stop", **oddity) + DONE) == "ab"
    assert text_of(whole({"content": "ab"}, **oddity)) == "ab"


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


def test_null_stands_for_what_is_not_there_everywhere() -> None:
    nothing = None
    part = {"index": nothing, "id": nothing, "type": nothing, "function": {"name": "f", "arguments": nothing}, "custom": nothing}
    frame = {
        "id": nothing,
        "model": nothing,
        "system_fingerprint": nothing,
        "service_tier": nothing,
        "usage": nothing,
        "error": nothing,
        "choices": [
            {
                "index": nothing,
                "delta": {"content": nothing, "tool_calls": [part], "annotations": nothing, "reasoning": nothing},
                "message": nothing,
                "logprobs": nothing,
                "finish_reason": nothing,
            }
        ],
    }
    more = {"choices": [{"index": nothing, "delta": {"tool_calls": [{"function": {"name": nothing, "arguments": "{}"}}]}}]}
    usage = {
        "prompt_tokens": nothing,
        "prompt_tokens_details": nothing,
        "completion_tokens_details": {"reasoning_tokens": nothing},
    }
    end = {"choices": [{"index": nothing, "delta": nothing, "finish_reason": "tool_calls"}], "usage": usage}
    assert calls(data(frame), data(more), data(end), DONE) == [("f", "{}")]


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
    assert whole({"content": "a"}, said_).finish == meant


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
    assert whole({"content": parts}).items == (
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


# Calls


def test_calls_come_as_they_grow() -> None:
    events = decode(PARALLEL)
    assert events[1:-1] == [
        CallStarted(0, "f"),
        ArgumentsDelta(0, '{"city":'),
        CallStarted(1, "g"),
        ArgumentsDelta(1, '{"n":'),
        ArgumentsDelta(0, '"Zürich"}'),
        ArgumentsDelta(1, "1}"),
        CallFinished(0),
        CallFinished(1),
    ]
    assert events[-1] == AnswerFinished(finish="calls")


def test_interleaved_deltas_are_told_apart() -> None:  # bug 8
    assert calls(PARALLEL) == BOTH


def test_the_whole_answer_in_one_chunk() -> None:  # bug 1, 3
    made = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"city":"Zürich"}'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": '{"n":1}'}},
    ]
    one = chunk({"role": "assistant", "content": "hi", "tool_calls": made}, "tool_calls") + DONE
    two = (
        chunk({"role": "assistant", "content": "hi", "tool_calls": made[:1]})
        + chunk({"tool_calls": made[1:]}, "tool_calls")
        + DONE
    )
    for whole_stream in (one, two):
        assert calls(whole_stream) == BOTH
        assert words(whole_stream) == "hi"


def test_an_answer_that_comes_as_a_message_in_a_stream() -> None:  # bug 3
    frame = completion({"content": "hi", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls")
    folded = answer(b"data: " + frame + b"\n\n" + DONE)
    assert (text_of(folded), named(folded)) == ("hi", [("f", "{}")])


def test_a_message_that_sums_up_the_chunks_is_not_taken_twice() -> None:
    summary = data({"choices": [{"index": 0, "message": {"role": "assistant", "content": "ab"}, "finish_reason": "stop"}]})
    beside = {"choices": [{"index": 0, "delta": {"content": "a"}, "message": {"content": "a"}}]}
    assert words(data(beside) + chunk({"content": "b"}) + summary + DONE) == "ab"


@pytest.mark.parametrize("ids", [("a", "b"), (None, None)])
@pytest.mark.parametrize("indexes", [(0, 0), (None, None), (0, 1)])
def test_calls_with_a_poor_index(ids: tuple[str | None, str | None], indexes: tuple[int | None, int | None]) -> None:  # bug 7
    """`index` always 0, or absent; with and without ids. The arguments come whole, or grow one call after the other."""
    places: list[dict[str, Any]] = [
        {key: value for key, value in (("id", identifier), ("index", index)) if value is not None}
        for identifier, index in zip(ids, indexes, strict=True)
    ]
    whole_ones = [function(name, arguments, **place) for (name, arguments), place in zip(BOTH, places, strict=True)]
    assert calls(stream(*whole_ones, finish="tool_calls")) == BOTH
    growing = [
        frame
        for (name, arguments), place in zip(BOTH, places, strict=True)
        for frame in (
            function(name, "", **place),
            *(function(arguments=piece, **{k: v for k, v in place.items() if k == "index"}) for piece in arguments),
        )
    ]
    assert calls(stream(*growing, finish="tool_calls")) == BOTH


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_two_calls_of_the_same_function_with_a_poor_index_and_no_id(index: dict[str, int]) -> None:  # bug 7
    frames = [function("f", '{"n":1}', **index), function("f", '{"n":2}', **index)]
    assert calls(stream(*frames)) == [("f", '{"n":1}'), ("f", '{"n":2}')]


@pytest.mark.parametrize("place", [{}, {"index": 0}, {"id": "same"}, {"id": ""}])
def test_two_named_entries_of_one_chunk_are_two_calls(place: dict[str, Any]) -> None:  # bug 7, 29
    entries = [{**place, "function": {"name": "f", "arguments": ""}}, {**place, "function": {"name": "f", "arguments": ""}}]
    assert calls(stream(chunk({"tool_calls": entries}))) == [("f", "{}"), ("f", "{}")]
    assert named(whole({"tool_calls": entries})) == [("f", "{}"), ("f", "{}")]


@pytest.mark.parametrize("place", [{"index": 0, "id": "a"}, {"index": 0}, {"id": "a"}, {}])
def test_a_name_that_is_sent_again_is_the_same_name(place: dict[str, Any]) -> None:  # bug 9
    frames = [function("f", piece, **place) for piece in ("", '{"a"', ":", "{}}")]
    events = decode(stream(*frames, finish="tool_calls"))
    assert [event for event in events if isinstance(event, CallStarted)] == [CallStarted(0, "f")]
    assert named(fold(events)) == [("f", '{"a":{}}')]


@pytest.mark.parametrize("later", [{"id": "a"}, {"id": None}, {"id": ""}, {}])
def test_an_id_in_the_first_chunk_or_in_every_one(later: dict[str, Any]) -> None:
    frames = [function("f", "", index=0, id="a"), *(function(arguments=piece, index=0, **later) for piece in ("{", "}"))]
    assert calls(stream(*frames)) == [("f", "{}")]


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_an_id_that_is_new_in_every_chunk(index: dict[str, Any]) -> None:
    """So did vLLM, for every delta of a call."""
    frames = [
        function("f", "", id="a", **index),
        function(arguments="{", id="b", **index),
        function(arguments="}", id="c", **index),
    ]
    assert calls(stream(*frames)) == [("f", "{}")]


def test_an_id_that_comes_after_the_name() -> None:
    frames = [function("f", "", index=0), function(arguments="{", index=0, id="a"), function(arguments="}", id="a")]
    assert calls(stream(*frames)) == [("f", "{}")]


def test_the_same_id_under_another_index_is_another_call() -> None:  # bug 29
    frames = [
        function("f", "", index=0, id="x"),
        function(arguments='{"n":1}', index=0, id="x"),
        function("f", "", index=1, id="x"),
        function(arguments='{"n":2}', index=1, id="x"),
    ]
    assert calls(stream(*frames)) == [("f", '{"n":1}'), ("f", '{"n":2}')]


def test_indexes_that_do_not_count_from_zero() -> None:
    frames = [function("f", "{}", index=1, id="a"), function("g", "{}", index=5, id="b")]
    events = decode(stream(*frames))
    assert [event.index for event in events if isinstance(event, CallStarted)] == [0, 1]


def test_arguments_that_come_before_the_name_wait_for_it() -> None:
    events = decode(
        stream(function(arguments='{"a"', index=0, id="a"), function("f", ":1", index=0), function(arguments="}", index=0))
    )
    assert events[1:-1] == [CallStarted(0, "f"), ArgumentsDelta(0, '{"a":1'), ArgumentsDelta(0, "}"), CallFinished(0)]


def test_a_call_that_never_gets_a_name_leaves_no_gap() -> None:
    events = decode(stream(function(arguments="{}", index=0, id="a"), function("g", "{}", index=1, id="b"), finish="tool_calls"))
    assert events[1:] == [CallStarted(0, "g"), ArgumentsDelta(0, "{}"), CallFinished(0), AnswerFinished(finish="calls")]


@pytest.mark.parametrize("finish", ["stop", "end_turn", "something new"])
def test_a_stop_after_calls_means_calls(finish: str) -> None:  # bug 10
    assert answer(stream(function("f", "{}", index=0, id="a"), finish=finish)).finish == "calls"
    assert whole({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, finish).finish == "calls"


def test_a_whole_answer_with_calls_and_no_finish_ends_with_calls() -> None:  # bug 10
    assert whole({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, None).finish == "calls"


def test_calls_that_were_announced_but_not_made_are_a_stop() -> None:
    assert answer(stream(chunk({"content": "a"}), finish="tool_calls")).finish == "stop"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_was_cut_is_not_a_call(finish: str) -> None:  # bug 5
    frames = [function("f", '{"a":1}', index=0, id="a"), function("g", '{"b": {"c": 1}', index=1, id="b")]
    events = decode(stream(*frames, finish=finish))
    assert CallFinished(0) in events
    assert CallFinished(1) not in events
    assert fold(events).finish == finish
    assert named(fold(events)) == [("f", '{"a":1}')]


def test_of_custom_calls_only_the_last_may_have_been_cut() -> None:  # bug 5
    frames = [call(index=index, id=f"{index}", type="custom", custom={"name": "c", "input": "{}"}) for index in range(2)]
    assert calls(stream(*frames, finish="length")) == [("c", "{}")]


@pytest.mark.parametrize("arguments", [{"city": "Zürich", "n": [1.5, None, True]}, {}, {"a": {"b": "\\"}}])
def test_arguments_as_an_object_become_text_once(arguments: dict[str, Any]) -> None:  # bug 20
    ((_, streamed),) = calls(stream(function("f", arguments, index=0, id="a")))
    ((_, told),) = named(whole({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}))
    assert json.loads(streamed) == json.loads(told) == arguments


@pytest.mark.parametrize("arguments", ['{"a": "{\\"b\\": 1}"}', '"{\\"a\\": 1}"', "not json", '{ "a" : 1.0 }'])
def test_arguments_as_text_stay_as_they_are(arguments: str) -> None:  # bug 21
    assert calls(stream(function("f", arguments, index=0, id="a"))) == [("f", arguments)]
    assert named(whole({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]})) == [("f", arguments)]


@pytest.mark.parametrize("arguments", ["", None])
def test_empty_arguments_are_an_empty_object(arguments: str | None) -> None:  # bug 22
    assert calls(stream(function("f", arguments, index=0, id="a"))) == [("f", "{}")]
    assert named(whole({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]})) == [("f", "{}")]


def test_a_custom_call() -> None:  # bug 33
    frames = [
        call(index=0, id="a", type="custom", custom={"name": "c", "input": ""}),
        call(index=0, custom={"input": "fr"}),
        call(index=0, custom={"input": "ee"}),
    ]
    events = decode(stream(*frames, finish="tool_calls"))
    assert events[1:-1] == [CallStarted(0, "c", kind="custom"), ArgumentsDelta(0, "fr"), ArgumentsDelta(0, "ee"), CallFinished(0)]
    (made,) = whole({"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "c", "input": "free"}}]}).calls
    assert (made.kind, made.arguments) == ("custom", "free")
    assert calls(stream(call(index=0, id="a", type="custom", custom={"name": "c", "input": ""}))) == [("c", "")]


def test_a_legacy_function_call() -> None:
    frames = [chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": '{"a":1}'}})]
    folded = answer(stream(*frames, finish="function_call"))
    assert (named(folded), folded.finish) == ([("f", '{"a":1}')], "calls")
    told = whole({"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}, "function_call")
    assert (named(told), told.finish) == ([("f", '{"a":1}')], "calls")


def test_the_signature_of_a_call_is_kept() -> None:  # bug 31
    signed = {"google": {"thought_signature": "x"}}
    (made,) = answer(stream(function("f", "{}", index=0, id="a", extra_content=signed))).calls
    assert made.extra == {"extra_content": signed}


def test_arguments_of_many_deltas_with_the_name_in_each_are_read_once() -> None:  # bug 25
    """Looking at all of the arguments for each delta would take minutes here."""
    pieces = ['{"text":"', *["x}" * 5 for _ in range(20_000)], '"}']
    ((_, arguments),) = calls(stream(*(function("f", piece, index=0) for piece in pieces)))
    assert arguments == "".join(pieces)


# Surrogates and bytes that are no text


def torn(*texts: str, member: str = "content") -> bytes:
    return stream(
        *(b'data: {"choices":[{"index":0,"delta":{"%b":"%b"}}]}\n\n' % (member.encode(), text.encode()) for text in texts)
    )


@pytest.mark.parametrize(
    ("pieces", "whole_text"),
    [
        (("a\\ud83d", "\\ude00b"), "a😀b"),
        (("\\ud83d", "\\ude00"), "😀"),
        (("\\ud83d", "x"), "\ufffdx"),
        (("\\ud83d", "\\ud83d", "\\ude00"), "\ufffd😀"),
        (("\\ude00",), "\ufffd"),
        (("a\\ud83d",), "a\ufffd"),
        (("\\ud83d\\ude00",), "😀"),
    ],
)
def test_a_surrogate_pair_over_two_chunks_is_one_character(pieces: tuple[str, ...], whole_text: str) -> None:  # bug 24
    assert words(torn(*pieces)) == whole_text
    thoughts = answer(torn(*pieces, member="reasoning_content")).items
    assert thoughts == (Reasoning(text=(whole_text,)),)
    refused = answer(torn(*pieces, member="refusal")).items
    assert refused == (Message(role="assistant", content=(Refusal(text=whole_text),)),)


def test_a_surrogate_pair_over_two_deltas_of_arguments() -> None:  # bug 24
    frames = [
        function("f", "x", index=0, id="a").replace(b'"x"', b'"%b"' % text) for text in (b'{\\"a\\":\\"\\ud83d', b'\\ude00\\"}')
    ]
    assert calls(stream(*frames)) == [("f", '{"a":"😀"}')]


def test_an_escaped_pair_inside_the_arguments_is_left_to_their_reader() -> None:  # bug 24
    frames = [function("f", '{"a":"\\ud83d', index=0, id="a"), function(arguments='\\ude00"}', index=0)]
    assert calls(stream(*frames)) == [("f", '{"a":"\\ud83d\\ude00"}')]


_TORN_EVERYWHERE = {
    "model": "\ud800",
    "system_fingerprint": "\ud800",
    "service_tier": "\ud800",
    "choices": [
        {
            "index": 0,
            "delta": {
                "content": [{"type": "text", "text": "\ud800"}],
                "annotations": [{"type": "url_citation", "url_citation": {"url": "\ud800"}}],
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "\ud800",
                        "function": {"name": "f\ud800", "arguments": {"a": "\ud800"}},
                        "extra_content": {"x": "\ud800"},
                    },
                    {"index": 1, "id": "b", "custom": {"name": "\ud800", "input": "\ud800"}},
                ],
                "function_call": {"name": "\ud800", "arguments": {"\ud800": 1}},
            },
            "logprobs": {"content": [{"token": "\ud800"}]},
            "finish_reason": "\ud800",
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [_TORN_EVERYWHERE, {"error": {"message": "\ud800", "code": "\ud800"}}, {"object": "error", "message": "\ud800"}],
)
def test_lone_surrogates_anywhere_can_be_written_again(frame: dict[str, Any]) -> None:  # bug 24
    raw = json.dumps(frame).encode()
    for events in (decode(b"data: " + raw + b"\n\n" + DONE), WIRE.decode_answer(raw)):
        for event in events:
            str(event.error.message if isinstance(event, AnswerFailed) else event).encode()


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\xbd", b"\xf0\x9f\x98"])
def test_bytes_that_are_no_utf8_become_the_replacement_character(bad: bytes) -> None:  # bug 24
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"a%bb"}}]}\n\n' % bad
    text = words(stream(frame))
    assert text.strip("\ufffd") == text
    assert (text[0], text[-1]) == ("a", "b")
    assert set(text[1:-1]) == {"\ufffd"}


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


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("member", [b'"error"', b'"usage"', b'"choices"', b'"choices":[],"error"'])
def test_a_frame_nested_too_deeply_is_a_failure(depth: int, member: bytes) -> None:
    deep = b"{%b:%b%b}" % (member, b"[" * depth, b"]" * depth)
    assert failure(b"data: " + deep + b"\n\n").code == "upstream_invalid"
    told = WIRE.decode_answer(deep)[-1]
    assert isinstance(told, AnswerFailed)


def test_what_nobody_reads_may_be_deep() -> None:
    deep = b'{"x":%b%b,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}' % (b"[" * 300, b"]" * 300)
    assert words(b"data: " + deep + b"\n\n") == "a"


def test_a_large_answer_is_not_a_deep_one() -> None:
    logprobs = {"content": [{"token": "a", "top_logprobs": [{"token": "b"}]} for _ in range(1000)]}
    frame = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": logprobs, "finish_reason": "stop"}]}
    assert words(data(frame)) == "a"


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
