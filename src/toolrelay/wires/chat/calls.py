"""Which call a piece of one belongs to. Providers differ in how they tell calls apart; the rules, in order:

    the piece has                           it belongs to
    -------------------------------------   --------------------------------------------------------------------------
    an id seen before                       that call, unless that one was announced under another index
    an id not seen before, and a name       a new call, whatever its index (some always say 0), unless the call of that
                                            index has no id yet
    an index seen before                    the newest call of that index
    an index not seen before                a new call
    neither, or a nameless piece with       the newest call
    nothing but a new id

With one exception to all of them: a name begins another call where the call that was found has another name, or whole arguments
and no id to vouch for it, or was found for a piece of the same chunk already.

A name is taken once and never again, so that providers which repeat it with every chunk do no harm.
"""

from __future__ import annotations

import re

from toolrelay.core.indexes import IndexLimit
from toolrelay.core.messages import CallKind
from toolrelay.wires.chat.chunk import ToolCall
from toolrelay.wires.json import decode

_MARKS = re.compile(r'[\\"{}\[\]]')


class OpenCall:
    """A call that is being received. It starts, and has its index, when its name is known; what comes before waits in `early`."""

    __slots__ = ("_depth", "_escaped", "_looked_at", "_quoted", "early", "id", "index", "kind", "name", "pieces", "place")

    def __init__(self, place: int | None) -> None:
        self.place = place
        self.id: str | None = None
        self.index = -1
        self.kind: CallKind = "function"
        self.name: str | None = None
        self.early: list[str] = []
        self.pieces: list[str] = []
        self._looked_at = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def is_closed(self) -> bool:
        """Whether the brackets of the arguments so far are balanced. Each piece is looked at once, however often one asks."""
        for piece in self.pieces[self._looked_at :]:
            self._balance(piece)
        self._looked_at = len(self.pieces)
        return self._depth == 0 and not self._quoted and bool(self.pieces)

    def _balance(self, piece: str) -> None:
        last = -1
        for mark in _MARKS.finditer(piece):
            if self._escaped:
                self._escaped = False
                if mark.start() == last + 1:
                    continue
            character = mark[0]
            if self._quoted:
                if character == "\\":
                    self._escaped = True
                    last = mark.start()
                elif character == '"':
                    self._quoted = False
            elif character == '"':
                self._quoted = True
            elif character != "\\":
                self._depth += 1 if character in "{[" else -1
        if self._escaped and last != len(piece) - 1:
            self._escaped = False

    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object."""
        try:
            return isinstance(decode("".join(self.pieces)), dict)
        except ValueError:
            return False


class OpenCalls:
    """The calls of one choice, in the order in which they were announced."""

    __slots__ = ("_by_id", "_limit", "all", "by_place", "started")

    def __init__(self, limit: IndexLimit) -> None:
        self._limit = limit
        self.all: list[OpenCall] = []
        self.started = 0
        self._by_id: dict[str, OpenCall] = {}
        self.by_place: dict[int, OpenCall] = {}

    def find(self, piece: ToolCall, name: str | None, touched: set[OpenCall]) -> OpenCall:
        """The call of this piece. `touched` are those for which the same chunk had a piece already."""
        call = self._known(piece, name)
        if call is None or (name and call.name and self._is_other(call, name, piece, touched)):
            self._limit.add(piece.index)
            call = OpenCall(piece.index)
            self.all.append(call)
        elif piece.index is not None and piece.index not in self.by_place:
            self._limit.add(piece.index)
        if piece.id:
            call.id = call.id or piece.id
            self._by_id[piece.id] = call
        if piece.index is not None:
            self.by_place[piece.index] = call
        touched.add(call)
        return call

    def _known(self, piece: ToolCall, name: str | None) -> OpenCall | None:
        call = self._by_id.get(piece.id) if piece.id else None
        if call is not None and (piece.index is None or call.place is None or call.place == piece.index):
            return call
        if piece.index is not None:
            call = self.by_place.get(piece.index)
            return None if call is not None and call.id and piece.id and name else call
        if piece.id and name:
            return None
        return self.all[-1] if self.all else None

    def _is_other(self, call: OpenCall, name: str, piece: ToolCall, touched: set[OpenCall]) -> bool:
        if call in touched:
            return True
        if piece.id and piece.id == call.id:
            return False
        return name != call.name or call.is_closed()
