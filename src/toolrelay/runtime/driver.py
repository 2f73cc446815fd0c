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
    await _Driver(turn, backend, sink, observer).run()


class _Driver:
    def __init__(self, turn: Turn, backend: Backend, sink: Sink, observer: Observer) -> None:
        self._turn = turn
        self._backend = backend
        self._sink = sink
        self._observer = observer
        self._waiting: deque[Command] = deque()

    async def run(self) -> None:
        self._waiting.extend(self._turn.start())
        while self._waiting:
            command = self._waiting.popleft()
            match command:
                case CallModel(request):
                    await self._call_model(request)
                case RunTool() | AskPerson():
                    raise InternalError("A gateway tool was called, but no gateway tool is offered.")
                case End():
                    return
                case _:
                    await self._settle(command)

    async def _settle(self, command: Emit | Record | Notice) -> None:
        match command:
            case Emit(events):
                await self._sink.send(events)
            case Record():
                self._observer.record(command)
            case Notice():
                self._observer.notice(command)

    async def _call_model(self, request: Request) -> None:
        """What the turn wants while the model speaks is done at once; what it wants afterwards waits for the model's end."""
        async with aclosing(self._backend.stream(request)) as batches:
            async for batch in batches:
                for command in self._turn.handle(batch):
                    if isinstance(command, Emit | Record | Notice):
                        await self._settle(command)
                    else:
                        self._waiting.append(command)
                if self._waiting:
                    return
        self._waiting.extend(self._turn.handle([AnswerFailed(InternalError("The backend ended its answer without an end."))]))
