"""Export, page by page, so that no reading transaction lasts long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from toolrelay.core.json import JsonObject
from toolrelay.stores.approvals import ApprovalRow, RuleRow
from toolrelay.stores.sql.approvals import APPROVAL_COLUMNS, RULE_COLUMNS
from toolrelay.stores.sql.database import Connection
from toolrelay.stores.sql.keys import KEY_COLUMNS, decode_key
from toolrelay.stores.sql.settings import SETTING_COLUMNS
from toolrelay.stores.sql.turns import TURN_COLUMNS, decode_row
from toolrelay.stores.sql.usage import USAGE_COLUMNS
from toolrelay.stores.turns import TurnRow

PAGE = 100

_TURNS = f"SELECT {TURN_COLUMNS} FROM turns WHERE deleted = FALSE AND (created_at, id) > (?, ?) ORDER BY created_at, id LIMIT ?"
_STEPS = "SELECT seq, at, data FROM steps WHERE turn = ? ORDER BY seq"
_MESSAGE_COLUMNS = ("turn", "position", "at", "role", "content", "content_json", "tool_calls", "tool_call_id", "function_call")
_MESSAGES = f"SELECT {', '.join(_MESSAGE_COLUMNS)} FROM messages WHERE turn = ? ORDER BY position"
_APPROVALS = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE turn = ? ORDER BY created_at, id"
_RULES = f"SELECT {RULE_COLUMNS} FROM rules WHERE id > ? ORDER BY id LIMIT ?"
_KEYS = f"SELECT {KEY_COLUMNS} FROM api_keys WHERE id > ? ORDER BY id LIMIT ?"
_CONVERSATION_COLUMNS = ("id", "owner", "created_at", "last_used_at", "metadata")
_CONVERSATIONS = f"SELECT {', '.join(_CONVERSATION_COLUMNS)} FROM conversations WHERE id > ? ORDER BY id LIMIT ?"
_ITEMS = "SELECT data FROM items WHERE conversation = ? ORDER BY position"
_SETTINGS = f"SELECT {', '.join(SETTING_COLUMNS)} FROM settings WHERE path > ? ORDER BY path LIMIT ?"
_USAGE = f"""
    SELECT {", ".join(USAGE_COLUMNS)} FROM usage WHERE (minute, model, key) > (?, ?, ?) ORDER BY minute, model, key LIMIT ?"""

Page = tuple[list[JsonObject], tuple[object, ...] | None]
"""Records, and the parameters of the next page, if there may be one."""


def export_turns(start: Sequence[object], connection: Connection) -> Page:
    """Return turns with their steps, each followed by its messages and questions."""
    rows = [decode_row(values) for values in connection.execute(_TURNS, (*start, PAGE)).fetchall()]
    records = [record for row in rows for record in _turn_records(connection, row)]
    return records, (rows[-1].created_at, rows[-1].id) if len(rows) == PAGE else None


def export_conversations(start: Sequence[object], connection: Connection) -> Page:
    rows = connection.execute(_CONVERSATIONS, (*start, PAGE)).fetchall()
    records = []
    for values in rows:
        record = _record("conversation", _CONVERSATION_COLUMNS, values)
        items = connection.execute(_ITEMS, (record["id"],)).fetchall()
        record |= {"metadata": _decode(record["metadata"]), "items": [_decode(data) for (data,) in items]}
        records.append(record)
    return records, (rows[-1][0],) if len(rows) == PAGE else None


def export_rules(start: Sequence[object], connection: Connection) -> Page:
    rows = connection.execute(_RULES, (*start, PAGE)).fetchall()
    return [_record("rule", RuleRow.__struct_fields__, values) for values in rows], (rows[-1][0],) if len(rows) == PAGE else None


def export_keys(start: Sequence[object], connection: Connection) -> Page:
    """Return the keys without their hashes, for the names of owners."""
    rows = [decode_key(values) for values in connection.execute(_KEYS, (*start, PAGE)).fetchall()]
    records: list[JsonObject] = []
    for row in rows:
        members = msgspec.structs.asdict(row) | {"models": [*row.models], "toolsets": [*row.toolsets]}
        del members["sha256"]
        records.append({"type": "key", **members})
    return records, (rows[-1].id,) if len(rows) == PAGE else None


def export_settings(start: Sequence[object], connection: Connection) -> Page:
    rows = connection.execute(_SETTINGS, (*start, PAGE)).fetchall()
    return [_record("setting", SETTING_COLUMNS, values) for values in rows], (rows[-1][0],) if len(rows) == PAGE else None


def export_usage(start: Sequence[object], connection: Connection) -> Page:
    rows = connection.execute(_USAGE, (*start, PAGE)).fetchall()
    return [_record("usage", USAGE_COLUMNS, values) for values in rows], tuple(rows[-1][:3]) if len(rows) == PAGE else None


EXPORTS: tuple[tuple[Callable[[Sequence[object], Connection], Page], tuple[object, ...]], ...] = (
    (export_turns, (float("-inf"), "")),
    (export_conversations, ("",)),
    (export_rules, ("",)),
    (export_keys, ("",)),
    (export_settings, ("",)),
    (export_usage, (-1, "", "")),
)


def _turn_records(connection: Connection, row: TurnRow) -> Iterator[JsonObject]:
    steps = connection.execute(_STEPS, (row.id,)).fetchall()
    yield {
        "type": "turn",
        **msgspec.structs.asdict(row),
        "steps": [{"seq": seq, "at": at, "step": _decode(data)} for seq, at, data in steps],
    }
    for values in connection.execute(_MESSAGES, (row.id,)).fetchall():
        record = _record("message", _MESSAGE_COLUMNS, values)
        for name in ("content_json", "tool_calls", "function_call"):
            record[name] = _decode(record[name])
        yield record
    for values in connection.execute(_APPROVALS, (row.id,)).fetchall():
        yield _record("approval", ApprovalRow.__struct_fields__, values)


def _record(kind: str, columns: Sequence[str], values: Sequence[Any]) -> JsonObject:
    return {"type": kind, **dict(zip(columns, values, strict=True))}


def _decode(data: Any) -> Any:  # noqa: ANN401 -- JSON, or no value
    return None if data is None else msgspec.json.decode(data)
