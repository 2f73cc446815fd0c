"""Calls without any mark that they are calls: taken only if the whole answer is nothing else, and names tools that were offered."""

from __future__ import annotations

from collections.abc import Callable

from toolrelay.core.request import Tool
from toolrelay.dialects._faults import NotACallError, ReadingError
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects.base import Speaker


def whole_answer(reader: Reader, speaker: Speaker, read: Callable[[Reader, Speaker], Reading[None]]) -> Reading[None]:
    """What is read is said when the answer has ended with it. Else, or if no offered tool was named, it is text."""
    rehearsal = _Rehearsal(speaker)
    try:
        yield from read(reader, rehearsal)
    except ReadingError:
        if not rehearsal.said:
            raise NotACallError from None
        raise
    yield from reader.blanks()
    if (yield from reader.peek()):
        raise NotACallError
    for say in rehearsal.said:
        say()


class _Rehearsal:
    """Takes note of what is said."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self.said: list[Callable[[], None]] = []

    @property
    def tools(self) -> dict[str, Tool]:
        return self._speaker.tools

    def start(self, name: str) -> None:
        if name not in self.tools:
            raise NotACallError
        self.said.append(lambda: self._speaker.start(name))

    def argue(self, text: str) -> None:
        self.said.append(lambda: self._speaker.argue(text))

    def finish(self) -> None:
        self.said.append(self._speaker.finish)

    def say(self, text: str) -> None:
        self.said.append(lambda: self._speaker.say(text))

    def think(self, text: str) -> None:
        self.said.append(lambda: self._speaker.think(text))
