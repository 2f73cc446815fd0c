"""Does what a turn commands: asks the model, hands its events to the turn, and what the turn emits to the client.

There is one loop. A client that reads slowly holds up `Sink.send`, which holds up the reading of the model's stream, so that
memory stays flat. Cancelling the loop closes the model's stream, which lets the backend go.
"""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import Protocol

from toolrelay.backends.base import Backend
from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, End, Notice, Record, RunTool
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.request import Request
from toolrelay.core.turn import Turn
from toolrelay.errors import InternalError


class Sink(Protocol):
    """Where a turn's events go."""

    async def send(self, events: list[StreamEvent]) -> None: ...


class Observer(Protocol):
    """Who is told what a turn does."""

    def record(self, command: Record) -> None: ...

    def notice(self, command: Notice) -> None: ...


async def drive(turn: Turn, backend: Backend, sink: Sink, observer: Observer) -> None:
    """Takes the turn to its end."""
    waiting: deque[Command] = deque(turn.start())
    while waiting:
        match waiting.popleft():
            case CallModel(request):
                waiting.extend(await _call_model(request, turn, backend, sink, observer))
            case Record() as command:
                observer.record(command)
            case Emit(events):
                await sink.send(events)
            case Notice() as command:
                observer.notice(command)
            case RunTool() | AskPerson():
                raise InternalError("A gateway tool was called, but no gateway tool is offered.")
            case End():
                return


async def _call_model(request: Request, turn: Turn, backend: Backend, sink: Sink, observer: Observer) -> list[Command]:
    """What the turn wants while the model speaks is done at once; what it wants afterwards is returned."""
    async with aclosing(backend.stream(request)) as batches:
        async for batch in batches:
            later: list[Command] = []
            for command in turn.handle(batch):
                if type(command) is Emit:  # several times cheaper than a `match`, and this is the busiest place
                    await sink.send(command.events)
                elif type(command) is Record:
                    observer.record(command)
                elif type(command) is Notice:
                    observer.notice(command)
                else:
                    later.append(command)
            if later:
                return later
    return turn.handle([AnswerFailed(InternalError("The backend ended its answer without an end."))])
