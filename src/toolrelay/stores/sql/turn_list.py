"""Lists of turns, and turns as far as they can be read."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from toolrelay.core.steps import StepEvent
from toolrelay.stores.sql.database import Connection
from toolrelay.stores.sql.turns import TURN_COLUMNS, decode_row, load_row
from toolrelay.stores.turn_lists import MAX_SEARCHED, TurnPage, TurnQuery, TurnRecord, TurnSummary, UnreadableStep
from toolrelay.stores.turns import StoredStep, TurnRow

PROMPT_CHARACTERS = 200
MAX_CALLS = 200  # that are looked at for the tools of one turn
_MAX_REASON = 500  # characters

_SELECT_STEPS = "SELECT seq, at, kind, data FROM steps WHERE turn = ? ORDER BY seq"
_SELECT_LAST_AT = "SELECT max(at) FROM steps WHERE turn = ?"
_SELECT_CALLS = "SELECT data FROM steps WHERE turn = ? AND kind = 'CallPlanned' ORDER BY seq LIMIT ?"
_SELECT_END = "SELECT data FROM steps WHERE turn = ? AND kind IN ('TurnFinished', 'TurnFailed') ORDER BY seq DESC LIMIT 1"
_COUNT_QUESTIONS = "SELECT count(*) FROM steps WHERE turn = ? AND kind = 'QuestionAsked'"
_SELECT_PROMPT = f"""
    SELECT substr(coalesce(content, content_json, ''), 1, {PROMPT_CHARACTERS}) FROM messages
    WHERE turn = ? AND role = 'user' ORDER BY position DESC LIMIT 1"""
_HAS_TOOL = r"""
    EXISTS (SELECT 1 FROM steps WHERE turn = found.id AND kind = 'CallPlanned' AND data LIKE ? ESCAPE '\')"""
_HAS_TEXT = r"""
    (EXISTS (SELECT 1 FROM messages WHERE turn = found.id
        AND (content LIKE ? ESCAPE '\' OR content_json LIKE ? ESCAPE '\' OR tool_calls LIKE ? ESCAPE '\'))
    OR EXISTS (SELECT 1 FROM steps WHERE turn = found.id AND kind = 'TurnFailed' AND data LIKE ? ESCAPE '\'))"""

_decode_step = msgspec.json.Decoder(StepEvent).decode


class _Named(Struct, frozen=True):
    name: str = ""


class _TokenCounts(Struct, frozen=True):
    input: int = 0
    output: int = 0


class _Planned(Struct, frozen=True):
    call: _Named = _Named()


class _Ended(Struct, frozen=True):
    usage: _TokenCounts | None = None
    code: str | None = None


_decode_planned = msgspec.json.Decoder(_Planned).decode
_decode_ended = msgspec.json.Decoder(_Ended).decode


def load_record(connection: Connection, turn: str, owner: str) -> TurnRecord | None:
    row = load_row(connection, turn)
    if row is None or row.owner != owner:
        return None
    steps: list[StoredStep] = []
    unreadable: list[UnreadableStep] = []
    for seq, at, kind, data in connection.execute(_SELECT_STEPS, (turn,)).fetchall():
        try:
            steps.append(StoredStep(seq=seq, at=at, step=_decode_step(data)))
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            unreadable.append(UnreadableStep(seq=seq, at=at, kind=kind, reason=str(error)[:_MAX_REASON]))
    return TurnRecord(row=row, steps=tuple(steps), unreadable=tuple(unreadable))


def list_turns(connection: Connection, owner: str, query: TurnQuery) -> TurnPage:
    """Return a page. A search looks through a limited number of turns: their texts may be long."""
    is_search = query.text is not None or query.tool is not None
    candidates = _find_rows(connection, owner, query, MAX_SEARCHED + 1 if is_search else query.limit + 1)
    most = MAX_SEARCHED if is_search else query.limit
    found: list[TurnRow] = []
    searched = 0
    for row in candidates[:most]:
        searched += 1
        if not is_search or _matches(connection, row.id, query):
            found.append(row)
            if len(found) == query.limit:
                break
    last = candidates[searched - 1] if 0 < searched < len(candidates) else None
    return TurnPage(
        turns=tuple([_summarize(connection, row) for row in found]),
        next=None if last is None else (last.created_at, last.id),
        searched=searched if is_search else 0,
    )


def _find_rows(connection: Connection, owner: str, query: TurnQuery, limit: int) -> list[TurnRow]:
    conditions, values = ["owner = ?", "deleted = FALSE"], [owner]
    for column, wanted in (("model", query.model), ("status", query.status)):
        if wanted is not None:
            conditions.append(f"{column} = ?")
            values.append(wanted)
    parameters: list[object] = [*values]
    if query.before is not None:
        conditions.append("(created_at, id) < (?, ?)")
        parameters += query.before
    statement = f"SELECT {TURN_COLUMNS} FROM turns WHERE {' AND '.join(conditions)} ORDER BY created_at DESC, id DESC LIMIT ?"
    return [decode_row(each) for each in connection.execute(statement, (*parameters, limit)).fetchall()]


def _matches(connection: Connection, turn: str, query: TurnQuery) -> bool:
    conditions: list[str] = []
    parameters: list[object] = [turn]
    if query.tool is not None:
        conditions.append(_HAS_TOOL)
        parameters.append(_pattern(f'"name":{msgspec.json.encode(query.tool).decode()}'))
    if query.text is not None:
        conditions.append(_HAS_TEXT)
        parameters += [_pattern(query.text)] * 4
    statement = f"SELECT 1 FROM (SELECT ? AS id) AS found WHERE {' AND '.join(conditions)}"
    return connection.execute(statement, tuple(parameters)).fetchone() is not None


def _pattern(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _summarize(connection: Connection, row: TurnRow) -> TurnSummary:
    prompt = connection.execute(_SELECT_PROMPT, (row.id,)).fetchone()
    last_at = connection.execute(_SELECT_LAST_AT, (row.id,)).fetchone()[0]
    end = _find_end(connection, row.id)
    return TurnSummary(
        row=row,
        last_at=row.created_at if last_at is None else last_at,
        tools=_find_tools(connection, row.id),
        questions=connection.execute(_COUNT_QUESTIONS, (row.id,)).fetchone()[0],
        prompt="" if prompt is None else prompt[0],
        input=None if end.usage is None else end.usage.input,
        output=None if end.usage is None else end.usage.output,
        error=end.code,
    )


def _find_tools(connection: Connection, turn: str) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for (data,) in connection.execute(_SELECT_CALLS, (turn, MAX_CALLS)).fetchall():
        try:
            names[_decode_planned(data).call.name] = None
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            continue  # the turn itself says what cannot be read
    return tuple(names)


def _find_end(connection: Connection, turn: str) -> _Ended:
    found = connection.execute(_SELECT_END, (turn,)).fetchone()
    try:
        return _Ended() if found is None else _decode_ended(found[0])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _Ended()
