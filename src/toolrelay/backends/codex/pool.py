"""A pool of app-servers, started on demand. Each turn leases one of them.

A process never frees a thread, and its home collects logs. So a process with too many threads or too much memory is replaced: a
new one is started beside it and gets all new turns; the old one exits after its last turn. A process that died is replaced at
once, unless it had not served any turn: a binary that cannot run is not started again and again.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

from toolrelay import log
from toolrelay.backends.codex.binary import CodexBinary
from toolrelay.backends.codex.errors import CodexError
from toolrelay.backends.codex.home import CodexHome, probe_location, remove_stale_homes
from toolrelay.backends.codex.process import AppServerProcess, Channel
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.backends.codex.sign_in import SignIn
from toolrelay.core.json import JsonObject

MAX_THREADS = 200
MAX_RESIDENT_BYTES = 600 * 1024 * 1024
SYNC_SECONDS = 1.0


class Lease:
    """One turn's use of a process. Its end closes the channels of all threads that it opened."""

    def __init__(self, process: AppServerProcess) -> None:
        self.process = process
        self._threads: set[str] = set()

    async def call(self, method: str, params: JsonObject, *, within: float = 30.0) -> JsonObject:
        return await self.process.call(method, params, within=within, threads=self._threads)

    def open_channel(self, thread_id: str) -> Channel:
        """Return the messages of a thread, complete since the reply that opened it."""
        self._threads.add(thread_id)
        return self.process.channel(thread_id)

    def end(self) -> None:
        for thread_id in self._threads & self.process.channels.keys():
            self.process.channels[thread_id].close()


@dataclass(eq=False, slots=True)
class PooledProcess:
    """`turns` are running, `served` have ended. `is_replaced`: its successor is being started; `is_closing`: no new turns."""

    process: AppServerProcess
    turns: int = 0
    served: int = 0
    is_replaced: bool = False
    is_closing: bool = False


class ProcessPool:
    """`binary` is probed with the first start if it is not given."""

    def __init__(
        self,
        location: CodexLocation,
        *,
        size: int | None = None,
        binary: CodexBinary | None = None,
        max_turns: int = 32,
        max_threads: int = MAX_THREADS,
        max_resident_bytes: int = MAX_RESIDENT_BYTES,
    ) -> None:
        self.processes: list[PooledProcess] = []
        self._location = location
        self._size = size or os.cpu_count() or 1
        self._max_turns = max_turns
        self._max_threads = max_threads
        self._max_resident_bytes = max_resident_bytes
        self._sign_in = SignIn(location.auth_file, location.folder) if location.is_account and location.auth_file else None
        self._binary = binary
        self._probe: asyncio.Task[CodexBinary] | None = None
        self._queue: deque[asyncio.Future[PooledProcess]] = deque()
        self._starting = 0
        self._starts: set[asyncio.Task[None]] = set()
        self._exits: set[asyncio.Task[None]] = set()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        """Wait for a process, in order of arrival. Raise CodexError, or ConfigurationError for an unusable binary."""
        self._sync_sign_in()
        pooled = await self._acquire()
        lease = Lease(pooled.process)
        try:
            yield lease
        finally:
            lease.end()
            self._release(pooled)

    async def close(self) -> None:
        """End every process, and every turn on them with CodexError."""
        self._is_closed = True
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._fail_queue(CodexError("The gateway is closing", is_gone=True))
        for task in self._starts:
            task.cancel()
        closing = (pooled.process.close() for pooled in self.processes)
        probe = [] if self._probe is None else [self._probe]
        await asyncio.gather(*self._starts, *self._exits, *probe, *closing, return_exceptions=True)
        if self._sign_in is not None:
            self._sign_in.sync()

    # Turns

    async def _acquire(self) -> PooledProcess:
        if self._is_closed:
            raise CodexError("The gateway is closing", is_gone=True)
        waiter: asyncio.Future[PooledProcess] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        self._serve_queue()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())
            raise

    def _least_busy(self) -> PooledProcess | None:
        usable = [pooled for pooled in self.processes if not pooled.is_closing and pooled.turns < self._max_turns]
        return min(usable, key=lambda pooled: (pooled.is_replaced, pooled.turns), default=None)

    def _release(self, pooled: PooledProcess) -> None:
        pooled.turns -= 1
        pooled.served += 1
        if self._is_closed or pooled not in self.processes:
            return
        if pooled.is_closing and not pooled.turns:
            self._remove(pooled)
        elif not pooled.is_replaced and self._is_worn_out(pooled.process):
            self._replace(pooled, at_once=pooled.process.is_unresponsive)
        self._serve_queue()

    def _serve_queue(self) -> None:
        while self._queue and (pooled := self._least_busy()) is not None:
            waiter = self._queue.popleft()
            if not waiter.done():
                if pooled.turns:
                    self._grow()
                pooled.turns += 1
                waiter.set_result(pooled)
        if self._starting < len(self._queue):
            self._grow()

    def _fail_queue(self, error: Exception) -> None:
        waiters, self._queue = self._queue, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    # Processes

    def _grow(self) -> None:
        if sum(not pooled.is_closing for pooled in self.processes) + self._starting < self._size:
            self._start_in_background()

    def _start_in_background(self, replaced: PooledProcess | None = None) -> None:
        self._starting += 1  # here, because the task runs only later
        self._spawn(self._add_process(replaced), self._starts)

    async def _add_process(self, replaced: PooledProcess | None) -> None:
        try:
            pooled = await self._start()
        except Exception as error:  # noqa: BLE001 -- the waiting turns must get it, whatever it is
            log.warning("codex_start_failed", reason=str(error))
            self._binary = None  # another version may have replaced it
            if replaced is not None:
                replaced.is_replaced = False
            if self._starting == 1 and all(pooled.is_closing for pooled in self.processes):
                self._fail_queue(error)
            return
        finally:
            self._starting -= 1
        self.processes.append(pooled)
        if replaced is not None:
            replaced.is_closing = True
            if not replaced.turns and replaced in self.processes:
                self._remove(replaced)
        self._serve_queue()

    async def _start(self) -> PooledProcess:
        if self._binary is None:
            if self._probe is None:  # one for all concurrent starts; it runs to its end even if they are cancelled
                self._probe = asyncio.create_task(self._probe_binary())
            self._binary = await asyncio.shield(self._probe)
        home = CodexHome(self._location.folder)
        try:
            home.write_config(self._location, self._binary, self._sign_in.shared_file if self._sign_in is not None else None)
        except BaseException:
            home.remove()
            raise
        process = AppServerProcess(self._location, home, on_end=lambda: self._on_process_end(pooled))
        pooled = PooledProcess(process)
        await process.start()
        if process.end_reason is not None:
            await process.close()
            raise process.ended_error()
        log.info("codex_started", pid=process.pid, model=self._location.model)
        return pooled

    async def _probe_binary(self) -> CodexBinary:
        remove_stale_homes(self._location.folder)
        try:
            return await probe_location(self._location)
        finally:
            self._probe = None

    def _on_process_end(self, pooled: PooledProcess) -> None:
        if pooled not in self.processes or self._is_closed:  # the pool ended it
            return
        log.warning("codex_lost", pid=pooled.process.pid, turns=pooled.turns)
        self._remove(pooled)
        if pooled.served or pooled.turns or self._queue:
            self._grow()

    def _is_worn_out(self, process: AppServerProcess) -> bool:
        has_too_many_threads = process.thread_count >= self._max_threads
        return process.is_unresponsive or has_too_many_threads or process.resident_bytes() > self._max_resident_bytes

    def _replace(self, pooled: PooledProcess, *, at_once: bool) -> None:
        """Start a successor. With `at_once`, new turns wait for it."""
        pooled.is_replaced = True
        pooled.is_closing = at_once
        log.info("codex_retired", pid=pooled.process.pid, threads=pooled.process.thread_count)
        self._start_in_background(pooled)

    def _remove(self, pooled: PooledProcess) -> None:
        self.processes.remove(pooled)
        self._spawn(pooled.process.close(), self._exits)

    def _spawn(self, work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # Sign-in

    def _sync_sign_in(self) -> None:
        """Sync now, and every second while there are processes that may refresh the sign-in."""
        if self._sign_in is None or self._is_closed:
            return
        if self._sign_in.sync():
            for pooled in self.processes:
                if not pooled.is_replaced:
                    self._replace(pooled, at_once=True)
        if self._sync_timer is None:
            self._sync_timer = asyncio.get_running_loop().call_later(SYNC_SECONDS, self._on_sync_timer)

    def _on_sync_timer(self) -> None:
        self._sync_timer = None
        if self.processes or self._starting:
            self._sync_sign_in()
