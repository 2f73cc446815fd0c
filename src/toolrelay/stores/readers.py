"""Threads that read, each with its own connection, so that reads do not wait for commits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from toolrelay.errors import StoreError
from toolrelay.stores.sql.database import Connection, Database, Operation

T = TypeVar("T")

THREADS = 2


class ReaderPool:
    """Runs operations that only read. Each sees one state of the database."""

    def __init__(self, database: Database, threads: int = THREADS) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="store-reader")
        self._connections: list[Connection] = []
        self._local = threading.local()
        self._is_open = True

    async def run(self, operation: Operation[T]) -> T:
        if not self._is_open:
            raise StoreError("The store is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, operation)

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
            for connection in self._connections:
                connection.close()

    def _run(self, operation: Operation[T]) -> T:
        try:
            connection = self._connect()
            connection.execute("BEGIN")
            try:
                return operation(connection)
            finally:
                with contextlib.suppress(Exception):  # the operation's own error says more
                    connection.execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001 -- it is raised again, in other words
            raise self._database.convert_error(error) from None

    def _connect(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._database.connect_reader()
            if connection is None:
                raise StoreError("This store has no connections for reading.")
            self._local.connection = connection
            self._connections.append(connection)
        return connection
