"""Threads for functions that block. They are daemons: a function that never returns does not keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from msgspec import Struct


class FunctionOutcome(Struct, frozen=True):
    """What a function returned, or raised: any exception at all, so it is a value here and not raised."""

    value: Any = None
    error: BaseException | None = None


class _Job(Struct):
    function: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[FunctionOutcome]


class Threads:
    """At most `size` threads, started when they are needed. Further functions wait."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._pending: set[asyncio.Future[FunctionOutcome]] = set()  # of functions that wait or run

    async def run(self, function: Callable[[], Any]) -> FunctionOutcome:
        """Run the function in a thread.

        A thread cannot be killed, so the first cancellation waits until the function has returned; a second one does not.
        """
        loop = asyncio.get_running_loop()
        job = _Job(function, contextvars.copy_context(), loop, loop.create_future())
        if len(self._pending) >= self._threads and self._threads < self._size:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._threads += 1
        self._pending.add(job.done)
        self._jobs.put(job)
        try:
            await asyncio.wait({job.done})
        except asyncio.CancelledError:
            await asyncio.wait({job.done})
            raise
        return job.done.result()

    def close(self) -> None:
        """End the threads, each when its function has returned, and wait for none of them any more."""
        for _ in range(self._threads):
            self._jobs.put(None)
        for done in self._pending:
            done.cancel()

    def _work(self) -> None:
        process = os.getpid()
        while (job := self._jobs.get()) is not None:
            try:
                outcome = FunctionOutcome(job.context.run(job.function))
            except BaseException as error:  # noqa: BLE001 -- SystemExit too must not end the thread
                outcome = FunctionOutcome(error=error)
            end_forked_child(process)
            try:
                job.loop.call_soon_threadsafe(self._finish, job.done, outcome)
            except RuntimeError:  # the loop is closed: the gateway has stopped
                return
            del job, outcome  # the next job may be long in coming

    def _finish(self, done: asyncio.Future[FunctionOutcome], outcome: FunctionOutcome) -> None:
        self._pending.discard(done)
        if not done.done():
            done.set_result(outcome)


def end_forked_child(process: int) -> None:
    """End this process if a function forked and came back in the child, which would go on as a second gateway."""
    if os.getpid() != process:
        os._exit(0)
