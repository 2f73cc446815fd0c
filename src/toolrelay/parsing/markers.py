"""Patterns that find markers in a buffer, including a partial marker at its end."""

from __future__ import annotations

import re
from functools import lru_cache


class Markers:
    """Patterns that find any of the markers; of two at the same place, the longer one.

    While more text may follow, a partial marker at the end of the buffer matches, too, or else the empty end itself: such a match
    is not complete (`is_complete`).
    """

    __slots__ = ("complete", "longest", "partial")

    def __init__(self, markers: tuple[str, ...]) -> None:
        self.partial = re.compile(partial_pattern(markers) + r"|\Z()")
        self.complete = re.compile("|".join(re.escape(marker) for marker in _longest_first(markers)))
        self.longest = max(map(len, markers))

    def pattern(self, *, closed: bool) -> re.Pattern[str]:
        """`closed`: no more text follows."""
        return self.complete if closed else self.partial


markers_of = lru_cache(maxsize=512)(Markers)


def is_complete(found: re.Match[str]) -> bool:
    return found.lastindex is None


def partial_pattern(markers: tuple[str, ...]) -> str:
    r"""Match a marker, or the beginning of one at the text's end, which sets `lastindex`: `abc|a(?:b)?\Z()` for "abc"."""
    return "|".join(re.escape(marker) + _beginning(marker) for marker in _longest_first(markers))


def _beginning(marker: str) -> str:
    if len(marker) == 1:
        return ""
    inner = ""
    for character in reversed(marker[1:-1]):
        inner = f"(?:{re.escape(character)}{inner})?"
    return f"|{re.escape(marker[0])}{inner}\\Z()"


def _longest_first(markers: tuple[str, ...]) -> list[str]:
    return sorted(markers, key=len, reverse=True)
