"""The names and the different words of all notes, in memory, to find those that contain a part."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from msgspec import Struct

_CJK_RANGES = ((0x1100, 0x11FF), (0x3005, 0x3007), (0x3040, 0xD7FF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_IS_CJK = " OR ".join(f"unicode(term) BETWEEN {first} AND {last}" for first, last in _CJK_RANGES)


_NAMES = (
    "SELECT group_concat(line, char(10)) FROM (SELECT id || ' ' || name AS line FROM note WHERE is_private = ? ORDER BY id DESC)"
)
Reader = Callable[[], AbstractContextManager[sqlite3.Connection]]


class WordList(Struct, frozen=True):
    """Words, one per line. Some may be there twice, or be of no note any more: that costs time only."""

    texts: tuple[str, ...]

    def find(self, part: str, *, at_end: bool, limit: int) -> list[str] | None:
        """Return the words that contain the part, or end with it. None: there are more than `limit`."""
        found: set[str] = set()
        for text in self.texts:
            for word in _find(text, f"{part}\n" if at_end else part):
                found.add(word)
                if len(found) > limit:
                    return None
        return sorted(found)


class Words:
    """The words of a full-text table, read when they are first needed. CJK text has none: its pairs of characters are indexed."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._text: str | None = None
        self._added = "\n"
        self.is_used = False

    def clear(self) -> None:
        """Read the words again when they are needed."""
        with self._lock:
            self._text, self._added, self.is_used = None, "\n", False

    def add(self, words: Iterable[str]) -> None:
        """Add the words of a note. It must have been committed, and `is_used` must have been True after that."""
        with self._lock:
            self._added = f"{self._added}{chr(10).join(words)}\n"

    def load(self, reader: Reader) -> WordList:
        with self._lock:
            self.is_used = True  # before the index is read: what is committed from now on is added
            if self._text is None:
                query = f"SELECT group_concat(term, char(10)) FROM {self._table}_words WHERE NOT ({_IS_CJK})"  # noqa: S608 -- constants
                with reader() as connection:
                    self._text = f"\n{connection.execute(query).fetchone()[0] or ''}\n"
            return WordList((self._text, self._added))


def _find(text: str, part: str) -> Iterator[str]:
    place = text.find(part)
    while place >= 0:
        start, end = text.rfind("\n", 0, place + 1) + 1, text.find("\n", place)
        yield text[start:end]
        place = text.find(part, end)


class NameList(Struct, frozen=True):
    """Names, newest note first, one per line, each after the number of its note."""

    text: str

    def find(self, part: str) -> Iterator[tuple[int, str]]:
        """Yield the number and name of the notes whose names contain the part."""
        for line in _find(self.text, part):
            number, _, name = line.partition(" ")
            if part in name:
                yield int(number), name


class Names:
    """The names of the notes of a full-text table, read when they are first needed."""

    def __init__(self, *, is_private: bool) -> None:
        self._is_private = is_private
        self._lock = threading.Lock()
        self._names: NameList | None = None

    def clear(self) -> None:
        """Read the names again when they are needed."""
        with self._lock:
            self._names = None

    def load(self, reader: Reader) -> NameList:
        with self._lock:
            if self._names is None:
                with reader() as connection:
                    lines = connection.execute(_NAMES, (self._is_private,)).fetchone()[0]
                self._names = NameList(f"\n{lines or ''}\n")
            return self._names
