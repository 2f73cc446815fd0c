"""What a dialect's grammar reads with: primitives that wait for more text where there is not enough.

A grammar is a generator. Wherever it reads, it may stop (`yield`) and is resumed when more text has come or the stream has ended.
So it is written as if all the text were there, and chunking cannot matter to it. Nothing is looked at twice: a primitive takes
what it understands and keeps back only what may be the beginning of the marker it waits for.

    NotACallError   what was read so far is text after all; the scanner gives it out as such
    BrokenError     a call had begun, and then its text made no sense; what was given out cannot be taken back
    CutError        the stream ended in the middle
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
Taker: TypeAlias = Callable[[str], None]

NAME_LIMIT = 256
_BLANKS_AHEAD = 256
_BLANK = re.compile(r"[ \t\r\n]*")
_STRUCTURE = re.compile(r'["{}\[\]]|[^\s\w.+\-:,]')
_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_SCALAR = re.compile(r"[\w.+\-]*")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class NotACallError(Exception):
    pass


class BrokenError(Exception):
    """`rule` says what was broken, for the log."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class CutError(Exception):
    pass


@lru_cache(maxsize=256)
def _any_of(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Finds the first of the markers; where two begin at the same place, the longer one."""
    return re.compile("|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True)))


@lru_cache(maxsize=256)
def _beginnings(markers: tuple[str, ...]) -> tuple[int, re.Pattern[str]]:
    """How far back a marker's beginning can lie, and what it begins with."""
    return max(map(len, markers)) - 1, re.compile("[" + re.escape("".join({marker[0] for marker in markers})) + "]")


def kept_back(text: str, start: int, markers: tuple[str, ...]) -> int:
    """How many of the last characters of the text, from `start` on, may be the beginning of a marker."""
    reach, first = _beginnings(markers)
    at = max(start, len(text) - reach)
    while (found := first.search(text, at)) is not None:
        rest = text[found.start() :]
        if any(marker.startswith(rest) for marker in markers):
            return len(rest)
        at = found.end()
    return 0


class Reader:
    """The text that a grammar has before it."""

    __slots__ = ("_at", "_text", "closed")

    def __init__(self, text: str, at: int = 0) -> None:
        self._text = text
        self._at = at
        self.closed = False

    def feed(self, text: str) -> None:
        self._text = self._text[self._at :] + text if self._at < len(self._text) else text
        self._at = 0

    @property
    def place(self) -> tuple[str, int]:
        """The text, and how far it was read."""
        return self._text, self._at

    def peek(self) -> Reading[str]:
        """The next character, which stays; "" at the end."""
        while self._at >= len(self._text):
            if self.closed:
                return ""
            yield
        return self._text[self._at]

    def blanks(self) -> Reading[None]:
        while True:
            found = _BLANK.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text) or self.closed:
                return
            yield

    def option(self, *literals: str) -> Reading[str]:
        """The literal that comes next, or "" if none does."""
        while True:
            rest = self._text[self._at : self._at + max(map(len, literals))]
            undecided = not self.closed and any(len(literal) > len(rest) and literal.startswith(rest) for literal in literals)
            if not undecided:
                break
            yield
        for literal in sorted(literals, key=len, reverse=True):
            if rest.startswith(literal):
                self._at += len(literal)
                return literal
        return ""

    def literal(self, *literals: str) -> Reading[str]:
        """The literal that must come next."""
        found = yield from self.option(*literals)
        if not found:
            raise NotACallError
        return found

    def ahead(self, *literals: str) -> Reading[bool]:
        """Whether, after blanks, one of the literals comes next. Nothing is passed. At the end, everything may have come."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            at = blank.end() if blank else self._at
            if at - self._at > _BLANKS_AHEAD:
                return False
            rest = self._text[at : at + max(map(len, literals))]
            if any(rest.startswith(literal) for literal in literals) or self.closed:
                return True
            if not any(literal.startswith(rest) for literal in literals):
                return False
            yield

    def until(self, *markers: str, take: Taker) -> Reading[str]:
        """Hands over what comes before the first of the markers, as it comes; passes the marker and returns it."""
        pattern = _any_of(markers)
        while True:
            text = self._text
            found = pattern.search(text, self._at)
            if found is not None and (self.closed or not self._may_grow(found, markers)):
                if found.start() > self._at:
                    take(text[self._at : found.start()])
                self._at = found.end()
                return found.group()
            end = found.start() if found is not None else len(text) - kept_back(text, self._at, markers)
            if end > self._at:
                take(text[self._at : end])
                self._at = end
            if self.closed:
                raise CutError
            yield

    def _may_grow(self, found: re.Match[str], markers: tuple[str, ...]) -> bool:
        """Whether a longer marker may yet turn out to stand where a shorter one was found."""
        rest = self._text[found.start() :]
        return any(len(marker) > len(rest) and marker.startswith(rest) for marker in markers)

    def run(self, pattern: re.Pattern[str], limit: int = NAME_LIMIT) -> Reading[str]:
        """The longest run of that pattern that comes next; "" if none does."""
        while True:
            found = pattern.match(self._text, self._at)
            end = found.end() if found else self._at
            if end < len(self._text) or self.closed:
                break
            if end - self._at > limit:
                raise BrokenError("malformed")
            yield
        word = self._text[self._at : end]
        self._at = end
        return word

    def unread(self, text: str) -> None:
        """Puts back what was just read."""
        self._text = text + self._text[self._at :]
        self._at = 0

    def take(self, count: int) -> Reading[str]:
        """That many characters."""
        while len(self._text) - self._at < count:
            if self.closed:
                raise CutError
            yield
        self._at += count
        return self._text[self._at - count : self._at]

    def word(self, *markers: str, limit: int = NAME_LIMIT) -> Reading[str]:
        """What comes before the marker, whole and short, such as a name."""
        pieces: list[str] = []

        def take(piece: str) -> None:
            pieces.append(piece)
            if sum(map(len, pieces)) > limit:
                raise NotACallError

        yield from self.until(*markers, take=take)
        return "".join(pieces)

    def string(self, take: Taker) -> Reading[None]:
        """A JSON string; what it means is handed over as it comes."""
        yield from self.literal('"')
        while True:
            text = self._text
            found = _IN_STRING.search(text, self._at)
            end = len(text) if found is None else found.start()
            if end > self._at:
                take(text[self._at : end])
                self._at = end
            if found is None:
                if self.closed:
                    raise CutError
                yield
            elif found.group() == '"':
                self._at += 1
                return
            elif found.group() == "\\":
                take((yield from self._escape()))
            else:  # a control character, which ought to have been escaped
                self._at += 1
                take(found.group())

    def _escape(self) -> Reading[str]:
        """One escape, or a pair of surrogate escapes."""
        code = yield from self._hexadecimal()
        if isinstance(code, str):
            return code
        if 0xD800 <= code < 0xDC00 and (yield from self.option("\\u")):
            self._at -= 2
            second = yield from self._hexadecimal()
            if isinstance(second, int) and 0xDC00 <= second < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00))
            return "\ufffd" + (second if isinstance(second, str) else _character(second))
        return _character(code)

    def _hexadecimal(self) -> Reading[str | int]:
        while len(self._text) - self._at < 2:
            if self.closed:
                raise CutError
            yield
        kind = self._text[self._at + 1]
        if kind != "u":
            self._at += 2
            return _MEANINGS.get(kind, kind)
        while len(self._text) - self._at < 6:
            if self.closed:
                raise CutError
            yield
        digits = self._text[self._at + 2 : self._at + 6]
        self._at += 6
        try:
            return int(digits, 16)
        except ValueError:
            raise BrokenError("invalid_escape") from None

    def value(self, take: Taker) -> Reading[None]:
        """A JSON value; its own text is handed over as it comes.

        Line breaks and other control characters inside strings, which JSON forbids and models write, are escaped on the way.
        Outside of strings a character that JSON does not know ends the reading: the call is broken.
        """
        first = yield from self.peek()
        if first == '"':
            self._at += 1
            take('"')
            yield from self._string_text(take)
        elif first in ("{", "["):
            yield from self._structure(take)
        else:
            yield from self._scalar(take)

    def _scalar(self, take: Taker) -> Reading[None]:
        pieces: list[str] = []
        while True:
            found = _SCALAR.match(self._text, self._at)
            end = found.end() if found else self._at
            pieces.append(self._text[self._at : end])
            self._at = end
            if self._at < len(self._text) or self.closed:
                break
            yield
        text = "".join(pieces)
        if not text:
            raise BrokenError("invalid_json")
        take(text)

    def _structure(self, take: Taker) -> Reading[None]:
        depth = 0
        while True:
            text, start, at = self._text, self._at, self._at
            while (found := _STRUCTURE.search(text, at)) is not None:
                mark = found.group()
                at = found.end()
                if mark == '"':
                    break
                if mark in "{[":
                    depth += 1
                elif mark in "}]":
                    depth -= 1
                    if depth == 0:
                        break
                else:
                    self._at = found.start()
                    if found.start() > start:
                        take(text[start : found.start()])
                    raise BrokenError("invalid_json")
            end = at if found is not None else len(text)
            if end > start:
                take(text[start:end])
            self._at = end
            if found is None:
                if self.closed:
                    raise CutError
                yield
            elif found.group() == '"':
                yield from self._string_text(take)
            else:
                return

    def _string_text(self, take: Taker) -> Reading[None]:
        """The rest of a JSON string after its first quotation mark, as it is written."""
        while True:
            text, start = self._text, self._at
            found = _IN_STRING.search(text, start)
            if found is None:
                if start < len(text):
                    take(text[start:])
                    self._at = len(text)
                if self.closed:
                    raise CutError
                yield
                continue
            mark, end = found.group(), found.end()
            if mark == '"':
                take(text[start:end])
                self._at = end
                return
            if mark == "\\":
                if end >= len(text):
                    if end - 1 > start:
                        take(text[start : end - 1])
                        self._at = end - 1
                    if self.closed:
                        raise CutError
                    yield
                    continue
                take(text[start : end + 1])
                self._at = end + 1
            else:
                take(text[start : end - 1] + _ESCAPES.get(mark, f"\\u{ord(mark):04x}"))
                self._at = end


_MEANINGS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _character(code: int) -> str:
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
