"""The parts of a reading that may take long: each goes on with what has come, for each chunk, and says whether it is done."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Protocol, TypeAlias

from toolrelay.dialects._faults import BrokenError, CutError
from toolrelay.dialects._schema import escaped

if TYPE_CHECKING:
    from toolrelay.dialects._reader import Reader

Taker: TypeAlias = Callable[[str], None]
NO_LIMIT = 1 << 62


class Step(Protocol):
    @property
    def take(self) -> Taker:
        """To whom it hands over what it reads."""
        ...

    def step(self, text: str) -> str | None:
        """Goes on with the text, after what the reader has not read yet; returns what is to be handed over, None at the end.

        At its end, and where it fails, it has handed over the last of it itself.
        """
        ...


def handed_over(piece: str, step: Step, reader: Reader, *, done: bool) -> str | None:
    """What a step returns that has read that piece."""
    if not done and not reader.closed:
        return piece
    if piece:
        step.take(piece)
    if not done:
        raise CutError
    return None


Mark: TypeAlias = tuple[int, int, bool]
"""Where a marker begins and ends, and whether it is all there: if not, it may be one when more text comes."""


def mark_in(text: str, at: int, markers: tuple[str, ...], *, closed: bool, reach: int | None = None) -> Mark | None:
    """The first of the markers from that place on. Of two that begin at the same place it is the longer one.

    `reach`: further than that it need not be looked for.
    """
    end = len(text) if reach is None else min(reach, len(text))
    if len(markers) > 1:
        found = (whole_marks if closed else marks)(markers).search(text, at, end)
        return None if found is None else (found.start(), found.end(), found.lastindex is None)
    marker = markers[0]
    start = text.find(marker, at, end)
    if start >= 0:
        return start, start + len(marker), True
    if not closed and end == len(text):
        start = text.find(marker[0], max(at, len(text) - len(marker) + 1))
        while start >= 0:
            if marker.startswith(text[start:]):
                return start, len(text), False
            start = text.find(marker[0], start + 1)
    return None


def mark_at(text: str, at: int, markers: tuple[str, ...], *, closed: bool) -> Mark | None:
    """The marker that stands at that place. At the text's end any of them may."""
    if at >= len(text):
        return None if closed else (at, at, False)
    if len(markers) > 1:
        found = (whole_marks if closed else marks)(markers).match(text, at)
        return None if found is None else (at, found.end(), found.lastindex is None)
    marker = markers[0]
    if text.startswith(marker, at):
        return at, at + len(marker), True
    return (at, len(text), False) if not closed and marker.startswith(text[at : at + len(marker)]) else None


@lru_cache(maxsize=512)
def marks(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Finds markers, or, with `lastindex` set, the beginning of one at the text's end."""
    return re.compile(marks_pattern(markers))


@lru_cache(maxsize=512)
def whole_marks(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Finds markers that are all there."""
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))


def marks_pattern(markers: tuple[str, ...]) -> str:
    return "|".join(re.escape(marker) + _beginning(marker) for marker in sorted(markers, key=len, reverse=True))


def _beginning(marker: str) -> str:
    r"""The pattern's alternative for a part of the marker: `a(?:b)?\Z()` for "abc"."""
    if len(marker) == 1:
        return ""
    inner = ""
    for character in reversed(marker[1:-1]):
        inner = f"(?:{re.escape(character)}{inner})?"
    return f"|{re.escape(marker[0])}{inner}\\Z()"


def first_characters(markers: tuple[str, ...]) -> tuple[str, str]:
    """The two, or the one, with which all of them begin; of more than two, what is in every text."""
    firsts = {marker[0] for marker in markers}
    return min(firsts), max(firsts) if len(firsts) <= 2 else ""


@lru_cache(maxsize=512)
def sign(markers: tuple[str, ...]) -> tuple[str, str]:
    """What holds not the first, and ends in no character of the second, has no part of a marker. "" is in every text."""
    shortest = min(markers, key=len)[:2]
    if not all(shortest in marker for marker in markers):
        return "", ""
    return shortest, "".join(marker[: marker.index(shortest) + len(shortest) - 1] for marker in markers)


class Search:
    """For the first of the markers; what comes before it is handed over, `escaped` as a part of a JSON string or as it is."""

    __slots__ = (
        "_ends", "_escaped", "_is_limited", "_left", "_marks", "_or_end", "_reader", "_sign", "_whole_marks", "found", "take",
    )  # fmt: skip

    def __init__(self, reader: Reader, markers: tuple[str, ...], take: Taker, limit: int, *, or_end: bool, escaped: bool) -> None:
        self._reader = reader
        self._marks = marks(markers)
        self._whole_marks = whole_marks(markers)
        self._sign, self._ends = sign(markers)
        self._left = limit
        self._is_limited = limit < NO_LIMIT
        self._or_end = or_end
        self._escaped = escaped
        self.take = take
        self.found = ""

    def step(self, text: str) -> str | None:
        reader = self._reader
        if reader.at < len(reader.text):
            text = reader.text[reader.at :] + text
        elif text and self._sign not in text and text[-1] not in self._ends:  # nearly every delta
            if not self._is_limited:
                if not self._escaped or (text.isprintable() and '"' not in text and "\\" not in text):
                    return text
                return encode_basestring(text)[1:-1]
            if len(text) <= self._left:
                self._left -= len(text)
                return escaped(text) if self._escaped else text
        found = (self._whole_marks if reader.closed else self._marks).search(text)
        end = len(text) if found is None else found.start()
        reader.text = text
        if self._is_limited:
            if end > self._left:
                reader.at = self._left
                raise BrokenError("held_too_long")
            self._left -= end
        reader.at = end
        piece = text if found is None else text[:end]
        if piece and self._escaped:
            piece = escaped(piece)
        if found is None or found.lastindex is not None:
            return handed_over(piece, self, reader, done=self._or_end) if reader.closed else piece
        if piece:
            self.take(piece)
        reader.at = found.end()
        self.found = found.group()
        return None
