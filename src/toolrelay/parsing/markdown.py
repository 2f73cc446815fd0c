"""The part of CommonMark that decides whether a call is quoted: lines, inline code, fences."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

FENCE_PATTERN = r"`(?:``|`?\Z)|~(?:~~|~?\Z)"
_MARGIN = re.compile(r"(?:[^\S\n]|>|(?:[-*+]|\d{1,9}[.)])[^\S\n])*", re.ASCII)
_MARGIN_CHARACTERS = " \t\r\v\f>-*+.)0123456789"
_MARGIN_LIMIT = 64
_RUN_OR_BREAK = re.compile("`+|\n")


class LineState:
    """The current line: its margin, and inline code.

    The margin consists of blanks and the marks of block quotes and list items. A fence may open after it.

    Inline code is enclosed by two runs of equally many backticks. The second run may come long after a call, which cannot wait
    for it. So a marker is taken as quoted if it directly follows an opening run, and so is what follows it (`_quotes`), up to the
    second run or the end of the paragraph.
    """

    __slots__ = ("_in_block_quote", "_margin", "_opening_run", "_quotes", "_run", "at_margin")

    def __init__(self) -> None:
        self.start_line()

    def start_line(self) -> None:
        self.leave_margin()
        self.at_margin = True

    def leave_margin(self, opening_run: int = 0) -> None:
        """Go on inside the line. `opening_run`: the number of backticks that have just opened inline code."""
        self.at_margin = False
        self._in_block_quote = False
        self._margin = ""  # without leading blanks
        self.end_code()
        self._opening_run = opening_run

    def end_code(self) -> None:
        self._opening_run = 0  # length of the run that opened inline code
        self._run = 0  # length of the run at the end of the text
        self._quotes = False

    @property
    def is_open(self) -> bool:
        """Whether any next character may change the state."""
        return self.at_margin or self._run > 0 or self._quotes

    @property
    def is_blank(self) -> bool:
        return self.at_margin and not self._margin

    @property
    def may_open_fence(self) -> bool:
        return self.at_margin and _MARGIN.fullmatch(self._margin) is not None

    @property
    def quote_depth(self) -> int:
        """The number of block quotes around the line."""
        return self._margin.count(">")

    def quotes_marker(self) -> bool:
        """Return whether a marker at this place is quoted: in inline code or a block quote."""
        if self._in_block_quote or (self.at_margin and self.quote_depth and self.may_open_fence):
            return True
        if self._run:
            self._end_run()
            self._quotes = self._opening_run > 0
        return self._quotes

    def advance(self, text: str) -> None:
        """Advance over text without markers."""
        if self._run or self._quotes or "`" in text:
            self._follow_code(text)
        elif "\n" in text:
            self._opening_run = 0
        start = text.rfind("\n") + 1
        if start:
            self.at_margin = True
            self._in_block_quote = False
            self._margin = ""
        if self.at_margin:
            self._advance_margin(text[start:])

    def _advance_margin(self, text: str) -> None:
        if text.strip(_MARGIN_CHARACTERS):
            self.at_margin = False
            margin = _MARGIN.match(self._margin + text)
            self._in_block_quote = margin is not None and ">" in margin.group()
        else:
            self._margin = (self._margin + text).lstrip()
            self.at_margin = len(self._margin) <= _MARGIN_LIMIT

    def _follow_code(self, text: str) -> None:
        at = 0
        is_blank = self.is_blank
        for found in _RUN_OR_BREAK.finditer(text):
            between = text[at : found.start()]
            if between:
                self._end_run()
                is_blank = is_blank and between.isspace()
            at = found.end()
            if found.group() != "\n":
                self._run += at - found.start()
                is_blank = False
                continue
            self._end_run()
            if is_blank or not self._quotes:
                self.end_code()
            is_blank = True
        if at < len(text):
            self._end_run()

    def _end_run(self) -> None:
        """End a run: it opens inline code, or closes it if it is as long as the opening run."""
        if self._run and not self._opening_run:
            self._opening_run = self._run
        elif self._run == self._opening_run:
            self._opening_run = 0
            self._quotes = False
        self._run = 0


_FencePlace: TypeAlias = Literal["info", "margin", "run", "closing", "line"]
"""The place in a fence.

info     the rest of the opening line; a backtick in it means that it was inline code
margin   blanks and marks of block quotes at the start of a line
run      a run of the fence's character after the margin, which may close the fence
closing  blanks after a run that is long enough: the end of the line closes the fence
line     the rest of any other line
"""
_RUN = re.compile(r"`{1,64}|~{1,64}")
_MAX_RUN = 64
_NOT_BLANK = re.compile("[^ \t\r]")
_INFO_END = {"`": re.compile("[`\n]"), "~": re.compile("\n")}


class FenceState:
    """An open fence. Its content is text and never held.

    `depth`: the number of block quotes around it. A line without their marks ends the fence.
    """

    __slots__ = ("_character", "_count", "_depth", "_missing", "_place", "ended_line", "run")

    def __init__(self, run: str, depth: int = 0) -> None:
        self.run = run
        self.ended_line = False
        self._character = run[0]
        self._count = 0
        self._depth = depth
        self._missing = depth
        self._place: _FencePlace = "info"

    @staticmethod
    def opening_run(text: str, at: int) -> str | None:
        """Return the run that opens a fence at that place; "" if none does, None if more text is needed."""
        found = _RUN.match(text, at)
        if found is None:
            return ""
        if found.end() == len(text) and found.end() - at < _MAX_RUN:
            return None
        return found.group() if found.end() - at >= 3 else ""

    @staticmethod
    def end_of_run(text: str, at: int) -> int:
        found = _RUN.match(text, at)
        return found.end() if found else at + 1

    @property
    def inside_line(self) -> bool:
        """Whether only the end of the line matters."""
        return self._place == "line"

    def advance(self, text: str, at: int) -> int | None:
        """Return where the fence ends; None if it does not. `ended_line`: a line begins there."""
        while at < len(text):
            match self._place:
                case "line":
                    end = text.find("\n", at)
                    if end < 0:
                        return None
                    at = self._start_line(end + 1)
                case "margin" | "closing":
                    found = _NOT_BLANK.search(text, at)
                    if found is None:
                        return None
                    at = self._end_blanks(found.group(), found.start())
                    if self.ended_line:
                        return at
                case "run":
                    at = self._count_run(text, at)
                case "info":
                    found = _INFO_END[self._character].search(text, at)
                    if found is None:
                        return None
                    if found.group() == "`":
                        return found.start()
                    at = self._start_line(found.end())
        return None

    def _end_blanks(self, character: str, at: int) -> int:
        """Go on at the first character after blanks."""
        if self._place == "closing":
            self.ended_line = character == "\n"
            self._place = "line"
            return at + self.ended_line
        if self._missing:
            self.ended_line = character != ">"
            self._missing -= 1
            return at + (character in ">\n")
        if character == "\n":
            return self._start_line(at + 1)
        self._place, self._count = ("run", 0) if character == self._character else ("line", 0)
        return at

    def _start_line(self, at: int) -> int:
        self._place = "margin"
        self._missing = self._depth
        return at

    def _count_run(self, text: str, at: int) -> int:
        end = at
        while end < len(text) and text[end] == self._character:
            end += 1
        self._count += end - at
        if end < len(text):
            self._place = "closing" if self._count >= len(self.run) else "line"
        return end
