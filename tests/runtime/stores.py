"""A store whose file another program can lock."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from toolrelay.stores.base import Store
from toolrelay.stores.sql.store import SqlStore
from toolrelay.stores.sqlite import SqliteDatabase


@asynccontextmanager
async def opened(path: Path, *, busy_seconds: float = 0) -> AsyncIterator[Store]:
    """Open the store. It waits `busy_seconds` for a locked file before a write fails."""
    store = SqlStore(SqliteDatabase(path, busy_seconds=busy_seconds))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep all others from writing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
