"""Settings that were changed in the console."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolrelay.stores.base import SettingRow
from toolrelay.stores.sql.database import Connection

SETTING_COLUMNS = SettingRow.__struct_fields__
_COLUMNS = ", ".join(SETTING_COLUMNS)
_SELECT = f"SELECT {_COLUMNS} FROM settings ORDER BY path"
_INSERT = f"INSERT INTO settings ({_COLUMNS}) VALUES ({', '.join('?' * len(SETTING_COLUMNS))})"
_DELETE = "DELETE FROM settings WHERE path = ?"


def load_settings(connection: Connection) -> list[SettingRow]:
    rows = connection.execute(_SELECT).fetchall()
    return [msgspec.convert(dict(zip(SETTING_COLUMNS, values, strict=True)), SettingRow) for values in rows]


def change_settings(connection: Connection, changed: Sequence[SettingRow], removed: Sequence[str]) -> None:
    for path in (*removed, *(row.path for row in changed)):
        connection.execute(_DELETE, (path,))
    for row in changed:
        connection.execute(_INSERT, msgspec.structs.astuple(row))
