"""SQLite: a file in the data directory, or memory."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from toolrelay.errors import StoreConflictError, StoreError
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, StoreKind
from toolrelay.stores.sql import retention
from toolrelay.stores.sql.database import Connection
from toolrelay.stores.sql.schema import migrate
from toolrelay.stores.sql.store import SqlStore

FILE_NAME = "toolrelay.db"
BUSY_SECONDS = 5.0
MEMORY_BYTES = 64 * 1024 * 1024

_APPLICATION_ID = 0x546F526C  # "ToRl", in the file's header
_PAGE_BYTES = 4096
_CHECKED_BYTES = 256 * 1024 * 1024  # larger files are not read whole at the start
_WAL_BYTES = 64 * 1024 * 1024  # a larger log is truncated after its checkpoint
_EVICTED_AT_ONCE = 4
_SPARE_PAGES = 256  # in a full database, deleting needs some pages itself

_PROBLEMS = {
    sqlite3.SQLITE_BUSY: "locked by another program. Try again, and see what has the file open if this goes on",
    sqlite3.SQLITE_LOCKED: "locked by another program. Try again, and see what has the file open if this goes on",
    sqlite3.SQLITE_FULL: "full. Free some space on its disk, or run `toolrelay store prune`",
    sqlite3.SQLITE_READONLY: "read-only. Make the file and its directory writable",
    sqlite3.SQLITE_PERM: "not accessible. Make the file and its directory writable",
    sqlite3.SQLITE_CANTOPEN: "not accessible. Make the file and its directory writable",
    sqlite3.SQLITE_IOERR: "not accessible: reading or writing failed. See whether its disk is full or broken",
}
_DAMAGED = (
    "is damaged, or not a database of Toolrelay. Restore it from a backup, or move it away, together with its -wal and -shm "
    "files: then the gateway starts with an empty store. Nothing was changed."
)


class SqliteDatabase:
    """A file, or memory if `path` is None. `max_bytes` limits its size."""

    begin = "BEGIN IMMEDIATE"

    def __init__(self, path: Path | None, *, max_bytes: int | None = None, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._name = "the store in memory" if path is None else str(path)
        self._max_pages = None if max_bytes is None else max_bytes // _PAGE_BYTES
        self._busy_seconds = busy_seconds

    def connect(self) -> sqlite3.Connection:
        if self.path is not None:
            _create_file(self.path)
        try:
            connection = self._open(self._name if self.path else ":memory:")
            try:
                self._check(connection)
                self._configure(connection)
                migrate(connection, self._name, begin=self.begin)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise self.convert_error(error) from None
        return connection

    def connect_reader(self) -> sqlite3.Connection | None:
        if self.path is None:
            return None
        connection = self._open(self._name)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def convert_error(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        code = _primary_code(error)
        if code == sqlite3.SQLITE_CONSTRAINT:
            return StoreConflictError(f"Another writer was first: {error}.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreError(f"{self._name} {_DAMAGED}")
        if code == sqlite3.SQLITE_FULL and self.path is None:
            return StoreError("The store in memory is full of turns that are not finished. Try again when some of them are.")
        return StoreError(f"The store cannot be used: {self._name} is {_PROBLEMS.get(code, f'not usable: {error}')}.")

    def make_room(self, connection: Connection, error: Exception) -> bool:
        """In memory, drop finished turns and what else is old until an eighth of the space is free."""
        full = isinstance(error, sqlite3.Error) and _primary_code(error) == sqlite3.SQLITE_FULL
        if not full or self.path is not None or self._max_pages is None:
            return False
        target = _free_pages(connection) + self._max_pages // 8
        has_evicted = False
        connection.execute(f"PRAGMA max_page_count = {self._max_pages + _SPARE_PAGES}")
        while _free_pages(connection) < target and retention.evict(connection, _EVICTED_AT_ONCE, time.time()):
            has_evicted = True
        connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
        return has_evicted

    def _open(self, name: str) -> sqlite3.Connection:
        # A reader is used in one thread and closed in another.
        return sqlite3.connect(
            name, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a damaged file and the database of another program."""
        connection.execute("BEGIN")  # both from one state of the file: another process may be creating it
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        connection.execute("ROLLBACK")
        if is_empty and application == 0:
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        elif application != _APPLICATION_ID:
            raise StoreError(f"{self._name} {_DAMAGED}")
        if self.path is not None and not is_empty and self.path.stat().st_size <= _CHECKED_BYTES:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise StoreError(f"{self._name} {_DAMAGED} SQLite says: {found}")

    def _configure(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # deleted content is overwritten
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        if self._max_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {self._max_pages}")


def _create_file(path: Path) -> None:
    """Create the directory and an empty file, readable only by the user. SQLite gives its other files the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened for writing: {error.strerror}. Make the file and its directory writable, "
            "or name another directory with --data-dir."
        ) from None
    os.close(descriptor)


def _primary_code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF


def _free_pages(connection: Connection) -> int:
    free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return free


def open_sqlite(settings: StoreSettings, data_dir: Path) -> Store:
    if settings.record == "none":
        return SqlStore(SqliteDatabase(None, max_bytes=MEMORY_BYTES), has_readers=False)
    return SqlStore(SqliteDatabase(data_dir / FILE_NAME))


STORE = StoreKind(open=open_sqlite, file=lambda data_dir: data_dir / FILE_NAME)
