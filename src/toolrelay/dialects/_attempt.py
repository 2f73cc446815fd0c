"""A grammar at work on what may be a call."""

from __future__ import annotations

from toolrelay.dialects._faults import ReadingError
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects._steps import Step
from toolrelay.dialects.base import Grammar, Speaker

HELD_LIMIT = 1024 * 1024
CALL_LIMIT = 16 * 1024 * 1024


class Attempt:
    """`committed`: something was given out. `rule`: it went wrong for that reason, and what follows is skipped.

    `room` is how much more the grammar may read: of what it has to hold back little, of a call that is being given out more.
    It is kept to the character, so that chunking does not matter here either; `beyond` is what does not fit.
    """

    __slots__ = ("_error", "_pieces", "_start", "_step", "beyond", "committed", "opener", "reader", "reading", "room", "rule")

    def __init__(self, grammar: Grammar, speaker: Speaker, opener: str, text: str, at: int) -> None:
        self.opener = opener
        self.committed = False
        self.rule = ""
        self.beyond = ""
        if len(text) - at > HELD_LIMIT:
            text, self.beyond = text[: at + HELD_LIMIT], text[at + HELD_LIMIT :]
        self.room = HELD_LIMIT - (len(text) - at)
        self.reader = Reader(text, at)
        self.reading = grammar(self.reader, speaker, opener)
        self._pieces = [text]
        self._start = at
        self._step: Step | None = None
        self._error: ReadingError | None = None

    def feed(self, text: str) -> None:
        if self.beyond:
            text, self.beyond = self.beyond + text, ""
        if len(text) > self.room:
            text, self.beyond = text[: self.room], text[self.room :]
        self.room -= len(text)
        self._pieces.append(text)
        self.reader.feed(text)

    def stride(self, text: str) -> bool:
        """More text. True: a step was under way, has taken all of it and wants more. Within a call it is nearly always so."""
        step = self._step
        if step is None or self.beyond or len(text) >= self.room:
            self.feed(text)
            return False
        self.room -= len(text)
        self._pieces.append(text)
        reader = self.reader
        reader.text = text if reader.at == len(reader.text) else reader.text[reader.at :] + text
        reader.at = 0
        try:
            if not step():
                return True
        except ReadingError as error:
            self._error = error
        self._step = None
        return False

    def _strides(self) -> bool:
        if self._step is None:
            return False
        try:
            if not self._step():
                return True
        except ReadingError as error:
            self._error = error
        self._step = None
        return False

    def go_on(self) -> None:
        """Reads on, until more must come. StopIteration: all was read."""
        if self._strides():
            return
        error, self._error = self._error, None
        self._step = next(self.reading) if error is None else self.reading.throw(error)

    def commit(self) -> None:
        if not self.committed:
            self.committed = True
            self.room += CALL_LIMIT - HELD_LIMIT

    def begin_anew(self) -> None:
        """A call is whole, or something else was said: what is printed from here on belongs to what follows."""
        self.opener = ""
        self._pieces = [self.reader.text]
        self._start = self.reader.at
        self.room = CALL_LIMIT - self._unread

    def skip(self, rule: str, closers: tuple[str, ...]) -> None:
        self.rule = rule
        excess = self._unread - HELD_LIMIT
        if excess > 0:  # it was given more, as a call that was being given out
            text = self.reader.text
            self.beyond = text[-excess:] + self.beyond
            self.reader.text = text[:-excess]
            self._pieces = ["".join(self._pieces)[:-excess]]
        self.room = HELD_LIMIT - self._unread
        self.reading = _skipping(self.reader, closers)
        self._step = None

    def read_all(self) -> None:
        self.reader.at = len(self.reader.text)

    @property
    def _unread(self) -> int:
        return len(self.reader.text) - self.reader.at

    def is_bare(self) -> bool:
        """Nothing came after the opener: it is only mentioned."""
        text, at = self.given()
        return not self.committed and not text[at:].strip()

    def given(self) -> tuple[str, int]:
        """All that came after the opener, and where it begins."""
        pieces = [*self._pieces, self.beyond] if self.beyond else self._pieces
        return (pieces[0] if len(pieces) == 1 else "".join(pieces)), self._start

    def rest(self) -> tuple[str, int]:
        """What was not read, and where it begins."""
        reader = self.reader
        return (reader.text[reader.at :] + self.beyond, 0) if self.beyond else (reader.text, reader.at)

    def printed(self) -> str:
        """What was printed of the call, as far as it was read."""
        text, at = self.given()
        whole = self.opener + text[at:]
        return whole[: len(whole) - self._unread - len(self.beyond)]


def _skipping(reader: Reader, closers: tuple[str, ...]) -> Reading[None]:
    yield from reader.until(*closers, take=lambda _text: None)
    while (yield from reader.closing(*closers)):
        pass
