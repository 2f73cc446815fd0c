"""The part of CommonMark that decides whether a call is quoted: lines, inline code, indented code, fences, HTML blocks."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

FENCE_PATTERN = r"`(?:``|`?\Z)|~(?:~~|~?\Z)"
_MARGIN = re.compile(r"(?:[^\S\n]|>|(?:[-*+]|\d{1,9}[.)])[^\S\n])*", re.ASCII)
_MARGIN_CHARACTERS = " \t\r\v\f>-*+.)0123456789"
_MARGIN_LIMIT = 64
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|\Z)", re.ASCII)
_ITEM_STARTS = "-*+0123456789"
_CODE_INDENT = 4
_BLANKS = re.compile(r"[^\S\n]*")
_RUN_OR_BREAK = re.compile("`+|\n")


class LineState:
    """The current line: its margin, and inline code.

    The margin consists of blanks and the marks of block quotes and list items. A fence may open after it.

    Inline code is enclosed by two runs of equally many backticks. The second run may come long after a call, which cannot wait
    for it. So a marker is taken as quoted if it directly follows an opening run, and so is what follows it (`_quotes`), up to the
    second run or the end of the paragraph.

    Indented code begins after text and a blank line, outside of lists, with four blanks or a tab.
    """

    __slots__ = (
        "_after_blank",
        "_has_text",
        "_in_block_quote",
        "_in_code",
        "_in_list",
        "_indent",
        "_margin",
        "_opening_run",
        "_quotes",
        "_run",
        "at_margin",
    )

    def __init__(self) -> None:
        self.start_text()

    def start_text(self) -> None:
        """Begin a text: nothing before it matters."""
        self.start_line()
        self._has_text = False
        self._after_blank = False  # the previous line is blank
        self._in_list = False
        self._in_code = False  # the last line that is not blank is indented code

    def start_line(self) -> None:
        self.leave_margin()
        self.at_margin = True

    def leave_margin(self, opening_run: int = 0) -> None:
        """Go on inside the line. `opening_run`: the number of backticks that have just opened inline code."""
        self.at_margin = False
        self._in_block_quote = False
        self._margin = ""  # without leading blanks
        self._indent = 0  # columns of these blanks
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
        return self.at_margin and _MARGIN.fullmatch(self._margin) is not None and not self._is_code()

    @property
    def quote_depth(self) -> int:
        """The number of block quotes around the line."""
        return self._margin.count(">")

    def quotes_marker(self) -> bool:
        """Return whether a marker at this place is quoted: in inline code or a block quote."""
        if self._in_block_quote or (self.at_margin and self.quote_depth and self.may_open_fence):
            return True
        if self._is_code() if self.at_margin else self._in_code:
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
        elif not self.at_margin:
            return
        lines, line_break, rest = text.rpartition("\n")
        if line_break:
            if self.at_margin or "\n" in lines:  # else only a line with content ends
                self._end_lines(lines)
            self.at_margin = True
            self._in_block_quote = False
            self._margin = ""
            self._indent = 0
        if self.at_margin and rest:
            self._advance_margin(rest)

    def _advance_margin(self, text: str) -> None:
        margin = self._margin + text
        content = margin.lstrip()
        if len(content) < len(margin):
            self._indent += _columns(margin)
        if text.strip(_MARGIN_CHARACTERS) or len(content) > _MARGIN_LIMIT:
            self.at_margin = False
            self._begin_line(self._indent, content)
            if ">" in content:
                found = _MARGIN.match(content)
                self._in_block_quote = found is not None and ">" in found.group()
        else:
            self._margin = content

    def _end_lines(self, text: str) -> None:
        """Follow the rest of the current line, and whole lines after it."""
        rest, *lines = text.split("\n")
        if self.at_margin:
            self._advance_margin(rest)
            if self.at_margin:
                self._end_margin()
        for line in lines:
            content = line.lstrip()
            if content:
                self._begin_line(_columns(line) if len(content) < len(line) else 0, content)
            else:
                self._after_blank = True

    def _end_margin(self) -> None:
        if self._margin:
            self._begin_line(self._indent, self._margin)
        else:
            self._after_blank = True

    def _is_code(self) -> bool:
        """Return whether a line with this indentation is code."""
        may_begin = self._has_text and self._after_blank and not self._in_list
        return self._indent >= _CODE_INDENT and (self._in_code or may_begin)

    def _begin_line(self, indent: int, content: str) -> None:
        """Follow a line that is not blank."""
        self._indent = indent
        self._in_code = indent >= _CODE_INDENT and self._is_code()
        if not self._in_code:
            if content[:1] in _ITEM_STARTS and _ITEM.match(content) is not None:
                self._in_list = True
            elif self._after_blank and not indent:
                self._in_list = False
        self._has_text = True
        self._after_blank = False

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


def _columns(line: str) -> int:
    """Return how far the line is indented."""
    blanks = _BLANKS.match(line)
    end = 0 if blanks is None else blanks.end()
    return end if "\t" not in line[:end] else len(line[:end].expandtabs(_CODE_INDENT))


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


HTML_BLOCKS = {"<pre>": "</pre>", "<pre ": "</pre>", "<!--": "-->"}


class HtmlBlock:
    """An open HTML block that quotes its content. The interface is that of FenceState."""

    __slots__ = ("_end", "_tail")

    run = ""
    ended_line = False
    inside_line = False

    def __init__(self, start: str) -> None:
        self._end = HTML_BLOCKS[start]
        self._tail = ""  # the last characters, which may begin the end

    def advance(self, text: str, at: int) -> int | None:
        """Return where the block ends; None if it does not."""
        before = len(self._tail)
        searched = self._tail + text[at:]
        found = searched.find(self._end)
        if found >= 0:
            return at + found + len(self._end) - before
        self._tail = searched[-len(self._end) + 1 :]
        return None
