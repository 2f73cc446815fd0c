"""Streams that are continued after a crash: any prefix of the stored frames, at any step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.playbook import make_turn, model_call, recorded, run_finished
from tests.wires.responses.frames import envelope, frames, validated
from toolrelay.core.commands import Command, Emit
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ReasoningDelta,
    ReasoningFinished,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.playback import shown_events
from toolrelay.core.request import Request
from toolrelay.core.steps import StepEvent
from toolrelay.errors import InternalError
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses import WIRE
from toolrelay.wires.responses.encoder import ResponsesEncoder
from toolrelay.wires.responses.recovery import recover, split_frames
from toolrelay.wires.sse import DONE

CALLS, STOP = AnswerFinished(finish="calls"), AnswerFinished(finish="stop")
REQUEST = Request(wire=WIRE.name, model="fast", items=(), store=True, background=True)
PAPER: Envelope = envelope(REQUEST)


def story() -> list[Command]:
    """The commands of a turn with two rounds of tools."""
    turn = make_turn(REQUEST, auto="g", parallel="p")
    commands = turn.start()
    commands += turn.handle([AnswerStarted(), ReasoningDelta("hm"), TextDelta("Let me "), TextDelta("see."), *model_call(0, "g")])
    commands += turn.handle([CALLS])
    commands += turn.handle_step(run_finished(0))
    commands += turn.handle([AnswerStarted(), *model_call(0, "p"), *model_call(1, "p", "[]"), CALLS])
    commands += turn.handle_step(run_finished(2))
    commands += turn.handle_step(run_finished(1))
    commands += turn.handle([AnswerStarted(), TextDelta("It is "), TextDelta("noon.")])
    return commands + turn.handle([STOP])


def states() -> list[tuple[list[StepEvent], list[bytes], list[StreamEvent]]]:
    """What a crash may leave behind: the steps so far, the frames so far, and the events that would have followed."""
    out: list[tuple[list[StepEvent], list[bytes], list[StreamEvent]]] = []
    commands = story()
    encoder, stored = ResponsesEncoder(PAPER), list[bytes]()
    for position, command in enumerate(commands):
        rest = [event for later in commands[position:] if isinstance(later, Emit) for event in later.events]
        out.append((recorded(commands[:position]), [*stored], rest))
        if isinstance(command, Emit):
            stored += split_frames(encoder.encode(command.events))
    return [*out, (recorded(commands), stored, [])]


def finished(steps: list[StepEvent], stored: list[bytes]) -> list[dict[str, Any]]:
    """The frames after recovery and, if an answer was cut, failure."""
    recovery = recover(stored, shown_events(steps), PAPER)
    added = [*recovery.frames]
    if recovery.is_cut:
        added += split_frames(recovery.encoder.encode([AnswerFailed(InternalError("The gateway was restarted."))]))
    return joined([*stored, *added])


def joined(stream: list[bytes]) -> list[dict[str, Any]]:
    return frames(b"".join(stream) + DONE)


def check_gapless(written: list[dict[str, Any]]) -> None:
    validated(written)
    assert [frame["sequence_number"] for frame in written] == list(range(len(written)))
    for kind in ("added", "done"):
        indexes = [frame["output_index"] for frame in written if frame["type"] == f"response.output_item.{kind}"]
        assert len(indexes) == len(set(indexes))


@pytest.mark.parametrize("number", range(len(states())))
def test_stream_after_a_crash_has_no_gaps_and_nothing_twice(number: int) -> None:
    steps, stored, rest = states()[number]
    if not steps:
        return
    written = finished(steps, stored)
    check_gapless(written)
    recovery = recover(stored, shown_events(steps), PAPER)
    if recovery.is_cut:
        assert written[-1]["type"] == "response.failed"
        return
    remaining = [event for event in rest if not _is_shown(event, steps)]
    whole = joined([*stored, *recovery.frames, *split_frames(recovery.encoder.encode(remaining))])
    check_gapless(whole)
    assert whole[-1]["type"] == "response.completed"
    events = [event for command in story() if isinstance(command, Emit) for event in command.events]
    assert whole[-1]["response"] == frames(ResponsesEncoder(PAPER).encode(events))[-1]["response"]


def _is_shown(event: StreamEvent, steps: list[StepEvent]) -> bool:
    """Whether the steps, played back, have the event already."""
    return event in shown_events(steps) or isinstance(event, AnswerStarted)


def test_every_kind_of_crash_is_covered() -> None:
    cuts = [recover(stored, shown_events(steps), PAPER).is_cut for steps, stored, _ in states() if steps]
    missing = [bool(recover(stored, shown_events(steps), PAPER).frames) for steps, stored, _ in states() if steps]
    assert {*cuts} == {True, False}
    assert {*missing} == {True, False}


def test_cut_message_is_closed_with_its_text_so_far() -> None:
    encoder = ResponsesEncoder(PAPER)
    stored = split_frames(encoder.encode([AnswerStarted(), TextDelta("It is "), TextDelta("no")]))
    written = finished(recorded(make_turn(REQUEST).start()), stored)
    closing = next(frame for frame in written if frame["type"] == "response.output_item.done")
    assert closing["item"]["status"] == "incomplete"
    assert closing["item"]["content"][0]["text"] == "It is no"
    assert written[-1]["response"]["output"] == [closing["item"]]
    assert written[-1]["response"]["status"] == "failed"


def test_stream_that_was_complete_gets_nothing_more() -> None:
    steps, stored, _ = states()[-1]
    assert recover(stored, shown_events(steps), PAPER).frames == []


@pytest.mark.parametrize("events", [[ReasoningDelta("hm"), ReasoningFinished()], [TextDelta("It is "), TextDelta("no")]])
def test_answer_that_was_cut_stays_cut_after_a_second_crash(events: list[StreamEvent]) -> None:
    steps = recorded(make_turn(REQUEST).start())
    stored = split_frames(ResponsesEncoder(PAPER).encode([AnswerStarted(), *events]))
    first = recover(stored, shown_events(steps), PAPER)
    second = recover([*stored, *first.frames], shown_events(steps), PAPER)
    assert first.is_cut
    assert second.is_cut
    assert second.frames == []
    assert finished(steps, [*stored, *first.frames]) == finished(steps, stored)
    check_gapless(finished(steps, stored))


def test_turn_that_failed_in_an_answer_gets_the_end_of_its_item_before_its_own() -> None:
    turn = make_turn(REQUEST)
    steps = recorded([*turn.start(), *turn.fail(InternalError("The model has gone."))])
    stored = split_frames(ResponsesEncoder(PAPER).encode([AnswerStarted(), TextDelta("It is "), TextDelta("no")]))
    recovery = recover(stored, shown_events(steps), PAPER)
    written = joined([*stored, *recovery.frames])
    check_gapless(written)
    assert [frame["type"] for frame in written[-3:]] == ["response.output_item.done", "error", "response.failed"]
    assert written[-1]["response"]["output"] == [written[-3]["item"]]


def test_stream_that_was_started_before_the_model_answered_is_not_started_again() -> None:
    stored = split_frames(ResponsesEncoder(PAPER).start())
    recovery = recover(stored, [], PAPER)
    assert recovery.frames == []
    rest = split_frames(recovery.encoder.encode([AnswerStarted(), TextDelta("Hi."), STOP]))
    events = frames(b"".join([*stored, *rest, DONE]))
    assert [event["type"] for event in events].count("response.created") == 1
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
