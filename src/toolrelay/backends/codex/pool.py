"""A few app-servers, started when they are needed: each turn leases a place on one of them.

A process never frees a thread, and an unread log grows in its home. So a process that has had its share of either is replaced: a
fresh one is started beside it, gets all new turns, and the old one ends with its last turn. One that died is replaced at once,
unless it had not served anyone: what cannot run at all is not started over and over.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from toolrelay import log
from toolrelay.backends.codex.binary import Binary, survey
from toolrelay.backends.codex.home import CodexLocation, Home, remove_stale_homes
from toolrelay.backends.codex.process import Channel, CodexError, Process
from toolrelay.backends.codex.sign_in import SignIn
from toolrelay.core.json import JsonObject

MOST_THREADS = 200
MOST_RESIDENT = 600 * 1024 * 1024
SYNC_SECONDS = 1.0


class Lease:
    """One turn's place on one process. Ending it closes the channels of all threads that it opened."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._threads: set[str] = set()

    async def call(self, method: str, params: JsonObject, *, within: float = 30.0) -> JsonObject:
        return await self._process.call(method, params, within=within, threads=self._threads)

    def listen(self, thread_id: str) -> Channel:
        """The messages of a thread, from the reply on that opened it, whenever this is called."""
        self._threads.add(thread_id)
        return self._process.channel(thread_id)

    @property
    def work(self) -> str:
        """An empty directory, for a thread's `cwd`."""
        return self._process.work

    def end(self) -> None:
        for thread_id in self._threads:
            channel = self._process.channels.get(thread_id)
            if channel is not None:
                channel.close()


class PooledProcess:
    """A process in the pool. `is_closing`: it gets no new turns; `is_tired`: a fresh one is being started for it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.turns = 0
        self.served = 0
        self.is_tired = False
        self.is_closing = False


class Pool:
    def __init__(
        self,
        place: CodexLocation,
        *,
        size: int | None = None,
        most_turns: int = 32,
        most_threads: int = MOST_THREADS,
        most_resident: int = MOST_RESIDENT,
    ) -> None:
        self._place = place
        self._size = size or os.cpu_count() or 1
        self._most_turns = most_turns
        self._most_threads = most_threads
        self._most_resident = most_resident
        self._sign_in = SignIn(place.sign_in, place.folder) if place.is_account and place.sign_in else None
        self._binary: Binary | None = None
        self._surveying: asyncio.Task[Binary] | None = None
        self._seats: list[PooledProcess] = []
        self._queue: deque[asyncio.Future[PooledProcess]] = deque()
        self._starting = 0
        self._starts: set[asyncio.Task[None]] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._syncing: asyncio.TimerHandle | None = None
        self._is_closed = False

    def lease(self) -> AbstractAsyncContextManager[Lease]:
        """Waits for room, first come, first served. Raises CodexError, or ConfigurationError for a binary that is of no use."""
        return self._lease()

    @asynccontextmanager
    async def _lease(self) -> AsyncIterator[Lease]:
        self._sync()
        seat = await self._seat()
        lease = Lease(seat.process)
        try:
            yield lease
        finally:
            lease.end()
            self._leave(seat)

    async def close(self) -> None:
        """Ends every process, and every turn on them with CodexError."""
        self._is_closed = True
        if self._syncing is not None:
            self._syncing.cancel()
        self._fail(CodexError("The gateway is closing", gone=True))
        for task in self._starts:
            task.cancel()
        closing = (seat.process.close() for seat in self._seats)
        surveying = [] if self._surveying is None else [self._surveying]
        await asyncio.gather(*self._starts, *self._farewells, *surveying, *closing, return_exceptions=True)
        if self._sign_in is not None:
            self._sign_in.sync()

    # Seats

    async def _seat(self) -> PooledProcess:
        if self._is_closed:
            raise CodexError("The gateway is closing", gone=True)
        seat = None if self._queue else self._roomiest()
        if seat is None:
            waiting: asyncio.Future[PooledProcess] = asyncio.get_running_loop().create_future()
            self._queue.append(waiting)
            self._grow()
            try:
                return await waiting
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                    self._leave(waiting.result())
                raise
        if seat.turns:
            self._grow()
        seat.turns += 1
        return seat

    def _roomiest(self) -> PooledProcess | None:
        open_seats = [seat for seat in self._seats if not seat.is_closing and seat.turns < self._most_turns]
        return min(open_seats, key=lambda seat: (seat.is_tired, seat.turns), default=None)

    def _leave(self, seat: PooledProcess) -> None:
        seat.turns -= 1
        seat.served += 1
        if self._is_closed or seat not in self._seats:
            return
        if seat.is_closing and not seat.turns:
            self._remove(seat)
        elif not seat.is_tired and self._has_had_its_share(seat.process):
            self._retire(seat, at_once=seat.process.is_slow)
        self._serve()

    def _serve(self) -> None:
        while self._queue and (seat := self._roomiest()) is not None:
            waiting = self._queue.popleft()
            if not waiting.done():
                seat.turns += 1
                waiting.set_result(seat)
        if self._starting < len(self._queue):
            self._grow()

    def _fail(self, error: Exception) -> None:
        waiting, self._queue = self._queue, deque()
        for each in waiting:
            if not each.done():
                each.set_exception(error)

    # Processes

    def _grow(self) -> None:
        if len([seat for seat in self._seats if not seat.is_closing]) + self._starting < self._size:
            self._begin()

    def _begin(self, instead_of: PooledProcess | None = None) -> None:
        self._starting += 1  # at once: a task begins only later
        self._spawn(self._add(instead_of), self._starts)

    async def _add(self, instead_of: PooledProcess | None) -> None:
        """Starts a process. Those who wait for one are told if it cannot be."""
        try:
            seat = await self._start()
        except Exception as error:  # noqa: BLE001 -- whoever waits must hear of it, whatever it is
            log.warning("codex_start_failed", reason=str(error))
            self._binary = None  # it may have been replaced by another version
            if instead_of is not None:
                instead_of.is_tired = False
            if self._starting == 1 and all(seat.is_closing for seat in self._seats):
                self._fail(error)
            return
        finally:
            self._starting -= 1
        self._seats.append(seat)
        if instead_of is not None:
            instead_of.is_closing = True
            if not instead_of.turns and instead_of in self._seats:
                self._remove(instead_of)
        self._serve()

    async def _start(self) -> PooledProcess:
        binary = await self._surveyed()
        home = Home(self._place.folder)
        try:
            home.furnish(self._place, binary, self._sign_in.ours if self._sign_in is not None else None)
        except BaseException:
            home.remove()
            raise
        process = Process(self._place, home, on_end=lambda: self._lost(seat))
        seat = PooledProcess(process)
        await process.start()
        if process.ended is not None:
            await process.close()
            raise process.gone()
        log.info("codex_started", pid=process.pid, model=self._place.model)
        return seat

    async def _surveyed(self) -> Binary:
        """Once for all who start at the same time, and to its end, even if nobody waits for it any more."""
        if self._binary is None:
            if self._surveying is None:
                self._surveying = asyncio.create_task(self._survey())
            self._binary = await asyncio.shield(self._surveying)
        return self._binary

    async def _survey(self) -> Binary:
        remove_stale_homes(self._place.folder)
        home = Home(self._place.folder)
        try:
            return await survey(self._place.binary, home.environ(self._place))
        finally:
            home.remove()
            self._surveying = None

    def _lost(self, seat: PooledProcess) -> None:
        """It ended: because it was told to, then it is no longer among the seats, or by itself."""
        if seat not in self._seats or self._is_closed:
            return
        log.warning("codex_lost", pid=seat.process.pid, turns=seat.turns)
        self._remove(seat)
        if seat.served or seat.turns or self._queue:
            self._grow()

    def _has_had_its_share(self, process: Process) -> bool:
        return process.is_slow or process.threads >= self._most_threads or process.resident_bytes() > self._most_resident

    def _retire(self, seat: PooledProcess, *, at_once: bool) -> None:
        """`at_once`: new turns wait for the fresh one."""
        seat.is_tired = True
        seat.is_closing = at_once
        log.info("codex_retired", pid=seat.process.pid, threads=seat.process.threads)
        self._begin(seat)

    def _remove(self, seat: PooledProcess) -> None:
        self._seats.remove(seat)
        self._spawn(seat.process.close(), self._farewells)

    def _spawn(self, work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # The sign-in

    def _sync(self) -> None:
        """Now and every second, as long as there are processes that may refresh it."""
        if self._sign_in is None or self._is_closed:
            return
        if self._sign_in.sync():
            for seat in self._seats:
                if not seat.is_tired:
                    self._retire(seat, at_once=True)
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().call_later(SYNC_SECONDS, self._sync_again)

    def _sync_again(self) -> None:
        self._syncing = None
        if self._seats or self._starting:
            self._sync()
