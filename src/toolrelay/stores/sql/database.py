"""The interface of a database and its driver, as the store uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...  # noqa: ANN401 -- a row, whose types its query decides

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """A connection in autocommit mode. The parameters of a statement are written as `?`."""

    def execute(self, sql: str, parameters: Sequence[object] = ..., /) -> Cursor: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[object]], /) -> Cursor: ...

    def close(self) -> None: ...


Operation: TypeAlias = Callable[[Connection], T]


class Database(Protocol):
    """A driver.

    begin   the statement that begins a writing transaction
    """

    begin: str

    def connect(self) -> Connection:
        """Open the connection of the writer, create what is missing, and apply migrations. Raise StoreError."""
        ...

    def connect_reader(self) -> Connection | None:
        """Open a connection for reading only. None: reads use the connection of the writer."""
        ...

    def convert_error(self, error: Exception) -> Exception:
        """Return a StoreError for an error of the driver, and any other error as it is."""
        ...

    def make_room(self, connection: Connection, error: Exception) -> bool:
        """Delete old data if the error says that the database is full. True: the write may be tried again."""
        ...
