"""The group-commit writer: one thread that puts all waiting writes into one transaction.

A commit waits for the disk, whatever it contains. So writes that arrive during a commit share the next one. Each of several
writes is a savepoint: if it fails, only its caller gets the error. If the transaction as a whole is lost, as it may be when the
disk is full, its writes are repeated one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from toolrelay.errors import StoreError
from toolrelay.stores.sql.database import Connection, Database, Operation

T = TypeVar("T")

MAX_WAITING = 4096  # further callers wait for a free place
MAX_BATCH = 1000

_Job: TypeAlias = tuple[Operation[Any], "asyncio.Future[Any]"]
_Outcome: TypeAlias = tuple["asyncio.Future[Any]", Any, Exception | None]


class GroupCommitWriter:
    """Runs operations in its thread. It belongs to the event loop in which it was opened."""

    def __init__(self, database: Database, *, max_waiting: int = MAX_WAITING) -> None:
        self._database = database
        self._slots = asyncio.Semaphore(max_waiting)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def open(self) -> None:
        """Start the thread and wait until it is connected."""
        self._loop = asyncio.get_running_loop()
        connected: asyncio.Future[None] = self._loop.create_future()
        # A daemon, so that an abandoned store does not keep the process alive. What was acknowledged is on the disk.
        self._thread = threading.Thread(target=self._run, args=(connected,), name="store-writer", daemon=True)
        self._thread.start()
        try:
            await connected
        except BaseException:
            self._queue.put(None)  # if it was cancelled, the thread may still connect
            raise
        self._is_open = True

    async def close(self) -> None:
        """Finish the waiting operations and end the thread."""
        if not self._is_open or self._thread is None:
            return
        self._is_open = False
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    async def run(self, operation: Operation[T]) -> T:
        """Run the operation in the next transaction. Return when that is committed."""
        async with self._slots:
            if not self._is_open or self._loop is None:
                raise StoreError("The store is closed.")
            future: asyncio.Future[T] = self._loop.create_future()
            self._queue.put((operation, future))
            return await future

    def _run(self, connected: asyncio.Future[None]) -> None:
        try:
            connection = self._database.connect()
        except Exception as error:  # noqa: BLE001 -- it goes to the caller of open()
            self._report([(connected, None, error)])
            return
        self._report([(connected, None, None)])
        with contextlib.closing(connection):
            is_last = False
            while not is_last:
                batch, is_last = self._take_batch()
                if batch:
                    self._report(self._run_batch(connection, batch))

    def _take_batch(self) -> tuple[list[_Job], bool]:
        """Wait for an operation, and take all that are there. Also return whether they are the last."""
        batch: list[_Job] = []
        job = self._queue.get()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _run_batch(self, connection: Connection, batch: list[_Job]) -> list[_Outcome]:
        if len(batch) == 1:  # it needs no savepoint
            return [self._run_alone(connection, batch[0])]
        try:
            outcomes = self._run_transaction(connection, batch)
        except _TransactionLostError:
            return [self._run_alone(connection, job) for job in batch]
        except Exception as error:  # noqa: BLE001 -- it goes to the callers
            return [(future, None, self._database.convert_error(error)) for _, future in batch]
        for number, (_, _, failure) in enumerate(outcomes):
            if failure is not None and self._make_room(connection, failure):
                outcomes[number] = self._run_alone(connection, batch[number])
        return [_converted(outcome, self._database) for outcome in outcomes]

    def _run_transaction(self, connection: Connection, batch: list[_Job]) -> list[_Outcome]:
        connection.execute(self._database.begin)
        try:
            outcomes = [_run_job(connection, job) for job in batch]
            connection.execute("COMMIT")
        except Exception as error:
            _roll_back(connection)
            raise _TransactionLostError(error) from error
        return outcomes

    def _run_alone(self, connection: Connection, job: _Job) -> _Outcome:
        """Run an operation in its own transaction. Repeat it as long as room can be made for it."""
        operation, future = job
        while True:
            try:
                connection.execute(self._database.begin)
                result = operation(connection)
                connection.execute("COMMIT")
            except Exception as error:  # noqa: BLE001 -- it goes to the caller
                _roll_back(connection)
                if not self._make_room(connection, error):
                    return future, None, self._database.convert_error(error)
            else:
                return future, result, None

    def _make_room(self, connection: Connection, error: Exception) -> bool:
        try:
            return self._database.make_room(connection, error)
        except Exception:  # noqa: BLE001 -- then the write fails with its own error
            return False

    def _report(self, outcomes: list[_Outcome]) -> None:
        """Wake the event loop once for all. A loop that is closed has no callers any more."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_resolve, outcomes)


class _TransactionLostError(Exception):
    """The database gave up a transaction that has more than the failed operation in it."""


def _run_job(connection: Connection, job: _Job) -> _Outcome:
    operation, future = job
    connection.execute("SAVEPOINT operation")
    try:
        result = operation(connection)
    except Exception as error:  # noqa: BLE001 -- it goes to the caller
        connection.execute("ROLLBACK TO SAVEPOINT operation")  # fails if the transaction is lost
        connection.execute("RELEASE SAVEPOINT operation")
        return future, None, error
    connection.execute("RELEASE SAVEPOINT operation")
    return future, result, None


def _roll_back(connection: Connection) -> None:
    with contextlib.suppress(Exception):  # there may be no transaction left
        connection.execute("ROLLBACK")


def _converted(outcome: _Outcome, database: Database) -> _Outcome:
    future, result, error = outcome
    return outcome if error is None else (future, result, database.convert_error(error))


def _resolve(outcomes: Iterable[_Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():  # the caller was cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
