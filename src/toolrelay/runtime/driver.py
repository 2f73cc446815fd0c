"""The loop that executes a turn's commands: it calls the model, runs tools, and feeds what they give to the turn.

Backpressure: a slow client delays `Sink.put`, which delays reading from the model, so that memory stays flat. Cancelling the loop
closes the model's stream and cancels the tools.

Steps are durable before the commands after them are executed: the driver waits for `Ledger.flush` in between. A turn without a
ledger is not recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from msgspec.structs import replace

from toolrelay.backends.base import Backend, Wanted
from toolrelay.core.commands import AskAgain, AskPerson, CallModel, Command, DrainModel, Emit, End, Notice, RecordStep, RunTool
from toolrelay.core.events import Noticed, StreamEvent
from toolrelay.core.messages import Call
from toolrelay.core.request import Request
from toolrelay.core.steps import AnswerReceived, ReceivedStep, StepEvent, ToolRunFinished
from toolrelay.errors import InternalError

USAGE_SECONDS = 0.1  # limit on waiting for the usage of an answer that was cut off


class Layer(Protocol):
    """The driver's interface to a turn."""

    def start(self) -> list[Command]: ...

    def handle(self, events: Sequence[StreamEvent]) -> list[Command]: ...

    def handle_step(self, step: ReceivedStep) -> list[Command]: ...

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


class Ledger(Protocol):
    """Keeps a turn's steps."""

    def add(self, step: StepEvent) -> None: ...

    async def flush(self) -> None:
        """Return when the steps so far are durable."""
        ...


class Asker(Protocol):
    """Asks people."""

    async def ask(self, command: AskPerson) -> ReceivedStep:
        """Return the answer to a question that is on record."""
        ...


class ToolRunner(Protocol):
    """Runs gateway tools."""

    async def run(self, call: Call) -> ToolRunFinished:
        """Return the result of the call; failures are results too."""
        ...


async def drive(
    layer: Layer,
    backend: Backend,
    sink: Sink,
    observer: Observer,
    *,
    ledger: Ledger | None = None,
    tools: ToolRunner | None = None,
    asker: Asker | None = None,
    commands: list[Command] | None = None,
    stops: Callable[[], bool] = lambda: False,
) -> None:
    """Run the turn to its end. `commands` are the first ones of a turn that is resumed.

    If `stops` returns True, the turn is left where the model would be called next. Everything before is on record.
    """
    runner = _CommandRunner(layer, sink, observer, ledger)
    await runner.run(layer.start() if commands is None else commands)
    if ledger is None and tools is None:
        await _call_models(runner, backend)
    else:
        await _run_tools(runner, layer, backend, tools=tools, asker=asker, stops=stops)


async def _call_models(runner: _CommandRunner, backend: Backend) -> None:
    while runner.deferred:
        command = runner.deferred.pop(0)
        if type(command) is CallModel or type(command) is AskAgain:
            await runner.call_model(backend, command.request)
        elif type(command) is not End:
            raise InternalError("A gateway tool was called, but no gateway tool is offered.")


async def _run_tools(
    runner: _CommandRunner,
    layer: Layer,
    backend: Backend,
    *,
    tools: ToolRunner | None,
    asker: Asker | None,
    stops: Callable[[], bool],
) -> None:
    running: set[asyncio.Task[Any]] = set()  # their results are the steps that the turn waits for
    try:
        while runner.deferred or running:
            await runner.flush()
            if not runner.deferred:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await runner.run(layer.handle_step(task.result()))
                continue
            command = runner.deferred.pop(0)
            if type(command) is CallModel or type(command) is AskAgain:
                if stops():
                    break
                await runner.call_model(backend, command.request)
            elif type(command) is RunTool and tools is not None:
                running.add(asyncio.create_task(tools.run(command.call)))
            elif type(command) is AskPerson and asker is not None:
                running.add(asyncio.create_task(asker.ask(command)))
            elif type(command) is End:
                break
            else:
                raise InternalError("A gateway tool was called, but no gateway tool is offered.")
        await runner.flush()
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


class _CommandRunner:
    """Executes commands at once where possible. The others, the last of a batch, are `deferred`."""

    __slots__ = (
        "_called_at",
        "_drain_timer",
        "_draining",
        "_failure",
        "_first_at",
        "_has_unsaved",
        "_is_expired",
        "_layer",
        "_ledger",
        "_observer",
        "_sink",
        "_task",
        "deferred",
    )

    def __init__(self, layer: Layer, sink: Sink, observer: Observer, ledger: Ledger | None) -> None:
        self._layer = layer
        self._sink = sink
        self._observer = observer
        self._ledger = ledger
        self._has_unsaved = False
        self._called_at = 0.0
        self._first_at: float | None = None
        self._task: asyncio.Task[Any] | None = None  # the one that calls the model
        self._draining = False
        self._drain_timer: asyncio.TimerHandle | None = None
        self._is_expired = False  # the task was cancelled because the usage did not come in time
        self._failure: Exception | None = None
        self.deferred: list[Command] = []

    async def run(self, commands: list[Command]) -> None:
        waiting = self._execute(iter(commands))
        if waiting is not None:
            await waiting

    async def flush(self) -> None:
        if self._has_unsaved and self._ledger is not None:
            await self._ledger.flush()
            self._has_unsaved = False

    async def call_model(self, backend: Backend, request: Request) -> None:
        self._draining = self._is_expired = False
        self._task = task = asyncio.current_task()
        cancellations = 0 if task is None else task.cancelling()
        deliver = self._deliver
        if self._ledger is not None:
            deliver = self._deliver_timed
            self._called_at, self._first_at = time.monotonic(), None
        try:
            await backend.stream_into(request, deliver)
        except asyncio.CancelledError:
            if not self._is_expired or task is None or task.uncancel() > cancellations:
                raise
        finally:
            if self._drain_timer is not None:
                self._drain_timer.cancel()
        if self._failure is not None:
            raise self._failure
        if not self.deferred:
            await self.run(self._layer.handle_model_stop())

    def _deliver_timed(self, batch: list[StreamEvent]) -> Awaitable[Wanted | None] | Wanted | None:
        """Note when the first event arrives. Only recorded turns need it."""
        if self._first_at is None and batch and type(batch[0]) is not Noticed:
            self._first_at = time.monotonic()
        return self._deliver(batch)

    def _add_times(self, step: StepEvent) -> StepEvent:
        """Return the step, an answer with the times that it took."""
        if type(step) is not AnswerReceived or self._first_at is None:
            return step
        called_at = self._called_at
        return replace(step, first_ms=_milliseconds(self._first_at - called_at), ms=_milliseconds(time.monotonic() - called_at))

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
        if self._drain_timer is not None:
            self._drain_timer.cancel()

    def _stop_model(self) -> None:
        if self._task is not None:
            self._is_expired = True
            self._task.cancel()

    def _execute(self, commands: Iterator[Command]) -> Awaitable[None] | None:
        for command in commands:
            if type(command) is Emit:  # several times cheaper than a `match`, on the hottest path
                if self._has_unsaved:
                    return self._execute_rest(self.flush(), chain((command,), commands))
                waiting = self._sink.put(command.events)
                if waiting is not None:
                    return self._execute_rest(waiting, commands)
            elif type(command) is RecordStep:
                self._observer.record(command)
                if self._ledger is not None:
                    self._ledger.add(self._add_times(command.step))
                    self._has_unsaved = True
            elif type(command) is Notice:
                self._observer.notice(command)
            elif type(command) is DrainModel:
                self._draining = True
                self._drain_timer = asyncio.get_running_loop().call_later(USAGE_SECONDS, self._stop_model)
            else:
                self.deferred.append(command)
        return None

    async def _execute_rest(self, waiting: Awaitable[None], commands: Iterator[Command]) -> None:
        await waiting
        rest = self._execute(commands)
        if rest is not None:
            await rest


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
