"""Markdown's code fences, as CommonMark has them: what stands in one is quoted.

    state     what it is                            how it ends
    -------   -----------------------------------   ------------------------------------------------------------------
    info      the rest of the opening line          with the line; at a backtick: it was inline code, and no fence
    blank     a line of which only blanks came,     at a run of the fence's character, or at anything else; without the marks
              and the marks of its block quotes     of its block quotes: the fence has ended with them
    run       a run that may close the fence        after as many characters as the opening run has, or fewer: a line
    closing   blanks after such a run               with the line: the fence is closed; at anything else: a line
    line      any other line                        with the line

Nothing waits: the text of a fence is text whatever comes.
"""

from __future__ import annotations

import re

FENCE = r"`(?:``|`?\Z)|~(?:~~|~?\Z)"
_RUN = re.compile(r"`{1,64}|~{1,64}")
_LONGEST = 64
_BLANKS = " \t\r"
_NOT_BLANK = re.compile(f"[^{_BLANKS}]")
_INFO_ENDS = {"`": re.compile("[`\n]"), "~": re.compile("\n")}


class Fence:
    """`depth`: of the block quotes that it stands in."""

    __slots__ = ("_count", "_depth", "_mark", "_missing", "_plain", "_state", "ended_line", "run")

    def __init__(self, run: str, depth: int = 0) -> None:
        self.run = run
        self.ended_line = False
        self._state = "info"
        self._count = 0
        self._mark = run[0]
        self._plain = () if depth else ("line", "blank")
        self._depth = depth
        self._missing = depth

    def glance(self, text: str) -> str | None:
        """Passes a text that plainly belongs to the fence; returns what is in every text that may change the state after it.

        None: it takes a closer look.
        """
        if self._mark in text or self._state not in self._plain:
            return None
        last = text[-1]
        if last == "\n":
            self._state = "blank"
            return ""
        if last not in _BLANKS or text[text.rfind("\n") + 1 :].strip(_BLANKS):
            self._state = "line"
        elif "\n" in text:
            self._state = "blank"
        return "\n" if self._state == "line" else ""

    @staticmethod
    def opening(text: str, at: int) -> str | None:
        """The run that opens a fence there; "" if none does; None if that cannot be told yet."""
        found = _RUN.match(text, at)
        if found is None:
            return ""
        if found.end() == len(text) and found.end() - at < _LONGEST:
            return None
        return found.group() if found.end() - at >= 3 else ""

    @staticmethod
    def end_of_run(text: str, at: int) -> int:
        found = _RUN.match(text, at)
        return found.end() if found else at + 1

    def pass_over(self, text: str, at: int) -> int | None:
        """Where the fence ends; None if all of the text belongs to it. `ended_line` says whether a line begins there."""
        while at < len(text):
            match self._state:
                case "info":
                    found = _INFO_ENDS[self._mark].search(text, at)
                    if found is None:
                        return None
                    if found.group() == "`":
                        return found.start()
                    at = self._begin_line(found.end())
                case "line":
                    at = text.find("\n", at) + 1
                    if not at:
                        return None
                    self._begin_line(at)
                case "run":
                    at = self._count_run(text, at)
                case _:
                    found = _NOT_BLANK.search(text, at)
                    if found is None:
                        return None
                    at = found.start()
                    if self._missing and self._state == "blank":
                        if found.group() != ">":
                            self.ended_line = True
                            return at + (found.group() == "\n")
                        self._missing -= 1
                        at += 1
                    elif self._state == "blank" and found.group() == self._mark:
                        self._state, self._count = "run", 0
                    elif found.group() != "\n":
                        self._state = "line"
                    elif self._state == "closing":
                        self.ended_line = True
                        return at + 1
                    else:
                        at = self._begin_line(at + 1)
        return None

    def _begin_line(self, at: int) -> int:
        self._state = "blank"
        self._missing = self._depth
        return at

    def _count_run(self, text: str, at: int) -> int:
        end = at
        while end < len(text) and text[end] == self._mark:
            end += 1
        self._count += end - at
        if end < len(text):
            self._state = "closing" if self._count >= len(self.run) else "line"
        return end
