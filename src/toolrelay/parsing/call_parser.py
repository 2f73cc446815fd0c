"""Runs a dialect's grammar on a possible call; enforces limits and handles errors."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

from toolrelay.parsing.errors import MalformedCallError, NotACallError, ParseError, TruncatedCallError
from toolrelay.parsing.grammar import CallSink, CallSyntax
from toolrelay.parsing.markers import markers_of
from toolrelay.parsing.stream_reader import BLANKS, Parse, Reader, match_end

MARKS_LIMIT = 1024  # characters after a start marker
HELD_LIMIT = 1024 * 1024
CALL_LIMIT = 16 * 1024 * 1024


class ParseState(Enum):
    WAITING = auto()  # for more text
    FINISHED = auto()
    NOT_A_CALL = auto()
    BROKEN = auto()


class CallParser:
    """Runs a grammar on the text that follows a start marker.

    Until the grammar has emitted something (`_committed`), all input is kept, because it may turn out to be text. At most
    HELD_LIMIT characters are parsed until then, and CALL_LIMIT in a call that is being emitted; `_room` is the rest of it. Limits
    are exact to the character, so that chunking does not matter; `_excess` is input beyond the limit.

    `rule`: why the call is malformed; then the text up to the next end marker is skipped. `_printed`: the text of a finished
    call, to which end markers may be added.
    """

    def __init__(self, syntax: CallSyntax, sink: CallSink, marker: str, text: str, at: int) -> None:
        self.marker = marker
        self.rule = ""
        self._committed = False
        self._may_be_empty = len(marker) > 1  # a single character begins no block
        self._end_markers = syntax.end_markers
        starts = tuple(start.text for start in syntax.start_markers if start.position == "anywhere")
        self._other_marks = (*starts, *syntax.stray_marks)
        end = at + HELD_LIMIT
        self._excess = text[end:]
        if self._excess:
            text = text[:end]
        self._room = end - len(text)
        self._reader = Reader(text, at, syntax.end_markers)
        self._input = [text]
        self._start = at
        self._printed = ""
        self._parse = syntax.grammar(self._reader, sink, marker)

    def feed(self, text: str) -> ParseState:
        """Parse the input so far and more text."""
        if self._excess or len(text) > self._room:
            text = self._excess + text
            text, self._excess = text[: self._room], text[self._room :]
        self._room -= len(text)
        if self._start:  # what precedes it was scanned: the next parser is not to inherit it
            self._input = ["".join(self._input)[self._start :]]
            self._start = 0
        self._input.append(text)
        self._reader.feed(text)
        return self.run()

    def close(self, *, complete: bool) -> None:
        """End the input. `complete`: the model ended its answer."""
        self._reader.closed = True
        self._reader.complete = complete

    def run(self) -> ParseState:
        """Parse the input so far."""
        reader = self._reader
        while True:
            lexer = None if reader.closed else reader.lexer
            try:
                if lexer is None or lexer.advance():  # most text is inside a long value, which needs no grammar
                    next(self._parse)
            except StopIteration:
                return ParseState.BROKEN if self.rule else ParseState.FINISHED
            except ParseError as error:
                failed = self._handle(error if reader.lexer is None else self._raise_in_grammar(error))
                if failed is not None:
                    return failed
                continue
            if self._room <= 0:
                self.rule = self.rule or ("too_long" if self._committed else "held_too_long")
                return ParseState.BROKEN
            return self.feed("") if self._excess else ParseState.WAITING

    def _raise_in_grammar(self, error: ParseError) -> ParseError:
        """Return what the grammar makes of an error of its lexer."""
        self._reader.lexer = None
        try:
            self._parse.throw(error)
        except ParseError as raised:
            return raised
        return error

    def _handle(self, error: ParseError) -> ParseState | None:
        """Return the final state after an error; None: go on with a grammar that skips an empty block or the call."""
        if self.rule:
            return ParseState.BROKEN
        if isinstance(error, TruncatedCallError):
            if self._is_empty() or self.is_only_marks():
                return ParseState.NOT_A_CALL
            self._reader.at = len(self._reader.text)
            self.rule = "cut"
            return ParseState.BROKEN
        if isinstance(error, NotACallError) and not self._committed:
            if self._may_be_empty:
                self._may_be_empty = False
                self._reader.text, self._reader.at = "".join(self._input), self._start
                self._parse = _skip_empty_block(self._reader, self.marker, self._other_marks, self._end_markers)
                return None
            return ParseState.NOT_A_CALL
        self.rule = error.rule if isinstance(error, MalformedCallError) else "malformed"
        if not self._end_markers:
            return ParseState.BROKEN
        self._skip_call()
        return None

    def _is_empty(self) -> bool:
        text, at = self.all_input()
        return not self._committed and not text[at:].strip()

    def is_only_marks(self) -> bool:
        """Return whether the input has ended, and only blanks and other marks followed the start marker."""
        text, at = self.all_input()
        if self._committed or self.marker not in self._other_marks:
            return False
        if not self._reader.closed or len(text) - at > MARKS_LIMIT:
            return False
        return _only_marks((*_whole(self._other_marks), *self._end_markers)).fullmatch(text, at) is not None

    def _skip_call(self) -> None:
        reader = self._reader
        excess = self._unread - HELD_LIMIT
        if excess > 0:  # the limit of an emitted call is higher
            self._excess = reader.text[-excess:] + self._excess
            reader.text = reader.text[:-excess]
            self._input = ["".join(self._input)[:-excess]]
        self._room = HELD_LIMIT - self._unread
        self._parse = _skip_to(reader, self._end_markers)

    @property
    def _unread(self) -> int:
        return len(self._reader.text) - self._reader.at

    def commit(self) -> None:
        """Mark the input as a call: something was emitted."""
        if not self._committed:
            self._committed = True
            self._room += CALL_LIMIT - HELD_LIMIT

    def restart(self) -> None:
        """Discard the input so far, after a complete call or other output."""
        reader = self._reader
        self.marker = ""
        self._committed = True
        self._input = [reader.text]
        self._start = reader.at
        self._room = CALL_LIMIT - self._unread

    def finish_call(self) -> bool:
        """Discard the input so far, after a complete call; its text is kept until it is taken. Return whether it was repaired."""
        self._printed = self.consumed_text()
        self.restart()
        repaired, self._reader.repaired = self._reader.repaired, False
        return repaired

    def take_printed(self, *, is_last: bool = False) -> str:
        """Return the text of the last call and the end markers after it; "" if it was taken already.

        `is_last`: no other call follows, so all text after the call belongs to it.
        """
        printed, self._printed = self._printed, ""
        if printed:
            text, at = self.all_input()
            end = len(text) - self._unread - len(self._excess)
            if not is_last:
                end = self._end_of_marks(text, at, end)
            printed += text[at:end]
            self._start = end
        return printed

    def _end_of_marks(self, text: str, at: int, stop: int) -> int:
        """Return where end markers end that begin there; blanks between them count."""
        if not self._end_markers:
            return at
        pattern = markers_of(self._end_markers).pattern(closed=True)
        while True:
            found = pattern.match(text, match_end(BLANKS, text, at, stop), stop)
            if found is None:
                return at
            at = found.end()

    def all_input(self) -> tuple[str, int]:
        """Return a text, and where in it the input after the start marker begins."""
        return "".join([*self._input, self._excess] if self._excess else self._input), self._start

    def unread_input(self) -> tuple[str, int]:
        """Return a text, and where in it the unconsumed input begins."""
        return self._reader.text + self._excess, self._reader.at

    def consumed_text(self) -> str:
        """Return the consumed input, with the start marker."""
        text, at = self.all_input()
        return self.marker + text[at : len(text) - self._unread - len(self._excess)]


def _whole(marks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(mark for mark in marks if mark[-1] in ">]")  # a name follows the others


@lru_cache(maxsize=256)
def _only_marks(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join([r"\s", *map(re.escape, marks)]) + ")*")


def _skip_empty_block(reader: Reader, marker: str, marks: tuple[str, ...], end_markers: tuple[str, ...]) -> Parse[None]:
    """Consume the end of a block of marks without a call, or nothing if the start marker is repeated."""
    whole = _whole(marks)
    mark = marker
    while mark:
        yield from reader.skip_blanks()
        if (yield from reader.is_ahead(marker)):
            return
        mark = (yield from reader.accept(*end_markers, *whole)) if end_markers or whole else ""
        if mark in end_markers:
            return
    raise NotACallError


def _skip_to(reader: Reader, end_markers: tuple[str, ...]) -> Parse[None]:
    yield from reader.read_until(*end_markers, emit=lambda _text: None)
    while (yield from reader.accept_after_blanks(*end_markers)):
        pass
