"""Keys of clients, as hashes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolrelay.stores.access import KeyRow
from toolrelay.stores.sql.database import Connection

_FIELDS = KeyRow.__struct_fields__
KEY_COLUMNS = ", ".join(_FIELDS)
_INSERT = f"INSERT INTO api_keys ({KEY_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))})"
_SELECT_ALL = f"SELECT {KEY_COLUMNS} FROM api_keys ORDER BY created_at, id"
_ROTATE = "UPDATE api_keys SET sha256 = ?, rotated_at = ? WHERE id = ? AND revoked_at IS NULL"
_REVOKE = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
_TOUCH = "UPDATE api_keys SET last_used_at = ? WHERE id = ?"
_END_SESSIONS = "DELETE FROM sessions WHERE owner = ?"


def add_key(connection: Connection, key: KeyRow) -> None:
    values = msgspec.structs.asdict(key)
    values |= {name: msgspec.json.encode(values[name]).decode() for name in ("models", "toolsets")}
    connection.execute(_INSERT, tuple(values.values()))


def list_keys(connection: Connection) -> list[KeyRow]:
    return [decode_key(values) for values in connection.execute(_SELECT_ALL).fetchall()]


def rotate_key(connection: Connection, key: str, sha256: str, at: float) -> bool:
    return _end_sessions(connection, key) if connection.execute(_ROTATE, (sha256, at, key)).rowcount else False


def revoke_key(connection: Connection, key: str, at: float) -> bool:
    return _end_sessions(connection, key) if connection.execute(_REVOKE, (at, key)).rowcount else False


def touch_key(connection: Connection, key: str, at: float) -> None:
    connection.execute(_TOUCH, (at, key))


def decode_key(values: Sequence[object]) -> KeyRow:
    members = dict(zip(_FIELDS, values, strict=True))
    members |= {name: msgspec.json.decode(str(members[name])) for name in ("models", "toolsets")}
    return msgspec.convert(members, KeyRow, strict=False)  # SQLite has 0 and 1 as booleans


def _end_sessions(connection: Connection, key: str) -> bool:
    connection.execute(_END_SESSIONS, (key,))
    return True
