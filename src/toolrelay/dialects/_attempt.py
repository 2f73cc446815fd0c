"""A grammar at work on what may be a call."""

from __future__ import annotations

from collections.abc import Callable

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

    `step`: what is under way takes the next text, and returns what of it belongs to the arguments (see _steps).
    """

    __slots__ = (
        "_argue", "_error", "_start", "beyond", "committed", "opener", "pieces", "reader", "reading", "room", "rule", "step",
    )  # fmt: skip

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
        self.pieces = [text]
        self._start = at
        self._argue = speaker.argue
        self.step: Callable[[str], str | None] | None = None
        self._error: ReadingError | None = None

    def feed(self, text: str) -> None:
        if self.beyond:
            text, self.beyond = self.beyond + text, ""
        if len(text) > self.room:
            text, self.beyond = text[: self.room], text[self.room :]
        self.room -= len(text)
        self.pieces.append(text)
        self.reader.feed(text)

    def go_on(self) -> None:
        """Reads on, until more must come. StopIteration: all was read."""
        if self.step is not None:
            try:
                piece = self.step("")
            except ReadingError as error:
                self.fail(error)
            else:
                if piece is not None:
                    self._argue(piece)
                    return
                self.step = None
        failed, self._error = self._error, None
        step = next(self.reading) if failed is None else self.reading.throw(failed)
        self.step = None if step is None else step.step if step.take is self._argue else _handing_over(step)

    def fail(self, error: ReadingError) -> None:
        """The step has failed: that is for the grammar, which is read on next."""
        self.step, self._error = None, error

    def commit(self) -> None:
        if not self.committed:
            self.committed = True
            self.room += CALL_LIMIT - HELD_LIMIT

    def begin_anew(self) -> None:
        """A call is whole, or something else was said: what is printed from here on belongs to what follows."""
        reader = self.reader
        self.opener = ""
        self.committed = True
        self.pieces = [reader.text]
        self._start = reader.at
        self.room = CALL_LIMIT - len(reader.text) + reader.at

    def skip(self, rule: str, closers: tuple[str, ...]) -> None:
        self.rule = rule
        excess = self._unread - HELD_LIMIT
        if excess > 0:  # it was given more, as a call that was being given out
            text = self.reader.text
            self.beyond = text[-excess:] + self.beyond
            self.reader.text = text[:-excess]
            self.pieces = ["".join(self.pieces)[:-excess]]
        self.room = HELD_LIMIT - self._unread
        self.reading = _skipping(self.reader, closers)
        self.step = None

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
        pieces = [*self.pieces, self.beyond] if self.beyond else self.pieces
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


def _handing_over(step: Step) -> Callable[[str], str | None]:
    """A step of which nothing belongs to the arguments."""
    read, take = step.step, step.take

    def go_on(text: str) -> str | None:
        piece = read(text)
        if piece:
            take(piece)
            return ""
        return piece

    return go_on


def _skipping(reader: Reader, closers: tuple[str, ...]) -> Reading[None]:
    yield from reader.until(*closers, take=lambda _text: None)
    while (yield from reader.closing(*closers)):
        pass
