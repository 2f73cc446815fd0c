"""The harness itself: a story that goes another way must fail, and say where."""

from __future__ import annotations

import pytest

from tests.core.playbook import Playbook, asked, turn
from toolrelay.core.commands import CallModel, Command, Emit, Record
from toolrelay.core.events import RefusalDelta, TextDelta
from toolrelay.core.steps import TurnAccepted


def test_a_story_that_goes_another_way_fails_with_the_difference() -> None:
    with pytest.raises(AssertionError) as failure:
        Playbook(turn()) >> [TextDelta("one"), TextDelta("two")] << [Emit([TextDelta("one"), RefusalDelta("two")])]
    told = [line for line in str(failure.value).splitlines() if not line.startswith("?")]  # marks under a line that changed
    assert told == [
        ">> TextDelta(text='one')",
        ">> TextDelta(text='two')",
        "<< the turn wants something else (- expected, + got):",
        "  Emit",
        "      TextDelta(text='one')",
        "-     RefusalDelta(text='two')",
        "+     TextDelta(text='two')",
    ]


def test_what_the_turn_wants_cannot_be_passed_over() -> None:
    story = Playbook(turn()) >> [TextDelta("one")]
    with pytest.raises(AssertionError, match="nobody looked at"):
        story >> [TextDelta("two")]


def test_the_start_may_be_looked_at_or_not() -> None:
    request = asked()
    start: list[Command] = [Record(TurnAccepted(model="m", wire="openai_chat")), CallModel(request)]
    Playbook(turn(request)) << start >> [TextDelta("one")] << [Emit([TextDelta("one")])]
    Playbook(turn(request)) >> [TextDelta("one")] << [Emit([TextDelta("one")])]
    with pytest.raises(AssertionError):
        Playbook(turn(request)) << start[1:]
