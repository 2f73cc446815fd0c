"""Turns, their steps, messages and frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from toolrelay import log
from toolrelay.core.steps import QuestionAsked, StepEvent, ToolRunStarted
from toolrelay.errors import StoreConflictError, StoreError
from toolrelay.stores.approvals import ApprovalAnswer, ApprovalRow
from toolrelay.stores.conversations import ConversationItem
from toolrelay.stores.sql.approvals import save_approvals
from toolrelay.stores.sql.conversations import add_new_items, use_conversation, use_existing
from toolrelay.stores.sql.database import Connection
from toolrelay.stores.turns import Frame, MessageRow, StoredStep, StoredTurn, TurnRow, TurnStatus

StepValues = tuple[int, float, str, str]

TURN_COLUMNS = ", ".join(TurnRow.__struct_fields__)
_INSERT_TURN = f"""
    INSERT INTO turns ({TURN_COLUMNS}, used_tools) VALUES ({", ".join("?" * len(TurnRow.__struct_fields__))}, ?)"""
_INSERT_STEP = "INSERT INTO steps (turn, seq, at, kind, data) VALUES (?, ?, ?, ?, ?)"
_INSERT_MESSAGE = """
    INSERT INTO messages (turn, position, at, role, content, content_json, tool_calls, tool_call_id, function_call)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_FRAME = "INSERT INTO frames (turn, seq, data) VALUES (?, ?, ?)"
_ON_HEAD = "ON CONFLICT (owner, head) DO UPDATE SET conversation = excluded.conversation"
_INSERT_HEAD = f"INSERT INTO heads (owner, head, conversation) VALUES (?, ?, ?) {_ON_HEAD}"
_UPDATE_TURN = "UPDATE turns SET status = coalesce(?, status), used_tools = used_tools OR ? WHERE id = ? AND deleted = FALSE"
_DELETE_TURN = """
    UPDATE turns SET deleted = TRUE, idempotency_key = NULL, request_digest = NULL,
        status = CASE WHEN status IN ('running', 'parked') THEN 'cancelled' ELSE status END
    WHERE id = ? AND owner = ? AND deleted = FALSE"""
_DELETE_CONTENT = tuple(f"DELETE FROM {table} WHERE turn = ?" for table in ("steps", "messages", "frames", "approvals"))
_SELECT_EXISTS = "SELECT 1 FROM turns WHERE id = ? AND deleted = FALSE"
_SELECT_TURN = f"SELECT {TURN_COLUMNS} FROM turns WHERE id = ? AND deleted = FALSE"
_SELECT_UNFINISHED = f"""
    SELECT {TURN_COLUMNS} FROM turns WHERE status IN ('running', 'parked') AND deleted = FALSE ORDER BY created_at, id"""
_SELECT_IDEMPOTENT = (
    f"SELECT {TURN_COLUMNS} FROM turns WHERE owner = ? AND idempotency_key = ? AND used_tools AND deleted = FALSE"
)
_SELECT_DELETED = "SELECT 1 FROM turns WHERE id = ? AND owner = ? AND deleted"
_SELECT_STEPS = "SELECT seq, at, data FROM steps WHERE turn = ? ORDER BY seq"
_SELECT_LAST_MESSAGE = "SELECT position, at FROM messages WHERE turn = ? ORDER BY position DESC LIMIT 1"
_SELECT_FRAMES = "SELECT seq, data FROM frames WHERE turn = ? AND seq > ? ORDER BY seq LIMIT ?"

_encode = msgspec.json.Encoder().encode
_decode_step = msgspec.json.Decoder(StepEvent).decode


def encode_step(stored: StoredStep) -> StepValues:
    return stored.seq, stored.at, type(stored.step).__name__, _encode(stored.step).decode()


def uses_tools(steps: Sequence[StoredStep]) -> bool:
    """Tell whether a gateway tool is run or asked about, so that the turn's idempotency key counts."""
    return any(isinstance(stored.step, QuestionAsked | ToolRunStarted) for stored in steps)


def create_turn(
    connection: Connection,
    row: TurnRow,
    steps: Sequence[StepValues],
    messages: Sequence[MessageRow],
    *,
    head: str | None,
    items: Sequence[ConversationItem],
    used_tools: bool,
    creates_conversation: bool,
    approvals: Sequence[ApprovalRow | ApprovalAnswer],
) -> None:
    if row.conversation is not None and creates_conversation:
        use_conversation(connection, row.conversation, row.owner, row.created_at)
    connection.execute(_INSERT_TURN, (*msgspec.structs.astuple(row), used_tools))
    _insert_steps(connection, row.id, steps)
    _insert_messages(connection, row.id, row.created_at, 0, messages)
    save_approvals(connection, approvals)
    has_ended = bool(steps) and (head is not None or bool(items))
    at = max(row.created_at, steps[-1][1]) if has_ended else row.created_at
    _continue_conversation(connection, row, at, head, items)


def append_steps(
    connection: Connection,
    turn: str,
    steps: Sequence[StepValues],
    messages: Sequence[MessageRow],
    *,
    status: TurnStatus | None,
    head: str | None,
    items: Sequence[ConversationItem],
    used_tools: bool,
    approvals: Sequence[ApprovalRow | ApprovalAnswer],
) -> None:
    if status is not None or used_tools:
        update_turn(connection, turn, status, used_tools=used_tools)
    else:
        _check_exists(connection, turn)
    _insert_steps(connection, turn, steps)
    save_approvals(connection, approvals)
    at = steps[-1][1] if steps else 0.0
    if messages:
        position, last_at = connection.execute(_SELECT_LAST_MESSAGE, (turn,)).fetchone() or (-1, 0.0)
        _insert_messages(connection, turn, max(at, last_at), position + 1, messages)
    row = load_row(connection, turn) if head is not None or items else None
    if row is not None:
        _continue_conversation(connection, row, at, head, items)


def update_turn(connection: Connection, turn: str, status: TurnStatus | None, *, used_tools: bool = False) -> None:
    if connection.execute(_UPDATE_TURN, (status, used_tools, turn)).rowcount == 0:
        raise _no_turn(turn)


def load_turn(connection: Connection, turn: str, owner: str | None) -> StoredTurn | None:
    row = load_row(connection, turn)
    if row is None or owner not in (None, row.owner):
        return None
    return StoredTurn(row=row, steps=_load_steps(connection, turn))


def load_row(connection: Connection, turn: str) -> TurnRow | None:
    values = connection.execute(_SELECT_TURN, (turn,)).fetchone()
    return None if values is None else decode_row(values)


def load_unfinished(connection: Connection) -> list[StoredTurn]:
    turns: list[StoredTurn] = []
    for values in connection.execute(_SELECT_UNFINISHED).fetchall():
        row = decode_row(values)
        try:
            turns.append(StoredTurn(row=row, steps=_load_steps(connection, row.id)))
        except StoreError as error:  # one bad turn must not keep the gateway from starting
            log.error("turn_unreadable", turn=row.id, reason=error.message)
    return turns


def find_idempotent(connection: Connection, owner: str, key: str) -> TurnRow | None:
    values = connection.execute(_SELECT_IDEMPOTENT, (owner, key)).fetchone()
    return None if values is None else decode_row(values)


def delete_response(connection: Connection, turn: str, owner: str) -> bool:
    if connection.execute(_DELETE_TURN, (turn, owner)).rowcount == 0:
        return False
    for statement in _DELETE_CONTENT:
        connection.execute(statement, (turn,))
    return True


def was_deleted(connection: Connection, turn: str, owner: str) -> bool:
    return connection.execute(_SELECT_DELETED, (turn, owner)).fetchone() is not None


def append_frames(connection: Connection, turn: str, frames: Sequence[Frame]) -> None:
    _check_exists(connection, turn)
    connection.executemany(_INSERT_FRAME, [(turn, frame.seq, frame.data) for frame in frames])


def load_frames(connection: Connection, turn: str, after: int, limit: int) -> list[Frame]:
    rows = connection.execute(_SELECT_FRAMES, (turn, after, limit)).fetchall()
    return [Frame(seq, bytes(data)) for seq, data in rows]


def decode_row(values: Sequence[Any]) -> TurnRow:
    """Make a row of the values of TURN_COLUMNS. SQLite has no booleans."""
    return msgspec.convert(dict(zip(TurnRow.__struct_fields__, values, strict=True)), TurnRow, strict=False)


def _load_steps(connection: Connection, turn: str) -> tuple[StoredStep, ...]:
    rows = connection.execute(_SELECT_STEPS, (turn,)).fetchall()
    return tuple(_decode_steps(turn, rows))


def _decode_steps(turn: str, rows: Sequence[tuple[int, float, str]]) -> Iterator[StoredStep]:
    for seq, at, data in rows:
        try:
            yield StoredStep(seq=seq, at=at, step=_decode_step(data))
        except msgspec.MsgspecError as error:
            raise StoreError(f"Step {seq} of the turn {turn} cannot be read: {error}") from None


def _continue_conversation(
    connection: Connection, row: TurnRow, at: float, head: str | None, items: Sequence[ConversationItem]
) -> None:
    """Note that the conversation was used, and what the turn adds to it, if there is one and it was not deleted."""
    if row.conversation is None or not use_existing(connection, row.conversation, row.owner, at):
        return
    if items:
        add_new_items(connection, row.conversation, items)
    if head is not None:
        connection.execute(_INSERT_HEAD, (row.owner, head, row.conversation))


def _insert_steps(connection: Connection, turn: str, steps: Sequence[StepValues]) -> None:
    connection.executemany(_INSERT_STEP, [(turn, *values) for values in steps])


def _insert_messages(connection: Connection, turn: str, at: float, position: int, messages: Sequence[MessageRow]) -> None:
    rows = [(turn, number, at, *msgspec.structs.astuple(message)) for number, message in enumerate(messages, position)]
    connection.executemany(_INSERT_MESSAGE, rows)


def _check_exists(connection: Connection, turn: str) -> None:
    if connection.execute(_SELECT_EXISTS, (turn,)).fetchone() is None:
        raise _no_turn(turn)


def _no_turn(turn: str) -> StoreConflictError:
    return StoreConflictError(f"The turn {turn} does not exist, or was deleted.")
