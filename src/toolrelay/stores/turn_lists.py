"""Values of lists of turns, and of turns as far as they can be read."""

from __future__ import annotations

from msgspec import Struct

from toolrelay.stores.turns import StoredStep, TurnRow, TurnStatus

MAX_SEARCHED = 500  # turns that one search looks through


class UnreadableStep(Struct, frozen=True, kw_only=True):
    """A step that cannot be decoded, and why."""

    seq: int
    at: float
    kind: str
    reason: str


class TurnRecord(Struct, frozen=True, kw_only=True):
    """A turn as far as it can be read."""

    row: TurnRow
    steps: tuple[StoredStep, ...]
    unreadable: tuple[UnreadableStep, ...] = ()


class TurnSummary(Struct, frozen=True, kw_only=True):
    """A turn in a list.

    last_at     the time of its last step
    tools       the names of the tools that were called, without repetitions
    prompt      the beginning of what the user wrote last
    input       tokens, if the turn has finished and they are known; `output` too
    error       the code of the error that ended it
    """

    row: TurnRow
    last_at: float
    tools: tuple[str, ...] = ()
    questions: int = 0
    prompt: str = ""
    input: int | None = None
    output: int | None = None
    error: str | None = None


class TurnQuery(Struct, frozen=True, kw_only=True):
    """Which turns of an owner are listed. `before` is the (created_at, id) of the last turn of the page before.

    `text` is looked for in messages and errors, whatever the case of A to Z; `tool` is the name of a tool that was called.
    """

    model: str | None = None
    status: TurnStatus | None = None
    tool: str | None = None
    text: str | None = None
    before: tuple[float, str] | None = None
    limit: int = 50


class TurnPage(Struct, frozen=True, kw_only=True):
    """A part of a list of turns, the newest first.

    `next` is the `before` of the next page, if there may be one. `searched` is the number of turns that were looked through for
    a text or a tool: a search that finds little stops after MAX_SEARCHED, and `next` continues it.
    """

    turns: tuple[TurnSummary, ...]
    next: tuple[float, str] | None = None
    searched: int = 0
