"""The group-commit writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from toolrelay.errors import StoreConflictError, StoreError
from toolrelay.stores.sql.database import Connection
from toolrelay.stores.sqlite import SqliteDatabase
from toolrelay.stores.writer import GroupCommitWriter


def play(story: Callable[[GroupCommitWriter], Awaitable[None]], path: Path, *, max_waiting: int = 100) -> None:
    async def main() -> None:
        writer = GroupCommitWriter(SqliteDatabase(path / "x.db"), max_waiting=max_waiting)
        await writer.open()
        await writer.run(lambda connection: connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)"))
        try:
            await story(writer)
        finally:
            await writer.close()

    asyncio.run(main())


class Blocker:
    """An operation that keeps the thread busy until it is released."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        self._released = threading.Event()

    def __call__(self, connection: Connection) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(self.statements.append)
        self._loop.call_soon_threadsafe(self.begun.set)
        self._released.wait()

    def release(self) -> None:
        self._released.set()


def insert(number: int) -> Callable[[Connection], int]:
    def operation(connection: Connection) -> int:
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return number

    return operation


def lose_transaction(connection: Connection) -> None:
    """Do what SQLite may do by itself if the disk is full."""
    connection.execute("ROLLBACK")
    raise sqlite3.OperationalError("lost")


def numbers(connection: Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number").fetchall()]


async def start(*coroutines: Awaitable[object]) -> list[asyncio.Future[object]]:
    """Start all, up to where they wait."""
    tasks: list[asyncio.Future[object]] = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await asyncio.sleep(0)
    return tasks


def test_operations_that_wait_share_a_commit(tmp_path: Path) -> None:
    async def story(writer: GroupCommitWriter) -> None:
        blocker = Blocker()
        blocked = await start(writer.run(blocker))
        await blocker.begun.wait()
        tasks = await start(*(writer.run(insert(number)) for number in range(10)))
        blocker.release()
        await asyncio.gather(*blocked)
        assert await asyncio.gather(*tasks) == list(range(10))
        assert blocker.statements.count("COMMIT") == 2
        assert blocker.statements.count("BEGIN IMMEDIATE") == 1

    play(story, tmp_path)


def test_failed_operation_fails_alone(tmp_path: Path) -> None:
    async def story(writer: GroupCommitWriter) -> None:
        def write_and_fail(connection: Connection) -> None:
            insert(5)(connection)
            raise ZeroDivisionError

        writes = (writer.run(insert(1)), writer.run(insert(1)), writer.run(write_and_fail), writer.run(insert(2)))
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [outcome if isinstance(outcome, int) else type(outcome) for outcome in outcomes] == [
            1,
            StoreConflictError,
            ZeroDivisionError,
            2,
        ]
        assert await writer.run(numbers) == [1, 2]

    play(story, tmp_path)


def test_operations_of_a_lost_transaction_are_repeated_one_by_one(tmp_path: Path) -> None:
    async def story(writer: GroupCommitWriter) -> None:
        blocker = Blocker()
        blocked = await start(writer.run(blocker))
        await blocker.begun.wait()
        tasks = await start(writer.run(insert(1)), writer.run(lose_transaction), writer.run(insert(2)))
        blocker.release()
        outcomes = await asyncio.gather(*blocked, *tasks, return_exceptions=True)
        assert outcomes[1] == 1
        assert isinstance(outcomes[2], StoreError)
        assert outcomes[3] == 2
        assert await writer.run(numbers) == [1, 2]

    play(story, tmp_path)


def test_caller_beyond_the_bound_waits_outside_the_queue(tmp_path: Path) -> None:
    async def story(writer: GroupCommitWriter) -> None:
        blocker = Blocker()
        blocked = await start(writer.run(blocker))
        await blocker.begun.wait()
        queued, outside = await start(writer.run(insert(1)), writer.run(insert(2)))
        queued.cancel()  # it is in the queue already, and will be done
        outside.cancel()
        blocker.release()
        await asyncio.gather(*blocked, queued, outside, return_exceptions=True)
        assert await writer.run(numbers) == [1]
        assert await asyncio.gather(*(writer.run(insert(number)) for number in range(10, 50))) == list(range(10, 50))

    play(story, tmp_path, max_waiting=2)


def test_writer_that_cannot_connect_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        writer = GroupCommitWriter(SqliteDatabase(tmp_path))
        with pytest.raises(StoreError, match="Is a directory"):
            await writer.open()
        with pytest.raises(StoreError, match="closed"):
            await writer.run(numbers)
        await writer.close()

    others = set(threading.enumerate())
    asyncio.run(main())
    for thread in set(threading.enumerate()) - others:
        if thread.name == "store-writer":
            thread.join()  # it ends by itself
