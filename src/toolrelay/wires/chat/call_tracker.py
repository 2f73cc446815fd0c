"""Assigns the deltas of tool calls to calls. Providers differ in how they identify calls; the rules, in order:

    the delta has                           it belongs to
    -------------------------------------   --------------------------------------------------------------------------
    an id seen before                       that call, unless it was started under another index
    an id not seen before, and a name       a new call, whatever its index (some always send 0), unless the call of that
                                            index has no id yet
    an index seen before                    the newest call of that index
    an index not seen before                a new call
    neither, or a nameless delta with       the newest call
    nothing but a new id

One exception to all of them: a name starts another call if the call found has another name, or complete arguments and no matching
id, or already got a delta from the same chunk.

Only the first name of a call counts, because some providers repeat it with every chunk.
"""

from __future__ import annotations

import re

from msgspec import Struct

from toolrelay.core.indexes import IndexLimit
from toolrelay.core.messages import CallKind
from toolrelay.wires.chat.chunk import CallDelta

_MARK = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


class PartialCall(Struct, eq=False):
    """A call that is being received. It starts, and gets its index, when its name is known; earlier arguments wait in `early`."""

    upstream_index: int | None
    id: str | None = None
    index: int = -1
    kind: CallKind = "function"
    name: str | None = None
    early: list[str] = []
    pieces: list[str] = []
    _scanned: int = 0
    _depth: int = 0
    _in_string: bool = False
    _is_escaped: bool = False

    def is_balanced(self) -> bool:
        """Return whether the brackets of the arguments so far are balanced. Each piece is scanned once."""
        for piece in filter(None, self.pieces[self._scanned :]):
            self._scan(piece)
        self._scanned = len(self.pieces)
        return self._depth == 0 and not self._in_string and bool(self.pieces)

    def _scan(self, piece: str) -> None:
        at = 1 if self._is_escaped else 0
        self._is_escaped = False
        while at < len(piece):
            if self._in_string:
                rest = _STRING.match(piece, at)
                at = rest.end() if rest else at
                self._is_escaped = piece[at:] == "\\"
                self._in_string = self._is_escaped or at == len(piece)
                at += 1
                continue
            mark = _MARK.search(piece, at)
            if mark is None:
                break
            at = mark.end()
            if mark[0] == '"':
                self._in_string = True
            else:
                self._depth += 1 if mark[0] in "{[" else -1


class CallTracker:
    """The calls of one choice, in the order in which they were announced."""

    __slots__ = ("_by_id", "_limit", "all", "by_index", "started")

    def __init__(self, limit: IndexLimit) -> None:
        self._limit = limit
        self.all: list[PartialCall] = []
        self.started = 0
        self._by_id: dict[str, PartialCall] = {}
        self.by_index: dict[int, PartialCall] = {}

    def find(self, delta: CallDelta, name: str | None, seen: set[PartialCall]) -> PartialCall:
        """Return the call of this delta. `seen` are those that already got one from the same chunk."""
        call = self._find_known(delta, name)
        if call is None or (name and call.name and self._is_other(call, name, delta, seen)):
            self._limit.add(delta.index)
            call = PartialCall(delta.index)
            self.all.append(call)
        elif delta.index is not None and delta.index not in self.by_index:
            self._limit.add(delta.index)
        if delta.id:
            call.id = call.id or delta.id
            self._by_id[delta.id] = call
        if delta.index is not None:
            self.by_index[delta.index] = call
        seen.add(call)
        return call

    def _find_known(self, delta: CallDelta, name: str | None) -> PartialCall | None:
        call = self._by_id.get(delta.id) if delta.id else None
        if call is not None and (delta.index is None or call.upstream_index is None or call.upstream_index == delta.index):
            return call
        if delta.index is not None:
            call = self.by_index.get(delta.index)
            return None if call is not None and call.id and delta.id and name else call
        if delta.id and name:
            return None
        return self.all[-1] if self.all else None

    def _is_other(self, call: PartialCall, name: str, delta: CallDelta, seen: set[PartialCall]) -> bool:
        if call in seen:
            return True
        if delta.id and delta.id == call.id:
            return False
        return name != call.name or call.is_balanced()
