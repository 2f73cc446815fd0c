"""The parts of a reading that may take long: each goes on with what has come, for each chunk, and says whether it is done."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from toolrelay.dialects._faults import BrokenError, CutError, NotACallError

if TYPE_CHECKING:
    from toolrelay.dialects._reader import Reader

Step: TypeAlias = Callable[[], bool]
Taker: TypeAlias = Callable[[str], None]

SCALAR_LIMIT = 256


Mark: TypeAlias = tuple[int, int, bool]
"""Where a marker begins and ends, and whether it is all there: if not, it may be one when more text comes."""


def mark_in(text: str, at: int, markers: tuple[str, ...], *, closed: bool, reach: int | None = None) -> Mark | None:
    """The first of the markers from that place on. Of two that begin at the same place it is the longer one.

    `reach`: further than that it need not be looked for.
    """
    end = len(text) if reach is None else min(reach, len(text))
    if len(markers) > 1:
        found = (_whole_marks if closed else _marks)(markers).search(text, at, end)
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
        found = (_whole_marks if closed else _marks)(markers).match(text, at)
        return None if found is None else (at, found.end(), found.lastindex is None)
    marker = markers[0]
    if text.startswith(marker, at):
        return at, at + len(marker), True
    return (at, len(text), False) if not closed and marker.startswith(text[at : at + len(marker)]) else None


@lru_cache(maxsize=512)
def _marks(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Finds markers, or, with `lastindex` set, the beginning of one at the text's end."""
    return re.compile(marks_pattern(markers))


@lru_cache(maxsize=512)
def _whole_marks(markers: tuple[str, ...]) -> re.Pattern[str]:
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


class Search:
    """For the first of the markers; what comes before it is handed over."""

    __slots__ = ("_first", "_left", "_markers", "_or_end", "_reader", "_take", "found")

    def __init__(self, reader: Reader, markers: tuple[str, ...], take: Taker, limit: int | None, *, or_end: bool) -> None:
        self._reader = reader
        self._markers = markers
        self._first = markers[0][0] if len(markers) == 1 else ""
        self._take = take
        self._left = limit
        self._or_end = or_end
        self.found = ""

    def step(self) -> bool:
        reader = self._reader
        text, at = reader.text, reader.at
        if self._first and at < len(text) and not reader.closed and text.find(self._first, at) < 0:  # nearly every delta
            found = None
        else:
            found = mark_in(text, at, self._markers, closed=reader.closed)
        end = len(text) if found is None else found[0]
        if end > at:
            if self._left is not None:
                if end - at > self._left:
                    reader.at = at + self._left
                    raise BrokenError("held_too_long")
                self._left -= end - at
            reader.at = end
            self._take(text[at:end] if at or end < len(text) else text)
        if found is not None and found[2]:
            reader.at = found[1]
            self.found = text[found[0] : found[1]]
            return True
        if reader.closed:
            if self._or_end:
                return True
            raise CutError
        return False


_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_IN_QUOTES = re.compile(r"['\\\x00-\x1f]")
_IN_VALUE = re.compile(r"""["'{}\[\]<>`|｜]""")
_MARKS = re.compile(r"""["'{}\[\]<>`|｜\\\x00-\x1f]""")
_SCALAR = re.compile(r"""[^\s,:"'{}\[\]<>`|｜]*""")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{4}")
_SECOND_HALF = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_MEANINGS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class Value:
    """Follows quotation marks and brackets to a value's end. Hands over one piece for each chunk, or more where it must mend."""

    __slots__ = ("_depth", "_quote", "_reader", "_take")

    def __init__(self, reader: Reader, take: Taker) -> None:
        self._reader = reader
        self._take = take
        self._depth = 0
        self._quote = ""

    def step(self) -> bool:
        reader = self._reader
        text = reader.text
        if reader.at or not text or reader.closed or not (self._passes_string(text) or self._passes(text)):
            return self._read_closely()
        reader.at = len(text)
        self._take(text)
        return False

    def _passes_string(self, text: str) -> bool:
        """Whether all of the text is the inside of a string, as of most deltas within one."""
        return self._quote == '"' and '"' not in text and "\\" not in text and text.isprintable()

    def _passes(self, text: str) -> bool:
        """Whether the value goes on after all of the text, with nothing in it to be mended, as it does after most deltas."""
        depth, quote = self._depth, self._quote
        if not depth:
            return False
        for mark in _MARKS.findall(text):
            if quote:
                if mark == quote:
                    quote = ""
                elif mark == "\\" or mark < " ":
                    return False
            elif mark in "{[":
                depth += 1
            elif mark in "}]":
                depth -= 1
                if not depth:
                    return False
            elif mark in "\"'":
                quote = mark
            elif mark >= " " and mark != "\\":
                return False
        self._depth, self._quote = depth, quote
        return True

    def _read_closely(self) -> bool:
        reader = self._reader
        text, start = reader.text, reader.at
        at, depth, quote = start, self._depth, self._quote
        if not depth and not quote and text[start] not in "\"'{[":
            return self._scalar()
        while True:
            found = (_IN_VALUE if not quote else _IN_STRING if quote == '"' else _IN_QUOTES).search(text, at)
            if found is None:
                end = len(text)
                break
            at = found.end()
            mark = text[at - 1]
            if quote:
                if mark == quote:
                    quote = ""
                    if depth:
                        continue
                    end = at
                    break
                escape = _escape(text, at - 1, closed=reader.closed) if mark == "\\" else (_escaped(mark), at)
                if escape is None:  # more must come to tell
                    end = at - 1
                    break
                written, at = escape
                if text[found.start() : at] != written:
                    self._take(text[start : found.start()] + written)
                    start = reader.at = at
            elif mark in "{[":
                depth += 1
            elif mark in "}]":
                depth -= 1
                if not depth:
                    end = at
                    break
            elif mark in "\"'":
                quote = mark
            else:
                reader.at = found.start()
                if found.start() > start:
                    self._take(text[start : found.start()])
                raise BrokenError("invalid_json")
        self._depth, self._quote = depth, quote
        reader.at = end
        if end > start:
            self._take(text[start:end] if start or end < len(text) else text)
        if not depth and not quote:
            return True
        if reader.closed:
            raise CutError
        return False

    def _scalar(self) -> bool:
        reader = self._reader
        found = _SCALAR.match(reader.text, reader.at)
        end = found.end() if found else reader.at
        if end == reader.at or end - reader.at > SCALAR_LIMIT:
            raise NotACallError
        if end == len(reader.text) and not reader.closed:
            return False
        scalar = reader.text[reader.at : end]
        reader.at = end
        self._take(scalar)
        return True


def _escaped(control: str) -> str:
    return _ESCAPES.get(control) or f"\\u{ord(control):04x}"


def _escape(text: str, at: int, *, closed: bool) -> tuple[str, int] | None:
    """The escape at that place and where it ends; half a surrogate pair is replaced. None: more must come to tell."""
    if at + 2 > len(text):
        return None
    if text[at + 1] != "u":
        return text[at : at + 2], at + 2
    if _HEXADECIMAL.match(text, at + 2) is None:
        return None if at + 6 > len(text) and not closed else (text[at : at + 2], at + 2)
    code = int(text[at + 2 : at + 6], 16)
    if not 0xD800 <= code < 0xE000:
        return text[at : at + 6], at + 6
    if code < 0xDC00:
        second = text[at + 6 : at + 12]
        if len(second) < 6 and not closed and "\\u".startswith(second[:2]):
            return None
        if _SECOND_HALF.fullmatch(second):
            return text[at : at + 12], at + 12
    return "\\ufffd", at + 6


class String:
    """Reads what a string means, up to its second quotation mark. Hands over one piece for each chunk."""

    __slots__ = ("_reader", "_take")

    def __init__(self, reader: Reader, take: Taker) -> None:
        self._reader = reader
        self._take = take

    def step(self) -> bool:
        reader = self._reader
        text, at = reader.text, reader.at
        pieces: list[str] = []
        done = False
        while not done:
            found = _IN_STRING.search(text, at)
            end = len(text) if found is None else found.start()
            pieces.append(text[at:end])
            at = end
            if found is None:
                break
            if found.group() == '"':
                at, done = found.end(), True
            elif found.group() == "\\":
                escape = _escape(text, at, closed=reader.closed)
                if escape is None:
                    break
                pieces.append(_meant(escape[0]))
                at = escape[1]
            else:  # a control character, which ought to have been escaped
                pieces.append(found.group())
                at = found.end()
        reader.at = at
        if piece := "".join(pieces):
            self._take(piece)
        if not done and reader.closed:
            raise CutError
        return done


def meaning(written: str) -> str:
    """What the inside of a JSON string means."""
    if "\\" not in written:
        return written
    pieces: list[str] = []
    at = 0
    while (end := written.find("\\", at)) >= 0:
        pieces.append(written[at:end])
        escape = _escape(written, end, closed=True) or ("", len(written))
        pieces.append(_meant(escape[0]))
        at = escape[1]
    return "".join(pieces) + written[at:]


def _meant(escape: str) -> str:
    if len(escape) <= 2:
        return _MEANINGS.get(escape[1:], escape[1:])
    code = int(escape[2:6], 16)
    return chr(code) if len(escape) == 6 else chr(0x10000 + ((code - 0xD800) << 10) + (int(escape[8:], 16) - 0xDC00))
