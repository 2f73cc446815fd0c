"""Input buffer of a grammar, with parser primitives that wait for more text.

A grammar is a generator, written as if all the text were there. A primitive that needs more text yields; it is resumed when text
has arrived or the stream has ended. It keeps only what may be the beginning of a marker, so no text is parsed twice.

A primitive that fails consumes nothing, so that the place of an error does not depend on the chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator
from typing import Protocol, TypeAlias, TypeVar

from toolrelay.parsing.errors import MalformedCallError, NotACallError, TruncatedCallError
from toolrelay.parsing.markers import is_complete, markers_of

T = TypeVar("T")


class Lexer(Protocol):
    """Consumes a long value from a reader and emits it piece by piece."""

    def advance(self) -> bool:
        """Consume the reader's text as far as it is unambiguous; return whether the value ended."""
        ...


Parse: TypeAlias = Generator[None, None, T]
"""A parser in progress: yields whenever it needs more text, returns T."""
Emit: TypeAlias = Callable[[str], None]
"""Receives output piece by piece."""

NAME_LIMIT = 256
BLANK_LIMIT = 256
NAME = re.compile(r"[\w.\-]+")
_NAME_AND_BLANKS = re.compile(r"\s*[\w.\-]*\s*")
_NO_LIMIT = 1 << 62
BLANKS = re.compile(r"[ \t\r\n]*")


def match_end(pattern: re.Pattern[str], text: str, at: int, stop: int = _NO_LIMIT) -> int:
    """Return where a match at that place ends; that place if there is none."""
    found = pattern.match(text, at, stop)
    return at if found is None else found.end()


class Reader:
    """A buffer: `text`, consumed up to `at`. `closed`: no more text follows. `complete`: because the model ended its answer.

    `ends`: marks that end a call. `repaired`: invalid JSON in the text so far was repaired. `lexer` waits for more text: until
    its value ends, it can be advanced without the parser that waits for it.
    """

    __slots__ = ("at", "closed", "complete", "ends", "lexer", "repaired", "text")

    def __init__(self, text: str = "", at: int = 0, ends: tuple[str, ...] = ()) -> None:
        self.text = text
        self.at = at
        self.ends = ends
        self.lexer: Lexer | None = None
        self.repaired = False
        self.closed = False
        self.complete = False

    def feed(self, text: str) -> None:
        self.text = self.text[self.at :] + text
        self.at = 0

    def unread(self, text: str) -> None:
        """Put back what was just consumed."""
        self.text = text + self.text[self.at :]
        self.at = 0

    def require_more(self) -> None:
        """Fail if no more text follows."""
        if self.closed:
            raise TruncatedCallError

    def peek(self) -> Parse[str]:
        """Return the next character without consuming it; "" at the end."""
        while self.at >= len(self.text):
            if self.closed:
                return ""
            yield
        return self.text[self.at]

    def skip_blanks(self) -> Parse[None]:
        """Skip blanks."""
        while True:
            self.at = match_end(BLANKS, self.text, self.at)
            if self.at < len(self.text) or self.closed:
                return
            yield

    def accept(self, *literals: str) -> Parse[str]:
        """Consume and return the literal that comes next; "" if none does."""
        while True:
            found = markers_of(literals).pattern(closed=self.closed).match(self.text, self.at)
            if found is None:
                return ""
            if is_complete(found):
                self.at = found.end()
                return found.group()
            yield

    def expect(self, *literals: str) -> Parse[str]:
        """Consume and return the literal that comes next; fail if none does."""
        found = yield from self.accept(*literals)
        if not found:
            rest = self.text[self.at :]
            raise TruncatedCallError if self.closed and any(literal.startswith(rest) for literal in literals) else NotACallError
        return found

    def expect_name(self, names: Collection[str]) -> Parse[str]:
        """Consume the longest name that comes next; fail if none does. Not cached, because the names are those of one request."""
        while True:
            rest = self.text[self.at :]
            partial = any(len(name) > len(rest) and name.startswith(rest) for name in names)
            if not partial or self.closed:
                break
            yield
        found = max((name for name in names if rest.startswith(name)), key=len, default="")
        if not found:
            raise TruncatedCallError if partial else NotACallError
        self.at += len(found)
        return found

    def accept_after_blanks(self, *literals: str) -> Parse[str]:
        """Consume blanks and a literal after them, and return the literal; consume nothing and return "" if none follows."""
        found = yield from self._after_blanks(literals)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()

    def is_ahead(self, *literals: str) -> Parse[bool]:
        """Return whether one of the literals comes next, after blanks. Consumes nothing."""
        return (yield from self._after_blanks(literals)) is not None

    def find_ahead(self, *literals: str) -> Parse[int]:
        """Return how far ahead the literal ends that comes next, after blanks; 0 if none does. Consumes nothing."""
        found = yield from self._after_blanks(literals)
        return 0 if found is None else found.end() - self.at

    def word_ahead(self, *markers: str, after: int = 0, limit: int = NAME_LIMIT) -> Parse[str | None]:
        """Return the text up to the first of the markers, on one line; None if no marker comes. Consumes nothing.

        `after`: how far ahead the text begins.
        """
        searched = markers_of(markers)
        while True:
            start = self.at + after
            found = searched.pattern(closed=self.closed).search(self.text, start, start + limit + searched.longest)
            end = len(self.text) if found is None else found.start()
            if "\n" in self.text[start:end] or end - start > limit:
                return None
            if found is not None and is_complete(found):
                return self.text[start:end]
            if self.closed:
                return None
            yield

    def may_come(self, marker: str, limit: int) -> Parse[bool]:
        """Return whether the marker follows, or more text than the limit. Consumes nothing."""
        searched = 0
        while True:
            size = len(self.text) - self.at
            if self.text.find(marker, self.at + searched, self.at + limit) >= 0 or size >= limit:
                return True
            if self.closed:
                return False
            searched = max(0, size - len(marker))
            yield

    def is_at_end(self) -> Parse[bool]:
        """Return whether only blanks follow, up to the end of the stream. Consumes nothing."""
        while True:
            at = match_end(BLANKS, self.text, self.at, self.at + BLANK_LIMIT + 1)
            if at < len(self.text) or at - self.at > BLANK_LIMIT or self.closed:
                return at == len(self.text)
            yield

    def is_answer_over(self) -> Parse[bool]:
        """Return whether only blanks follow, and the model ended its answer there. Consumes nothing."""
        return (yield from self.is_at_end()) and self.complete

    def _after_blanks(self, literals: tuple[str, ...]) -> Parse[re.Match[str] | None]:
        while True:
            at = match_end(BLANKS, self.text, self.at, self.at + BLANK_LIMIT + 1)
            if at - self.at > BLANK_LIMIT:
                return None
            found = markers_of(literals).pattern(closed=self.closed).match(self.text, at)
            if found is None or is_complete(found):
                return found
            yield

    def read_until(self, *markers: str, emit: Emit, limit: int = _NO_LIMIT, or_end: bool = False) -> Parse[str]:
        """Emit text as it arrives, up to the first of the markers; consume and return the marker.

        `limit`: longer text is malformed. `or_end`: at the end of the stream, return "".
        """
        searched = markers_of(markers)
        while True:
            found = searched.pattern(closed=self.closed).search(self.text, self.at)
            end = len(self.text) if found is None else found.start()
            if end - self.at > limit:
                self.at += limit
                raise MalformedCallError("held_too_long")
            piece = self.text[self.at : end]
            limit -= len(piece)
            self.at = end
            if piece:
                emit(piece)
            if found is not None and is_complete(found):
                self.at = found.end()
                return found.group()
            if or_end and self.closed:
                return ""
            self.require_more()
            yield

    def read_match(self, pattern: re.Pattern[str], limit: int = NAME_LIMIT) -> Parse[str]:
        """Consume the longest match of the pattern; "" if there is none."""
        while True:
            end = match_end(pattern, self.text, self.at)
            if end - self.at > limit:
                raise NotACallError
            if end < len(self.text) or self.closed:
                break
            yield
        word = self.text[self.at : end]
        self.at = end
        return word

    def read_word(
        self, *markers: str, before: tuple[str, ...] = (), of: re.Pattern[str] | None = None, limit: int = NAME_LIMIT
    ) -> Parse[str]:
        """Return short text, such as a name, up to the first of the markers. Consumes the marker, unless it is one of `before`.

        `of`: the pattern that the text must match; anything else fails as soon as it arrives.
        """
        searched = markers_of((*markers, *before))
        while True:
            stop = self.at + limit + searched.longest
            found = searched.pattern(closed=self.closed).search(self.text, self.at, stop)
            end = len(self.text) if found is None else found.start()
            if end - self.at > limit or (of is not None and of.fullmatch(self.text, self.at, end) is None):
                raise NotACallError
            if found is not None and is_complete(found):
                word = self.text[self.at : end]
                self.at = end if found.group() in before else found.end()
                return word
            self.require_more()
            yield

    def read_name(self, *markers: str) -> Parse[str]:
        """Return the name of a tool, up to the first of the markers. Consumes the marker."""
        name = (yield from self.read_word(*markers, of=_NAME_AND_BLANKS)).strip()
        if not name:
            raise NotACallError
        return name


def run_lexer(lexer: Lexer, reader: Reader) -> Parse[None]:
    """Run a lexer to the end of its value."""
    while not lexer.advance():
        reader.require_more()
        reader.lexer = lexer
        yield
    reader.lexer = None
