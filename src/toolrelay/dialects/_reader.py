"""What a dialect's grammar reads with: primitives that wait for more text where there is not enough.

A grammar is a generator. Wherever it reads, it may stop (`yield`) and is resumed when more text has come or the stream has ended.
So it is written as if all the text were there, and chunking cannot matter to it. Nothing is looked at twice: a primitive takes
what it understands and keeps back only what may be the beginning of the marker it waits for.

A primitive that fails (`_faults`) leaves the reader where it stood: where a reading fails never depends on the chunks either.

What may take long, such as a value of a megabyte, is a step (see _steps). The grammar yields it, and it is asked for each chunk,
past all the generators that stand above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator
from typing import TypeAlias, TypeVar

from toolrelay.dialects._faults import CutError, NotACallError
from toolrelay.dialects._json_value import String, Value, meaning
from toolrelay.dialects._steps import NO_LIMIT, Mark, Search, Step, Taker, mark_at, mark_in

T = TypeVar("T")
Reading: TypeAlias = Generator[Step | None, None, T]

NAME_LIMIT = 256
BLANK_LIMIT = 256
NAME_ALONE = re.compile(r"\s*[\w.\-]*\s*")
_BLANK = re.compile(r"[ \t\r\n]*")
_SHORT_STRING = re.compile(r"""(?:"([^"\\]*(?:\\.[^"\\]*)*)"|'([^'\\]*(?:\\.[^'\\]*)*)')""", re.DOTALL)


class Reader:
    """The text that a grammar has before it: `text`, read up to `at`. `closed`: no more will come."""

    __slots__ = ("at", "closed", "text")

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at
        self.closed = False

    def feed(self, text: str) -> None:
        self.text = self.text[self.at :] + text if self.at < len(self.text) else text
        self.at = 0

    def peek(self) -> Reading[str]:
        """The next character, which stays; "" at the end."""
        while self.at >= len(self.text):
            if self.closed:
                return ""
            yield None
        return self.text[self.at]

    def blanks(self) -> Reading[None]:
        while True:
            found = _BLANK.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text) or self.closed:
                return
            yield None

    def option(self, *literals: str) -> Reading[str]:
        """The literal that comes next, or "" if none does."""
        while True:
            found = mark_at(self.text, self.at, literals, closed=self.closed)
            if found is None:
                return ""
            if found[2]:
                self.at = found[1]
                return self.text[found[0] : found[1]]
            yield None

    def literal(self, *literals: str) -> Reading[str]:
        """The literal that must come next."""
        found = yield from self.option(*literals)
        if not found:
            rest = self.text[self.at :]
            raise CutError if self.closed and any(literal.startswith(rest) for literal in literals) else NotACallError
        return found

    def known(self, names: Collection[str]) -> Reading[str]:
        """The longest of the names, which must come next. They may be a request's own: no pattern is made of them and kept."""
        while True:
            rest = self.text[self.at :]
            begun = any(len(name) > len(rest) and name.startswith(rest) for name in names)
            if not begun or self.closed:
                break
            yield None
        found = max((name for name in names if rest.startswith(name)), key=len, default="")
        if not found:
            raise CutError if begun else NotACallError
        self.at += len(found)
        return found

    def closing(self, *literals: str) -> Reading[str]:
        """Passes the literal that comes next after blanks, and the blanks; "" if none does, and nothing is passed."""
        found = yield from self._after_blanks(literals)
        if found is None:
            return ""
        self.at = found[1]
        return self.text[found[0] : found[1]]

    def ahead(self, *literals: str) -> Reading[bool]:
        """Whether, after blanks, one of the literals comes next. Nothing is passed."""
        found = yield from self._after_blanks(literals)
        return found is not None

    def _after_blanks(self, literals: tuple[str, ...]) -> Reading[Mark | None]:
        while True:
            blank = _BLANK.match(self.text, self.at, self.at + BLANK_LIMIT + 1)
            at = blank.end() if blank else self.at
            if at - self.at > BLANK_LIMIT:
                return None
            found = mark_at(self.text, at, literals, closed=self.closed)
            if found is None or found[2]:
                return found
            yield None

    def until(
        self, *markers: str, take: Taker, limit: int = NO_LIMIT, or_end: bool = False, escaped: bool = False
    ) -> Reading[str]:
        """Hands over what comes before the first of the markers, as it comes; passes the marker and returns it.

        `escaped`: as a part of a JSON string.
        Longer than `limit` is too long to be held. `or_end`: the end of the stream does as well, and "" is returned.
        """
        search = Search(self, markers, take, limit, or_end=or_end, escaped=escaped)
        if (piece := search.step("")) is not None:
            if piece:
                take(piece)
            yield search
        return search.found

    def run(self, pattern: re.Pattern[str], limit: int = NAME_LIMIT) -> Reading[str]:
        """The longest run of that pattern that comes next; "" if none does."""
        while True:
            found = pattern.match(self.text, self.at)
            end = found.end() if found else self.at
            if end - self.at > limit:
                raise NotACallError
            if end < len(self.text) or self.closed:
                break
            yield None
        word = self.text[self.at : end]
        self.at = end
        return word

    def word(self, *markers: str, of: re.Pattern[str] | None = None, limit: int = NAME_LIMIT) -> Reading[str]:
        """What comes before the first of the markers, whole and short, such as a name. The marker is passed.

        `of` is what it may be made of; anything else is noticed as soon as it comes.
        """
        longest = max(map(len, markers))
        while True:
            found = mark_in(self.text, self.at, markers, closed=self.closed, reach=self.at + limit + longest)
            end = len(self.text) if found is None else found[0]
            if end - self.at > limit or (of is not None and of.fullmatch(self.text, self.at, end) is None):
                raise NotACallError
            if found is not None and found[2]:
                word = self.text[self.at : end]
                self.at = found[1]
                return word
            if self.closed:
                raise CutError
            yield None

    def unread(self, text: str) -> None:
        """Puts back what was just read."""
        self.text = text + self.text[self.at :]
        self.at = 0

    def take(self, count: int) -> Reading[str]:
        """That many characters."""
        while len(self.text) - self.at < count:
            if self.closed:
                raise CutError
            yield None
        self.at += count
        return self.text[self.at - count : self.at]

    def short_string(self, limit: int = NAME_LIMIT) -> Reading[str]:
        """A JSON string, whole and short, such as a key. Single quotes do as well."""
        while True:
            if self.at < len(self.text) and self.text[self.at] not in "\"'":
                raise NotACallError
            found = _SHORT_STRING.match(self.text, self.at, self.at + limit + 2)
            if found is not None:
                self.at = found.end()
                return meaning(found.group(1) if found.group(1) is not None else found.group(2))
            if len(self.text) - self.at >= limit + 2:
                raise NotACallError
            if self.closed:
                raise CutError
            yield None

    def string(self, take: Taker) -> Reading[None]:
        """A JSON string; what it means is handed over as it comes."""
        yield from self.literal('"')
        string = String(self, take)
        if (piece := string.step("")) is not None:
            if piece:
                take(piece)
            yield string

    def value(self, take: Taker) -> Reading[None]:
        """A JSON value; its own text is handed over as it comes.

        It ends where its brackets do. Line breaks and other control characters inside strings, which JSON forbids and models
        write, are escaped on the way; whether it is JSON otherwise is for whoever has all of it to say. But what no JSON has
        outside of strings, however badly written, and the marks that end calls begin with, breaks it.
        """
        first = yield from self.peek()
        if not first:
            raise CutError
        value = Value(self, take)
        if (piece := value.step("")) is not None:
            if piece:
                take(piece)
            yield value


def read_whole(text: str, reading: Callable[[Reader], Reading[None]]) -> str:
    """Reads from a text that is all there; returns what is left of it."""
    reader = Reader(text)
    reader.closed = True
    for _ in reading(reader):
        pass
    return reader.text[reader.at :]
