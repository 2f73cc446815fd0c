"""Does what a turn commands: asks the model, hands its events to the turn, and what the turn emits to the client.

There is one loop. A client that reads slowly holds up `Sink.put`, which holds up the reading of the model's stream, so that
memory stays flat. Cancelling the loop closes the model's stream, which lets the backend go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Protocol

from toolrelay.backends.base import Backend, relayed, taken
from toolrelay.core.commands import CallModel, Command, Emit, End, Notice, Record
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.turn import Turn
from toolrelay.errors import InternalError


class Sink(Protocol):
    """Where a turn's events go."""

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        """What is returned is to be waited for: the client reads too slowly, or the response must be begun first."""
        ...


class Observer(Protocol):
    """Who is told what a turn does."""

    def record(self, command: Record) -> None: ...

    def notice(self, command: Notice) -> None: ...


async def drive(turn: Turn, backend: Backend, sink: Sink, observer: Observer) -> None:
    """Takes the turn to its end."""
    hand = _Hand(turn, sink, observer)
    full = hand.do(iter(turn.start()))
    if full is not None:
        await full
    while hand.later:
        command = hand.later.pop(0)
        if type(command) is CallModel:
            await relayed(backend, command.request, hand.take)
            if not hand.later:
                await taken(hand.take, [AnswerFailed(InternalError("The backend ended its answer without an end."))])
        elif type(command) is not End:
            raise InternalError("A gateway tool was called, but no gateway tool is offered.")


class _Hand:
    """Does what can be done at once. `later` are the commands that cannot: the last of those that a turn gives together."""

    __slots__ = ("_observer", "_sink", "_turn", "later")

    def __init__(self, turn: Turn, sink: Sink, observer: Observer) -> None:
        self._turn = turn
        self._sink = sink
        self._observer = observer
        self.later: list[Command] = []

    def take(self, batch: list[StreamEvent]) -> Awaitable[None] | None:
        """What the model said, handed to the turn."""
        return self.do(iter(self._turn.handle(batch)))

    def do(self, commands: Iterator[Command]) -> Awaitable[None] | None:
        for command in commands:
            if type(command) is Emit:  # several times cheaper than a `match`, and this is the busiest place
                full = self._sink.put(command.events)
                if full is not None:
                    return self._go_on(full, commands)
            elif type(command) is Record:
                self._observer.record(command)
            elif type(command) is Notice:
                self._observer.notice(command)
            else:
                self.later.append(command)
        return None

    async def _go_on(self, full: Awaitable[None], commands: Iterator[Command]) -> None:
        await full
        rest = self.do(commands)
        if rest is not None:
            await rest
