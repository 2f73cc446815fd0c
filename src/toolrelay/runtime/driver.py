"""The loop that executes a turn's commands: it calls the model, feeds its events to the turn, and the turn's to the client.

Backpressure: a slow client delays `Sink.put`, which delays reading from the model, so that memory stays flat. Cancelling the loop
closes the model's stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Protocol

from toolrelay.backends.base import Backend, Wanted
from toolrelay.core.commands import AskAgain, CallModel, Command, DrainModel, Emit, End, Notice, RecordStep
from toolrelay.core.events import StreamEvent
from toolrelay.core.request import Request
from toolrelay.errors import InternalError

USAGE_SECONDS = 0.1  # limit on waiting for the usage of an answer that was cut off


class Layer(Protocol):
    """The driver's interface to a turn."""

    def start(self) -> list[Command]: ...

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]: ...

    def handle_model_stop(self) -> list[Command]: ...


class Sink(Protocol):
    """Receives a turn's events."""

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        """Return an awaitable if the next events must wait: the client reads slowly, or the response has to start first."""
        ...


class Observer(Protocol):
    """Receives a turn's records and notices."""

    def record(self, command: RecordStep) -> None: ...

    def notice(self, command: Notice) -> None: ...


async def drive(layer: Layer, backend: Backend, sink: Sink, observer: Observer) -> None:
    """Run the turn to its end."""
    runner = _CommandRunner(layer, sink, observer)
    await runner.run(layer.start())
    while runner.deferred:
        command = runner.deferred.pop(0)
        if type(command) is CallModel or type(command) is AskAgain:
            await runner.call_model(backend, command.request)
        elif type(command) is not End:
            raise InternalError("A gateway tool was called, but no gateway tool is offered.")


class _CommandRunner:
    """Executes commands at once where possible. The others, the last of a batch, are `deferred`."""

    __slots__ = ("_deadline", "_draining", "_failure", "_layer", "_observer", "_sink", "deferred")

    def __init__(self, layer: Layer, sink: Sink, observer: Observer) -> None:
        self._layer = layer
        self._sink = sink
        self._observer = observer
        self._deadline = asyncio.timeout(None)
        self._draining = False
        self._failure: Exception | None = None
        self.deferred: list[Command] = []

    async def run(self, commands: list[Command]) -> None:
        waiting = self._execute(iter(commands))
        if waiting is not None:
            await waiting

    async def call_model(self, backend: Backend, request: Request) -> None:
        self._draining = False
        self._deadline = deadline = asyncio.timeout(None)
        try:
            async with deadline:
                await backend.stream_into(request, self._deliver)
        except TimeoutError:
            if not deadline.expired():
                raise
        if self._failure is not None:
            raise self._failure
        if not self.deferred:
            await self.run(self._layer.handle_model_stop())

    def _deliver(self, batch: list[StreamEvent]) -> Awaitable[Wanted | None] | Wanted | None:
        """What fails here is raised by `call_model`, not through the backend, which would take it for its own."""
        try:
            commands = self._layer.handle(batch)
            if self._draining and commands:
                self._end_draining()
            waiting = self._execute(iter(commands))
        except Exception as error:  # noqa: BLE001 -- raised again in call_model
            self._failure = error
            return Wanted.NOTHING
        if waiting is not None:
            return self._deliver_slowly(waiting)
        return self._wanted() if self.deferred or self._draining else None  # a call less on the hottest path

    async def _deliver_slowly(self, waiting: Awaitable[None]) -> Wanted | None:
        try:
            await waiting
        except Exception as error:  # noqa: BLE001 -- as above
            self._failure = error
            return Wanted.NOTHING
        return self._wanted()

    def _wanted(self) -> Wanted | None:
        if self.deferred:
            return Wanted.NOTHING
        return Wanted.USAGE if self._draining else None

    def _end_draining(self) -> None:
        """The usage has arrived: what follows may wait for a slow client."""
        self._draining = False
        if not self._deadline.expired():
            self._deadline.reschedule(None)

    def _execute(self, commands: Iterator[Command]) -> Awaitable[None] | None:
        for command in commands:
            if type(command) is Emit:  # several times cheaper than a `match`, on the hottest path
                waiting = self._sink.put(command.events)
                if waiting is not None:
                    return self._execute_rest(waiting, commands)
            elif type(command) is RecordStep:
                self._observer.record(command)
            elif type(command) is Notice:
                self._observer.notice(command)
            elif type(command) is DrainModel:
                self._draining = True
                self._deadline.reschedule(asyncio.get_running_loop().time() + USAGE_SECONDS)
            else:
                self.deferred.append(command)
        return None

    async def _execute_rest(self, waiting: Awaitable[None], commands: Iterator[Command]) -> None:
        await waiting
        rest = self._execute(commands)
        if rest is not None:
            await rest
