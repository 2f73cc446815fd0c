"""Content that comes in several frames is emitted once, whichever frames have it."""

from __future__ import annotations

import json

import pytest

from tests.wires.responses.frames import Frame, fold, read, stream
from tests.wires.responses.provider import (
    CREATED,
    added,
    args,
    calls,
    completed,
    done,
    events_between,
    function,
    message,
    message_texts,
    placed,
    text,
)
from toolrelay.core.events import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
)
from toolrelay.core.messages import Reasoning


def test_empty_final_output_removes_nothing() -> None:  # bug 37
    frames = [added(0, message()), text("x"), done(0, message("x")), added(1, function()), args("{}", 1), done(1, function("{}"))]
    assert message_texts(*frames, completed()) == ["x"]
    assert calls(*frames, completed()) == [("f", "{}")]


def test_items_only_in_the_final_response_are_emitted() -> None:  # bug 3  # bug 14
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]}
    final = completed(thought, message("x"), function('{"a":1}'))
    answer = fold(read(stream(CREATED, final)))
    assert answer.items[0] == Reasoning(id="rs_1", text=("t",))
    assert message_texts(final) == ["x"]
    assert calls(final) == [("f", '{"a":1}')]
    assert answer.finish == "calls"


@pytest.mark.parametrize("last", ["text", "part", "item", "response"])
def test_text_from_any_single_frame_is_emitted_once(last: str) -> None:  # bug 13  # bug 14
    frames = {
        "text": placed("response.output_text.done", 0, item_id="msg_1", content_index=0, text="xyz"),
        "part": placed("response.content_part.done", 0, item_id="msg_1", content_index=0, part=message("xyz")["content"][0]),
        "item": done(0, message("xyz")),
        "response": completed(message("xyz")),
    }
    following = [frames[name] for name in list(frames)[list(frames).index(last) :]]
    assert message_texts(added(0, message()), *following) == ["xyz"]
    assert message_texts(added(0, message()), text("xy"), *following) == ["xyz"]


def test_streamed_text_wins_over_a_different_final_text() -> None:
    assert message_texts(added(0, message()), text("abc"), done(0, message("xyz")), completed(message("xyz"))) == ["abc"]


@pytest.mark.parametrize("last", ["arguments", "item", "response"])
def test_arguments_from_any_single_frame_are_emitted_once(last: str) -> None:  # bug 1  # bug 6
    whole = '{"a":1}'
    frames = {
        "arguments": placed("response.function_call_arguments.done", 0, item_id="fc_1", arguments=whole),
        "item": done(0, function(whole)),
        "response": completed(function(whole)),
    }
    following = [frames[name] for name in list(frames)[list(frames).index(last) :]]
    assert calls(added(0, function()), *following) == [("f", whole)]
    assert calls(added(0, function()), args('{"a"'), *following) == [("f", whole)]


def test_arguments_of_the_added_item_are_emitted_once() -> None:
    assert calls(added(0, function("{1}")), args("{1}"), done(0, function("{1}")), completed()) == [("f", "{1}")]
    assert calls(added(0, function("{1}")), done(0, function("")), completed()) == [("f", "{1}")]


@pytest.mark.parametrize(
    "frame", [done(0, function({"a": {"b": 1}})), args({"a": {"b": 1}}), completed(function({"a": {"b": 1}}))]
)
def test_arguments_as_an_object_become_text(frame: Frame) -> None:  # bug 20
    ((name, arguments),) = calls(added(0, function()), frame, completed())
    assert name == "f"
    assert json.loads(arguments) == {"a": {"b": 1}}


def test_json_encoded_arguments_are_unchanged() -> None:  # bug 21
    nested = json.dumps({"a": json.dumps({"b": 1})})
    assert calls(added(0, function()), args(nested), done(0, function(nested)), completed()) == [("f", nested)]


def test_function_without_arguments_gets_an_empty_object() -> None:  # bug 22
    assert events_between(added(0, function()), done(0, function()), completed(function())) == [
        CallStarted(0, "f"),
        ArgumentsDelta(0, "{}"),
        CallFinished(0),
    ]


def test_open_item_is_finished_with_the_answer() -> None:
    assert calls(added(0, function()), args("{}"), completed()) == [("f", "{}")]


@pytest.mark.parametrize("halves", [["a\\ud83c", "\\udf26b"], ["a", "\\ud83c", "\\udf26", "b"], ["a\\ud83c", "", "\\udf26b"]])
def test_surrogate_pair_over_two_deltas_is_joined(halves: list[str]) -> None:  # bug 24
    def frames(kind: str) -> list[bytes]:
        head = f'{{"type":"{kind}","output_index":0,"item_id":"x","content_index":0,"delta":"'
        return [f'{head}{half}"}}'.encode() for half in halves]

    assert message_texts(added(0, message(id="x")), *frames("response.output_text.delta"), completed()) == ["a🌦b"]
    start = added(0, function(id="x"))
    assert calls(start, *frames("response.function_call_arguments.delta"), completed()) == [("f", "a🌦b")]
    (thought,) = fold(read(stream(CREATED, *frames("response.reasoning_text.delta"), completed()))).items
    assert isinstance(thought, Reasoning)
    assert thought.text == ("a🌦b",)


def test_lone_surrogate_at_the_end_is_replaced() -> None:
    half = b'{"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"a\\ud83c"}'
    assert message_texts(half, completed()) == ["a\ufffd"]
    assert message_texts(half, text("b"), completed()) == ["a\ufffdb"]
    assert message_texts(half, done(0, message("a🌦")), completed()) == ["a🌦"]
