"""Recorded turns. They belong to the runtime and not to a connection: clients follow a running turn, and leave it.

A turn that nothing is recorded of (a plain relay) runs in its connection's own task, in web.endpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from toolrelay import log
from toolrelay.backends.base import Backend
from toolrelay.core.commands import Command, RecordStep
from toolrelay.core.events import AnswerFailed, AnswerFinished, StreamEvent
from toolrelay.core.messages import Call
from toolrelay.core.playback import shown_events
from toolrelay.core.steps import ToolRunFinished, has_asked
from toolrelay.core.turn import Turn
from toolrelay.errors import InternalError, ToolrelayError
from toolrelay.runtime.approvals import TurnQuestions
from toolrelay.runtime.driver import Observer, Sink, drive
from toolrelay.runtime.executor import Executor
from toolrelay.runtime.ledger import CANCELLED, TurnLedger
from toolrelay.settings import ModelSettings
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolsets.base import ToolContext

OUT_OF_TIME = "The time for tools in this turn is used up. The tool was not run: answer with what you know."
RETRY_SECONDS = (0.2, 30.0)  # before the first retry of a record that could not be written, and at most
STOPPED = "The time for tools in this turn is used up. The tool was stopped, its outcome is unknown: answer with what you know."


class TurnTools:
    """Runs the gateway tools of one turn. Together they may take the model's time-out; runs beside each other count once."""

    def __init__(self, executor: Executor, turn: Turn, model: ModelSettings) -> None:
        self._executor = executor
        self._turn = turn
        self._model = model
        self._seconds = model.timeout_seconds
        self._running = 0
        self._running_since = 0.0

    async def run(self, call: Call) -> ToolRunFinished:
        left = self._seconds_left()
        if left <= 0:
            return ToolRunFinished(call_id=call.id, output=OUT_OF_TIME, failed=True)
        turn, model = self._turn, self._model
        context = ToolContext(call_id=call.id, key=turn.request.key, model=model.name, local=model.local, items=turn.items)
        if not self._running:
            self._running_since = time.monotonic()
        self._running += 1
        try:
            async with asyncio.timeout(left):
                return await self._executor.run(
                    call, context, max_result_bytes=model.max_tool_result_bytes, definition=self._definition(call)
                )
        except TimeoutError:
            self._seconds = 0  # a timer may fire a moment early: nothing is left all the same
            return ToolRunFinished(call_id=call.id, output=STOPPED, failed=True)
        finally:
            left = self._seconds_left()
            self._running -= 1
            if not self._running:
                self._seconds = left

    def _definition(self, call: Call) -> str | None:
        granted = self._turn.policy.tools.get(call.name)
        return None if granted is None else granted.definition

    def _seconds_left(self) -> float:
        return self._seconds - (time.monotonic() - self._running_since if self._running else 0)


class TurnObserver(Observer, Protocol):
    """Receives a recorded turn's records and notices, and the time of its first event."""

    def mark_first_event(self, now: float) -> None: ...


class TurnParts(Struct, frozen=True, kw_only=True):
    """All that a recorded turn needs to run. `commands` are the first ones of a turn that is resumed."""

    turn: Turn
    layer: ToolCallLayer
    backend: Backend
    observer: TurnObserver
    ledger: TurnLedger
    tools: TurnTools | None
    questions: TurnQuestions | None = None
    commands: list[Command] | None = None


class Follower(Sink, Protocol):
    """Receives the events of a turn. What `put` raises ends only the following."""


class RunningTurn:
    """A recorded turn that runs in a task of its own. It is the driver's sink, and passes the events on to its followers."""

    def __init__(self, parts: TurnParts, on_end: Callable[[RunningTurn], None], events: Sequence[StreamEvent] = ()) -> None:
        """`events` are those of a turn that is resumed."""
        self.parts = parts
        self.row = parts.ledger.row
        self.events = [*events]
        self._followers: list[Follower] = []
        self._failures: dict[int, Exception] = {}
        self._reason: ToolrelayError | None = None
        self._keeps_record_open = False
        self._is_cancelled = False
        self._begun = asyncio.Event()
        self._on_end = on_end
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_followers(self) -> bool:
        return bool(self._followers)

    @property
    def can_park(self) -> bool:
        """Return whether the turn waits for a person, and its client can get the answer later (decision 15)."""
        return (self.row.stored or self.row.background) and self.parts.turn.waits_for_person

    @property
    def outlives_the_gateway(self) -> bool:
        """Return whether the turn goes on after the next start: in the background, or stored and a person was asked."""
        return self.row.background or (self.row.stored and has_asked(self.parts.ledger.steps))

    @property
    def is_stopping(self) -> bool:
        return self._reason is not None or self._keeps_record_open

    async def wait_for_end(self) -> None:
        await self._ended.wait()

    async def wait_for_record(self) -> None:
        """Wait until the turn is on record. Raise its error if it ended before."""
        created = self.parts.ledger.created
        waiting = [asyncio.ensure_future(event.wait()) for event in (created, self._ended)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        error = self.parts.turn.error
        if not created.is_set() and error is not None:
            raise error.error

    def start(self, first: Follower | None = None) -> None:
        if first is not None:
            self.attach(first)
        self._task = asyncio.create_task(self._run())

    def attach(self, follower: Follower) -> None:
        """Pass on the events so far, and from now on those to come."""
        self._followers.append(follower)
        if self.events:
            self._put_to(follower, [*self.events])

    async def wait(self, follower: Follower) -> None:
        """Wait for the end of the turn. Raise what the follower raised."""
        try:
            await self._ended.wait()
        finally:
            self._leave(follower)
        failure = self._failures.pop(id(follower), None)
        if failure is not None:
            raise failure
        if not (self.events and isinstance(self.events[-1], AnswerFinished | AnswerFailed)):
            raise _shutting_down()

    def _leave(self, follower: Follower) -> None:
        with contextlib.suppress(ValueError):
            self._followers.remove(follower)

    async def cancel(self, reason: ToolrelayError | None = None) -> None:
        """End the turn, and record why."""
        if self._reason is None:
            self._reason = reason or InternalError("The turn was cancelled.", status=499, code=CANCELLED)
        await self.stop()

    def suspend(self) -> None:
        """Stop the turn where the model would be called next, and leave its record open: it goes on after the next start."""
        self._keeps_record_open = True

    async def wait_for_task(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Stop the task at once. A suspended turn is left as by a crash."""
        if self._task is not None:
            await self._begun.wait()  # a task that is cancelled before its first step would end without a trace
            if not self._is_cancelled:  # a second time would break off the record of the first
                self._is_cancelled = True
                self._task.cancel()
            await asyncio.wait([self._task])

    # The driver's sink

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if not self.events and type(events[0]) is not AnswerFailed:
            self.parts.observer.mark_first_event(time.monotonic())
        self.events += events
        followers = self._followers
        if len(followers) == 1:
            return self._put_to(followers[0], events)
        waiting = [each for follower in [*followers] if (each := self._put_to(follower, events)) is not None]
        return _wait_for_one(waiting) if waiting and len(waiting) == len(followers) else None

    def _put_to(self, follower: Follower, events: list[StreamEvent]) -> Awaitable[None] | None:
        try:
            return follower.put(events)
        except Exception as error:  # noqa: BLE001 -- raised by `wait`
            self._failures[id(follower)] = error
            self._leave(follower)
            return None

    # The task

    async def _run(self) -> None:
        parts = self.parts
        self._begun.set()
        try:
            await drive(
                parts.layer,
                parts.backend,
                self,
                parts.observer,
                ledger=parts.ledger,
                tools=parts.tools,
                asker=parts.questions,
                commands=parts.commands,
                stops=lambda: self._keeps_record_open,
            )
        except asyncio.CancelledError:
            if self._keeps_record_open:
                with contextlib.suppress(ToolrelayError):
                    await parts.ledger.flush()
            else:
                await self._fail(self._reason or InternalError("The gateway is shutting down.", status=503, code="shutting_down"))
        except ToolrelayError as error:
            await self._fail(error)
        except Exception:  # noqa: BLE001 -- a fault of the gateway ends the turn, and nothing else
            log.exception("internal_error", turn=self.row.id)
            await self._fail(InternalError(f"Something went wrong in the gateway. Its log says more under turn {self.row.id}."))
        finally:
            self._on_end(self)
            self._ended.set()

    async def _fail(self, error: ToolrelayError) -> None:
        """Record that the turn failed and tell its followers, unless they have seen its end."""
        turn, ledger = self.parts.turn, self.parts.ledger
        if self.events and isinstance(self.events[-1], AnswerFinished | AnswerFailed):
            return
        for command in turn.fail(error):
            if isinstance(command, RecordStep):
                ledger.add(command.step)
        end: StreamEvent = AnswerFailed(error)
        try:
            await ledger.flush()
        except ToolrelayError as problem:
            log.error("not_recorded", turn=self.row.id, reason=problem.message)
            if turn.error is None:
                ledger.replace_finish(turn.retract_finish(error))
        else:
            if turn.error is None:  # it had finished, and only its followers did not know
                end = shown_events(ledger.steps)[-1]
        waiting = self.put([end])
        if waiting is not None:
            with contextlib.suppress(Exception):
                await waiting


async def _wait_for_one(waiting: list[Awaitable[None]]) -> None:
    """Wait for the fastest follower. What the others have not read is kept for them, at most the whole answer."""
    await asyncio.wait([asyncio.ensure_future(each) for each in waiting], return_when=asyncio.FIRST_COMPLETED)


async def _wait_for_first(ending: asyncio.Future[list[None]], force: asyncio.Event | None, seconds: float) -> None:
    """Wait for the end of turns, for an event, or for so many seconds."""
    forced = asyncio.ensure_future((force or asyncio.Event()).wait())
    waiting: list[asyncio.Future[Any]] = [ending, forced]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)


async def _do_nothing() -> None:
    return


class Turns:
    """The turns that run, by token; and those that have ended while their end could not be recorded.

    The end of a turn that is on record is written again and again until that succeeds or the gateway stops: otherwise it would
    seem to run for ever.
    """

    def __init__(self, on_stop: Callable[[str], None] = lambda _: None) -> None:
        """`on_stop` is called with the token of a turn that no longer runs."""
        self._running: dict[str, RunningTurn] = {}
        self._unrecorded: dict[str, TurnLedger] = {}
        self._recording: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._on_stop = on_stop

    def start(
        self,
        parts: TurnParts,
        first: Follower | None,
        on_end: Callable[[RunningTurn], None],
        *,
        events: Sequence[StreamEvent] = (),
        on_recorded: Callable[[], Awaitable[None]] = _do_nothing,
    ) -> RunningTurn:
        """`on_recorded` is called after an end that could not be recorded at once: it is on record now, or was given up."""

        def end(ended: RunningTurn) -> None:
            token, ledger = ended.row.id, ended.parts.ledger
            self._running.pop(token, None)
            if ledger.created.is_set() and ledger.has_unsaved_end:
                self._unrecorded[token] = ledger
                task = asyncio.create_task(self._record_late(ledger, on_recorded))
                self._recording.add(task)
                task.add_done_callback(self._recording.discard)
            self._on_stop(token)
            on_end(ended)

        running = RunningTurn(parts, end, events)
        self._running[running.row.id] = running
        running.start(first)
        return running

    def find(self, token: str, owner: str) -> RunningTurn | None:
        running = self._running.get(token)
        return running if running is not None and running.row.owner == owner else None

    async def drain(self) -> None:
        """Stop the turns that wait for a person: nobody can answer any more. Those that can go on after the next start do."""
        waiting = [each for each in self._running.values() if each.parts.turn.waits_for_person]
        for each in waiting:
            if each.can_park:
                each.suspend()
        await asyncio.gather(*[each.stop() if each.can_park else each.cancel(_shutting_down()) for each in waiting])

    def find_unrecorded(self, token: str, owner: str) -> TurnLedger | None:
        """Return the ledger of a turn that has ended, if it has steps that the store has not."""
        ledger = self._unrecorded.get(token)
        return ledger if ledger is not None and ledger.row.owner == owner else None

    async def _record_late(self, ledger: TurnLedger, on_recorded: Callable[[], Awaitable[None]]) -> None:
        token, (seconds, most) = ledger.row.id, RETRY_SECONDS
        while ledger.has_unsaved_end:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
            is_last = self._closing.is_set()
            try:
                await ledger.flush()
            except ToolrelayError as problem:
                if is_last:
                    log.error("not_recorded", turn=token, reason=problem.message)
                    break
            else:
                log.info("recorded_late", turn=token)
            seconds = min(seconds * 2, most)
        del self._unrecorded[token]
        await on_recorded()

    async def close(self, seconds: float = 0, force: asyncio.Event | None = None) -> None:
        """Stop all turns. Background turns, and stored ones that wait for a person, go on after the next start; the others fail.

        The answers and tools of background turns have this time to finish, unless `force` is set. Ends that are not on record are
        written once more.
        """
        suspended = [each for each in self._running.values() if each.outlives_the_gateway]
        for each in suspended:
            each.suspend()
        await asyncio.gather(*[each.cancel(_shutting_down()) for each in self._running.values() if each not in suspended])
        working = [each for each in suspended if not each.can_park]
        if working and seconds > 0:
            await _wait_for_first(asyncio.gather(*[each.wait_for_task() for each in working]), force, seconds)
        await asyncio.gather(*[each.stop() for each in suspended])
        self._closing.set()
        await asyncio.gather(*self._recording)


def _shutting_down() -> InternalError:
    return InternalError("The gateway is shutting down.", status=503, code="shutting_down")
