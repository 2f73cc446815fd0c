"""Observers of a turn for its log: when the first event comes, and how the turn ends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.runtime.driver import Sink
from toolrelay.runtime.telemetry import TurnLog
from toolrelay.runtime.turns import RunningTurn


def ending(turn_log: TurnLog, leave: Callable[[], None]) -> Callable[[RunningTurn], None]:
    """Return what is called at the end of a turn: it frees the turn's place, and completes its log."""

    def end(running: RunningTurn) -> None:
        leave()
        finish_log(turn_log, running)

    return end


class Once:
    """Calls a function the first time only."""

    __slots__ = ("_function", "_is_called")

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._is_called = False

    def __call__(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._function()


def finish_log(turn_log: TurnLog, running: RunningTurn) -> None:
    turn = running.parts.turn
    if not turn.has_ended:
        turn_log.suspend_turn(time.monotonic())
        return
    error = None if turn.error is None else turn.error.error
    turn_log.finish_turn(
        time.monotonic(),
        status=200 if error is None else error.status,
        finish=turn.finish,
        code=None if error is None else error.code,
        usage=turn.uncounted_usage,
    )


class FirstEventTimer:
    """Records when the first event of the model arrives."""

    __slots__ = ("_sink", "_turn_log", "put")

    def __init__(self, sink: Sink, turn_log: TurnLog) -> None:
        self._sink = sink
        self._turn_log = turn_log
        self.put = self._put_first

    def _put_first(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if type(events[0]) is not AnswerFailed:
            self._turn_log.mark_first_event(time.monotonic())
        self.put = self._sink.put
        return self._sink.put(events)
