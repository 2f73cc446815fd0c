"""What Markdown makes of a line as it comes: where a fence may open, and what stands in inline code.

    margin   blanks, the marks of block quotes and of list items: a fence may open after them
    code     what stands between two runs of as many backticks. That it is code is known only when the second has come, which
             a call cannot wait for. So a mark is quoted if it follows a run of backticks at once, on the same line, unless the
             run ends code; and so is what follows, to the end of the code or, if none comes, of the paragraph

Marks in inline code are few: what has backticks is kept, and looked at when such a mark comes.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MARGIN = re.compile(r"(?:[^\S\n]|>|(?:[-*+]|\d{1,9}[.)])[^\S\n])*", re.ASCII)
_MARGIN_CHARACTERS = " \t\r\v\f>-*+.)0123456789"
_MARGIN_LIMIT = 64
_MANY = 256
_SHORT = 32
_RUN_OR_BREAK = re.compile("`+|\n")


class Line:
    """`at_margin`: nothing else has come of it. `quotes`: what comes is quoted in inline code.

    `is_open`: the next text means something to it, whatever it is.
    """

    __slots__ = ("_has_code", "_kept", "_margin", "_run", "_span", "_touches", "at_margin", "is_open", "quotes")

    def __init__(self) -> None:
        self._kept: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.go_on()
        self.at_margin = self.is_open = True

    def go_on(self, run: int = 0) -> None:
        """Something has come that is no margin. `run`: it is as many backticks, and what they begin."""
        self._margin = ""  # what may be one, but for the blanks it begins with
        self.at_margin = False
        self.end_code()
        self._span = run
        self._has_code = run > 0

    def end_code(self) -> None:
        self._kept.clear()
        self._has_code = False
        self._touches = False  # it ends in a backtick
        self._run = self._span = 0  # the backticks that it ends in; those that opened what may be code
        self.quotes = False
        self.is_open = self.at_margin

    @property
    def is_blank(self) -> bool:
        return self.at_margin and not self._margin

    @property
    def may_open_fence(self) -> bool:
        return self.at_margin and _MARGIN.fullmatch(self._margin) is not None

    @property
    def depth(self) -> int:
        """Of block quotes."""
        return self._margin.count(">")

    def end(self, text: str) -> None:
        """Passes over a text in which it ends; another line begins."""
        if self._has_code:
            self.end_code()
        margin = _known_margin(text) if len(text) <= _SHORT else _margin_after_break(text)
        self.at_margin = self.is_open = margin is not None
        self._margin = margin or ""

    def pass_over(self, text: str) -> None:
        if self.quotes:
            self._pass_quoted(text)
            return
        if "\n" in text:
            self.end(text)
            text = text[text.rfind("\n") + 1 :]
        elif text and self.at_margin:
            self._pass_margin(text)
        if self._touches or "`" in text:
            self.keep(text)
        else:
            self.is_open = self.at_margin

    def _pass_margin(self, text: str) -> None:
        if text.strip(_MARGIN_CHARACTERS):
            self.at_margin = False
        else:
            self._margin = (self._margin + text).lstrip()
            self.at_margin = len(self._margin) <= _MARGIN_LIMIT

    def _pass_quoted(self, text: str) -> None:
        self._follow(text)
        self._touches = self._run > 0
        self._has_code = True
        at = text.rfind("\n") + 1
        if at:
            self.at_margin = True
            self._margin = ""
        if self.at_margin:
            self._pass_margin(text[at:])
        self.is_open = self.at_margin or self._touches or self.quotes

    def keep(self, text: str) -> bool:
        """Passes over text that has backticks, or follows one, and no line break. Whether the line is open then."""
        self._has_code = True
        self._kept.append(text)
        self._touches = text[-1] == "`"
        self.is_open = self._touches or self.at_margin
        if len(self._kept) > _MANY:
            self._look_at_kept()
        return self.is_open

    def quotes_mark(self) -> bool:
        """Whether a mark that comes now is quoted in inline code."""
        if self._touches:
            self._look_at_kept()
            self._end_run()
            self._touches = False
            self.quotes = self._span > 0
        return self.quotes

    def _look_at_kept(self) -> None:
        for text in self._kept:
            self._follow(text)
        self._kept.clear()

    def _follow(self, text: str) -> None:
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
            if is_blank or not self.quotes:
                self._span = 0
                self.quotes = False
            is_blank = True
        if at < len(text):
            self._end_run()

    def _end_run(self) -> None:
        if not self._run:
            return
        if not self._span:
            self._span = self._run
        elif self._span == self._run:
            self._span = 0
            self.quotes = False
        self._run = 0


def _margin_after_break(text: str) -> str | None:
    """What may be the margin of the line that begins last, but for the blanks it begins with; None if it has gone on."""
    text = text[text.rfind("\n") + 1 :]
    margin = text.lstrip()
    return None if text.strip(_MARGIN_CHARACTERS) or len(margin) > _MARGIN_LIMIT else margin


_known_margin = lru_cache(maxsize=4096)(_margin_after_break)  # what models break lines with is nearly always the same
