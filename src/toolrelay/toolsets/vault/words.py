"""The different words of all notes, in memory, to find those that contain a part."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from msgspec import Struct

_CJK_RANGES = ((0x1100, 0x11FF), (0x3005, 0x3007), (0x3040, 0xD7FF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_IS_CJK = " OR ".join(f"unicode(term) BETWEEN {first} AND {last}" for first, last in _CJK_RANGES)


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

    def load(self, reader: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> WordList:
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
