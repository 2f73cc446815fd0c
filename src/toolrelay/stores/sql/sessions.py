"""Sessions of people who are signed in with a browser."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolrelay.stores.access import SessionRow
from toolrelay.stores.sql.database import Connection

_FIELDS = SessionRow.__struct_fields__
_COLUMNS = ", ".join(_FIELDS)
_INSERT = f"INSERT INTO sessions ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))})"
_DELETE_EXPIRED = "DELETE FROM sessions WHERE expires_at <= ?"
_SELECT = f"SELECT {_COLUMNS} FROM sessions WHERE digest = ?"
_SELECT_ALL = f"SELECT {_COLUMNS} FROM sessions WHERE (? IS NULL OR owner = ?) ORDER BY created_at DESC, id DESC"
_TOUCH = "UPDATE sessions SET last_used_at = ? WHERE id = ?"
_DELETE = "DELETE FROM sessions WHERE id = ? AND (? IS NULL OR owner = ?)"


def add_session(connection: Connection, session: SessionRow) -> None:
    connection.execute(_DELETE_EXPIRED, (session.created_at,))
    connection.execute(_INSERT, msgspec.structs.astuple(session))


def find_session(connection: Connection, digest: str) -> SessionRow | None:
    values = connection.execute(_SELECT, (digest,)).fetchone()
    return None if values is None else _decode(values)


def list_sessions(connection: Connection, owner: str | None) -> list[SessionRow]:
    return [_decode(values) for values in connection.execute(_SELECT_ALL, (owner, owner)).fetchall()]


def touch_session(connection: Connection, session: str, at: float) -> None:
    connection.execute(_TOUCH, (at, session))


def delete_session(connection: Connection, session: str, owner: str | None) -> bool:
    return connection.execute(_DELETE, (session, owner, owner)).rowcount > 0


def _decode(values: Sequence[object]) -> SessionRow:
    return msgspec.convert(dict(zip(_FIELDS, values, strict=True)), SessionRow, strict=False)  # SQLite has 0 and 1 as booleans
