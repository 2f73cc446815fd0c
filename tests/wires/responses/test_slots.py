"""Assignment of frames to items, with wrong or missing ids and indexes."""

from __future__ import annotations

from tests.wires.responses.provider import (
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


def test_ids_that_change_with_every_frame_give_the_same_answer() -> None:  # bug 36
    assert message_texts(
        added(0, message(id="a")),
        text("x", 0, "b"),
        text("y", 0, "c"),
        done(0, message("xy", id="d")),
        completed(message("xy", id="e")),
    ) == ["xy"]
    assert calls(
        added(0, function(id="a")),
        args("{", 0, "b"),
        args("}", 0, "c"),
        done(0, function("{}", id="d")),
        completed(function("{}", id="e")),
    ) == [("f", "{}")]


def test_missing_output_index_gives_the_same_answer() -> None:  # bug 36
    two = function("[2]", id="fc_2", call_id="b", name="g")
    frames = [
        added(None, message()),
        text("x", None),
        done(None, message("x")),
        added(None, function(call_id="a")),
        args("{1}", None),
        done(None, function("{1}", call_id="a")),
        added(None, {**two, "arguments": ""}),
        args("[2]", None, "fc_2"),
        done(None, two),
    ]
    final = completed(message("x"), function("{1}", call_id="a"), two)
    assert message_texts(*frames, final) == ["x"]
    assert calls(*frames, final) == [("f", "{1}"), ("g", "[2]")]


def test_missing_index_and_id_give_the_same_answer() -> None:
    bare = {key: value for key, value in message("xy").items() if key != "id"}
    assert message_texts(text("x", None, None), text("y", None, None), completed(bare)) == ["xy"]


def test_one_output_index_for_all_items_gives_the_same_answer() -> None:  # bug 7  # bug 36
    one, two = function("{1}", id="fc_1", call_id="a"), function("[2]", id="fc_2", call_id="b", name="g")
    frames = [
        added(0, message()),
        text("x"),
        done(0, message("x")),
        added(0, {**one, "arguments": ""}),
        added(0, {**two, "arguments": ""}),
        args("{1}", 0, "fc_1"),
        args("[2]", 0, "fc_2"),
        done(0, one),
        done(0, two),
    ]
    final = completed(message("x"), one, two)
    assert message_texts(*frames, final) == ["x"]
    assert calls(*frames, final) == [("f", "{1}"), ("g", "[2]")]


def test_final_response_with_missing_items_repeats_none() -> None:
    frames = [added(0, {"type": "reasoning", "id": "r", "summary": []}), added(1, message()), text("x", 1)]
    assert message_texts(*frames, completed(message("x", id="other"))) == ["x"]


def test_new_item_in_the_final_response_is_emitted() -> None:
    frames = [added(0, message()), text("x"), done(0, message("x"))]
    assert message_texts(*frames, completed(message("new", id="msg_2"), message("x"))) == ["x", "new"]


def test_call_without_added_frame_starts_when_its_name_is_known() -> None:
    named = placed("response.function_call_arguments.done", 0, item_id="fc_1", name="f", arguments="{1}")
    assert events_between(args("{"), args("1"), named, completed()) == [
        CallStarted(0, "f"),
        ArgumentsDelta(0, "{1"),
        ArgumentsDelta(0, "}"),
        CallFinished(0),
    ]
    assert calls(args("{"), done(0, function("{}")), completed()) == [("f", "{}")]


def test_call_name_is_taken_once() -> None:  # bug 9
    frames = [added(0, function()), added(0, function()), args("{}"), done(0, function("{}")), completed(function("{}"))]
    assert [event for event in events_between(*frames) if isinstance(event, CallStarted)] == [CallStarted(0, "f")]
