"""Assignment of deltas to calls, with the faults of providers, and complete arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import arguments, pieces
from tests.wires.chat.chunks import (
    BOTH,
    DONE,
    PARALLEL,
    answer,
    call,
    calls,
    chunk,
    complete,
    completion,
    data,
    decode,
    fold,
    function,
    named,
    stream,
    text_in,
    text_of,
)
from toolrelay.core.events import (
    AnswerFinished,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.wires.chat.call_tracker import CallTracker, PartialCall
from toolrelay.wires.chat.chunk import CallDelta, FunctionDelta


def test_calls_are_streamed_as_deltas_arrive() -> None:
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


def test_interleaved_deltas_are_assigned_to_their_calls() -> None:  # bug 8
    assert calls(PARALLEL) == BOTH


def test_whole_answer_in_one_chunk_is_decoded() -> None:  # bug 1, 3
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
        assert text_in(whole_stream) == "hi"


def test_message_instead_of_delta_in_a_stream_is_decoded() -> None:  # bug 3
    frame = completion({"content": "hi", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls")
    folded = answer(b"data: " + frame + b"\n\n" + DONE)
    assert (text_of(folded), named(folded)) == ("hi", [("f", "{}")])


def test_message_that_repeats_the_deltas_is_ignored() -> None:
    summary = data({"choices": [{"index": 0, "message": {"role": "assistant", "content": "ab"}, "finish_reason": "stop"}]})
    beside = {"choices": [{"index": 0, "delta": {"content": "a"}, "message": {"content": "a"}}]}
    assert text_in(data(beside) + chunk({"content": "b"}) + summary + DONE) == "ab"


@pytest.mark.parametrize("ids", [("a", "b"), (None, None)])
@pytest.mark.parametrize("indexes", [(0, 0), (None, None), (0, 1)])
def test_calls_with_index_always_zero_or_missing_are_separated(
    ids: tuple[str | None, str | None], indexes: tuple[int | None, int | None]
) -> None:  # bug 7
    """`index` always 0, or missing; with and without ids. Arguments come whole, or one call after the other."""
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
def test_two_calls_of_one_function_without_index_and_id_are_separated(index: dict[str, int]) -> None:  # bug 7
    frames = [function("f", '{"n":1}', **index), function("f", '{"n":2}', **index)]
    assert calls(stream(*frames)) == [("f", '{"n":1}'), ("f", '{"n":2}')]


@pytest.mark.parametrize("place", [{}, {"index": 0}, {"id": "same"}, {"id": ""}])
def test_two_names_in_one_chunk_are_two_calls(place: dict[str, Any]) -> None:  # bug 7, 29
    entries = [{**place, "function": {"name": "f", "arguments": ""}}, {**place, "function": {"name": "f", "arguments": ""}}]
    assert calls(stream(chunk({"tool_calls": entries}))) == [("f", "{}"), ("f", "{}")]
    assert named(complete({"tool_calls": entries})) == [("f", "{}"), ("f", "{}")]


@pytest.mark.parametrize("place", [{"index": 0, "id": "a"}, {"index": 0}, {"id": "a"}, {}])
def test_repeated_name_is_taken_once(place: dict[str, Any]) -> None:  # bug 9
    frames = [function("f", piece, **place) for piece in ("", '{"a"', ":", "{}}")]
    events = decode(stream(*frames, finish="tool_calls"))
    assert [event for event in events if isinstance(event, CallStarted)] == [CallStarted(0, "f")]
    assert named(fold(events)) == [("f", '{"a":{}}')]


@pytest.mark.parametrize("later", [{"id": "a"}, {"id": None}, {"id": ""}, {}])
def test_id_in_first_or_every_chunk_gives_the_same_calls(later: dict[str, Any]) -> None:
    frames = [function("f", "", index=0, id="a"), *(function(arguments=piece, index=0, **later) for piece in ("{", "}"))]
    assert calls(stream(*frames)) == [("f", "{}")]


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_new_id_without_name_continues_the_call(index: dict[str, Any]) -> None:
    """VLLM did so, for every delta of a call."""
    frames = [
        function("f", "", id="a", **index),
        function(arguments="{", id="b", **index),
        function(arguments="}", id="c", **index),
    ]
    assert calls(stream(*frames)) == [("f", "{}")]


def test_id_after_the_name_belongs_to_the_call() -> None:
    frames = [function("f", "", index=0), function(arguments="{", index=0, id="a"), function(arguments="}", id="a")]
    assert calls(stream(*frames)) == [("f", "{}")]


def test_same_id_with_another_index_is_another_call() -> None:  # bug 29
    frames = [
        function("f", "", index=0, id="x"),
        function(arguments='{"n":1}', index=0, id="x"),
        function("f", "", index=1, id="x"),
        function(arguments='{"n":2}', index=1, id="x"),
    ]
    assert calls(stream(*frames)) == [("f", '{"n":1}'), ("f", '{"n":2}')]


def test_sparse_indexes_become_dense() -> None:
    frames = [function("f", "{}", index=1, id="a"), function("g", "{}", index=5, id="b")]
    events = decode(stream(*frames))
    assert [event.index for event in events if isinstance(event, CallStarted)] == [0, 1]


def test_arguments_before_the_name_are_buffered() -> None:
    events = decode(
        stream(function(arguments='{"a"', index=0, id="a"), function("f", ":1", index=0), function(arguments="}", index=0))
    )
    assert events[1:-1] == [CallStarted(0, "f"), ArgumentsDelta(0, '{"a":1'), ArgumentsDelta(0, "}"), CallFinished(0)]


def test_call_without_a_name_takes_no_index() -> None:
    events = decode(stream(function(arguments="{}", index=0, id="a"), function("g", "{}", index=1, id="b"), finish="tool_calls"))
    assert events[1:] == [CallStarted(0, "g"), ArgumentsDelta(0, "{}"), CallFinished(0), AnswerFinished(finish="calls")]


@pytest.mark.parametrize("finish", ["stop", "end_turn", "something new"])
def test_stop_after_calls_becomes_calls(finish: str) -> None:  # bug 10
    assert answer(stream(function("f", "{}", index=0, id="a"), finish=finish)).finish == "calls"
    assert complete({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, finish).finish == "calls"


def test_whole_answer_with_calls_and_no_finish_reason_finishes_with_calls() -> None:  # bug 10
    assert complete({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, None).finish == "calls"


def test_tool_calls_finish_without_calls_becomes_stop() -> None:
    assert answer(stream(chunk({"content": "a"}), finish="tool_calls")).finish == "stop"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_truncated_call_is_not_finished(finish: str) -> None:  # bug 5
    frames = [function("f", '{"a":1}', index=0, id="a"), function("g", '{"b": {"c": 1}', index=1, id="b")]
    events = decode(stream(*frames, finish=finish))
    assert CallFinished(0) in events
    assert CallFinished(1) not in events
    assert fold(events).finish == finish
    assert named(fold(events)) == [("f", '{"a":1}')]


def test_only_the_last_custom_call_counts_as_truncated() -> None:  # bug 5
    frames = [call(index=index, id=f"{index}", type="custom", custom={"name": "c", "input": "{}"}) for index in range(2)]
    assert calls(stream(*frames, finish="length")) == [("c", "{}")]


@pytest.mark.parametrize("arguments", [{"city": "Zürich", "n": [1.5, None, True]}, {}, {"a": {"b": "\\"}}])
def test_arguments_as_an_object_become_text(arguments: dict[str, Any]) -> None:  # bug 20
    ((_, streamed),) = calls(stream(function("f", arguments, index=0, id="a")))
    ((_, told),) = named(complete({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}))
    assert json.loads(streamed) == json.loads(told) == arguments


@pytest.mark.parametrize("arguments", ['{"a": "{\\"b\\": 1}"}', '"{\\"a\\": 1}"', "not json", '{ "a" : 1.0 }'])
def test_arguments_as_text_are_unchanged(arguments: str) -> None:  # bug 21
    assert calls(stream(function("f", arguments, index=0, id="a"))) == [("f", arguments)]
    assert named(complete({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]})) == [("f", arguments)]


@pytest.mark.parametrize("arguments", ["", None])
def test_empty_arguments_become_an_empty_object(arguments: str | None) -> None:  # bug 22
    assert calls(stream(function("f", arguments, index=0, id="a"))) == [("f", "{}")]
    assert named(complete({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]})) == [("f", "{}")]


def test_custom_call_is_decoded() -> None:  # bug 33
    frames = [
        call(index=0, id="a", type="custom", custom={"name": "c", "input": ""}),
        call(index=0, custom={"input": "fr"}),
        call(index=0, custom={"input": "ee"}),
    ]
    events = decode(stream(*frames, finish="tool_calls"))
    assert events[1:-1] == [CallStarted(0, "c", kind="custom"), ArgumentsDelta(0, "fr"), ArgumentsDelta(0, "ee"), CallFinished(0)]
    (made,) = complete({"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "c", "input": "free"}}]}).calls
    assert (made.kind, made.arguments) == ("custom", "free")
    assert calls(stream(call(index=0, id="a", type="custom", custom={"name": "c", "input": ""}))) == [("c", "")]


def test_legacy_function_call_is_decoded() -> None:
    frames = [chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": '{"a":1}'}})]
    folded = answer(stream(*frames, finish="function_call"))
    assert (named(folded), folded.finish) == ([("f", '{"a":1}')], "calls")
    told = complete({"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}, "function_call")
    assert (named(told), told.finish) == ([("f", '{"a":1}')], "calls")


def test_extra_content_of_a_call_is_kept() -> None:  # bug 31
    signed = {"google": {"thought_signature": "x"}}
    (made,) = answer(stream(function("f", "{}", index=0, id="a", extra_content=signed))).calls
    assert made.extra == {"extra_content": signed}


def test_arguments_of_many_named_deltas_are_scanned_once() -> None:  # bug 25
    """Scanning all of the arguments for each delta would take minutes here."""
    pieces = ['{"text":"', *["x}" * 5 for _ in range(20_000)], '"}']
    ((_, arguments),) = calls(stream(*(function("f", piece, index=0) for piece in pieces)))
    assert arguments == "".join(pieces)


# Complete arguments


@given(arguments().flatmap(pieces))
@example(['{"a', "\\", '"', '}": "\\\\', '"', "}"])
@example(["{", "", "}"])
def test_arguments_are_balanced_only_when_complete(parts: list[str]) -> None:
    call = PartialCall(0)
    for part in parts[:-1]:
        call.pieces.append(part)
        assert not call.is_balanced()
    call.pieces.append(parts[-1])
    assert call.is_balanced()


def test_empty_arguments_are_not_balanced() -> None:
    assert not PartialCall(0).is_balanced()


@given(st.permutations(range(4)), st.data())
def test_calls_with_distinct_ids_and_indexes_are_never_mixed_up(order: list[int], data: st.DataObject) -> None:  # bug 8
    """However the deltas are interleaved, and whichever of id and index the later ones repeat."""
    calls = CallTracker(IndexLimit("tool calls"))
    found = {}
    for number in order:
        piece = CallDelta(index=number, id=f"id{number}", function=FunctionDelta(name="f"))
        found[number] = calls.find(piece, "f", set())
        found[number].name = "f"
    assert len(set(map(id, found.values()))) == 4
    for number in data.draw(st.lists(st.sampled_from(order), max_size=10)):
        index, identifier = data.draw(st.sampled_from([(number, None), (None, f"id{number}"), (number, f"id{number}")]))
        assert calls.find(CallDelta(index=index, id=identifier), None, set()) is found[number]
