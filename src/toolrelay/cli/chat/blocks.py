"""Splits streamed Markdown into blocks: those that are finished can be printed for good, only the open one may still change."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_BLOCK = 4000  # characters; a longer block is split
_FENCE = re.compile(r"\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?P<marks>`{3,}|~{3,})[^`]*")
_LIST_ITEM = re.compile(r"\s{0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_TABLE_RULE = re.compile(r"[ |:-]*-[ |:-]*")


class Block(NamedTuple):
    """Markdown that can be rendered alone. `is_continued`: it goes on where the one before was split."""

    text: str
    is_continued: bool = False


class MarkdownSplitter:
    """Takes text piece by piece. `open_block` is what has not ended yet."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._partial = ""
        self._fence = ""  # the marks of the open fence
        self._fence_line = ""
        self._has_gap = False  # the last line was blank
        self._is_continued = False

    @property
    def open_block(self) -> Block:
        return Block("\n".join([*self._lines, self._partial]), self._is_continued)

    def feed(self, text: str) -> list[Block]:
        """Return the blocks that ended with this text."""
        finished: list[Block] = []
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._add_long(line, finished)
        while len(self._partial) > MAX_BLOCK:
            self._partial = self._add_piece(self._partial, finished)
        return finished

    def finish(self) -> list[Block]:
        """Return the rest, and begin anew."""
        finished: list[Block] = []
        if self._partial:
            self._add(self._partial, finished)
        self._end_block(finished)
        self.__init__()  # type: ignore[misc]  # the state of the beginning
        return finished

    def _add_long(self, line: str, finished: list[Block]) -> None:
        while len(line) > MAX_BLOCK:
            line = self._add_piece(line, finished)
        self._add(line, finished)

    def _add_piece(self, line: str, finished: list[Block]) -> str:
        """Add the beginning of a line that is too long, and return the rest."""
        place = line.rfind(" ", MAX_BLOCK // 2, MAX_BLOCK) + 1 or MAX_BLOCK
        self._add(line[:place], finished)
        self._split(finished)
        return line[place:]

    def _add(self, line: str, finished: list[Block]) -> None:
        if self._fence:
            self._append(line)
            marks = line.strip()
            if marks and marks == marks[0] * len(marks) and marks.startswith(self._fence):
                self._fence = ""
                if not self._is_list():
                    self._end_block(finished)
            elif self._size > MAX_BLOCK:
                self._split(finished)
            return
        if not line.strip():
            self._has_gap = True
            if self._lines:
                self._append("")
            return
        opening = _FENCE.fullmatch(line)
        if (self._has_gap or opening is not None) and self._lines and not self._continues(line):
            self._end_block(finished)
        self._has_gap = False
        self._append(line)
        if opening is not None:
            self._fence, self._fence_line = opening["marks"], line.strip().lstrip("-*+0123456789.) ")
        elif self._size > MAX_BLOCK:
            self._split(finished)

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1

    def _is_list(self) -> bool:
        return bool(self._lines) and _LIST_ITEM.match(self._lines[0]) is not None

    def _continues(self, line: str) -> bool:
        """Return whether a line after a gap belongs to the open block."""
        return self._is_list() and (line[0] in " \t" or _LIST_ITEM.match(line) is not None)

    def _split(self, finished: list[Block]) -> None:
        """End the open block in the middle. The rest begins as it needs to be rendered alike."""
        lines, fence = self._lines, self._fence
        again: list[str] = []
        if fence:
            again, lines = [self._fence_line], [*lines, fence]
        elif len(lines) > 2 and "|" in lines[0] and _TABLE_RULE.fullmatch(lines[1]):
            again = lines[:2]
        finished.append(Block("\n".join(lines), self._is_continued))
        self._lines, self._size = again, sum(map(len, again))
        self._is_continued = True

    def _end_block(self, finished: list[Block]) -> None:
        text = "\n".join(self._lines).rstrip()
        if text:
            finished.append(Block(text, self._is_continued))
        self._lines, self._size = [], 0
        self._has_gap = False
        self._is_continued = False
