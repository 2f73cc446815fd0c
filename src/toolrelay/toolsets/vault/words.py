"""The different words of all notes, in memory, to find those that contain a part."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator

_CJK_RANGES = ((0x1100, 0x11FF), (0x3005, 0x3007), (0x3040, 0xD7FF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_IS_CJK = " OR ".join(f"unicode(term) BETWEEN {first} AND {last}" for first, last in _CJK_RANGES)


class Words:
    """A list of words that may contain some twice, or some that no note has any more. That costs time only.

    CJK text has none: it is indexed by pairs of characters.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text: str | None = None  # one word per line
        self._added = "\n"

    @property
    def is_loaded(self) -> bool:
        return self._text is not None

    def clear(self) -> None:
        with self._lock:
            self._text, self._added = None, "\n"

    def load(self, connection: sqlite3.Connection, table: str) -> None:
        """Read the words from an index, if that has not been done."""
        with self._lock:
            if self._text is None:
                query = f"SELECT group_concat(term, char(10)) FROM {table}_words WHERE NOT ({_IS_CJK})"  # noqa: S608 -- a constant
                self._text = f"\n{connection.execute(query).fetchone()[0] or ''}\n"

    def add(self, words: Iterable[str]) -> None:
        with self._lock:
            self._added = f"{self._added}{chr(10).join(words)}\n"

    def find(self, part: str, *, at_end: bool, limit: int) -> list[str] | None:
        """Return the words that contain the part, or end with it. None: there are more than `limit`."""
        found: set[str] = set()
        for text in (self._text or "", self._added):
            for word in _find(text, f"{part}\n" if at_end else part):
                found.add(word)
                if len(found) > limit:
                    return None
        return sorted(found)


def _find(text: str, part: str) -> Iterator[str]:
    place = text.find(part)
    while place >= 0:
        start, end = text.rfind("\n", 0, place + 1) + 1, text.find("\n", place)
        yield text[start:end]
        place = text.find(part, end)
