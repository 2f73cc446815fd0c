"""The test harness for turns."""

from __future__ import annotations

import pytest

from tests.core.playbook import Playbook, make_request, make_turn
from toolrelay.core.commands import CallModel, Command, Emit, RecordStep
from toolrelay.core.events import RefusalDelta, TextDelta
from toolrelay.core.steps import TurnAccepted


def test_unexpected_commands_fail_with_a_diff() -> None:
    with pytest.raises(AssertionError) as failure:
        Playbook(make_turn()) >> [TextDelta("one"), TextDelta("two")] << [Emit([TextDelta("one"), RefusalDelta("two")])]
    lines = [line for line in str(failure.value).splitlines() if not line.startswith("?")]  # difflib marks changes with ?
    assert lines == [
        ">> TextDelta(text='one')",
        ">> TextDelta(text='two')",
        "<< unexpected commands (- expected, + actual):",
        "  Emit",
        "      TextDelta(text='one')",
        "-     RefusalDelta(text='two')",
        "+     TextDelta(text='two')",
    ]


def test_unchecked_commands_fail_the_test() -> None:
    playbook = Playbook(make_turn()) >> [TextDelta("one")]
    with pytest.raises(AssertionError, match="unchecked commands"):
        playbook >> [TextDelta("two")]


def test_commands_of_the_start_may_be_left_unchecked() -> None:
    request = make_request()
    start: list[Command] = [RecordStep(TurnAccepted(request=request)), CallModel(request)]
    Playbook(make_turn(request)) << start >> [TextDelta("one")] << [Emit([TextDelta("one")])]
    Playbook(make_turn(request)) >> [TextDelta("one")] << [Emit([TextDelta("one")])]
    with pytest.raises(AssertionError):
        Playbook(make_turn(request)) << start[1:]
