"""Calls without any mark: taken only if the whole answer is nothing else, and names tools that were offered."""

from __future__ import annotations

from collections.abc import Callable

from toolrelay.core.request import Tool
from toolrelay.dialects._faults import NotACallError, ReadingError
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects.base import Speaker


def whole_answer(reader: Reader, speaker: Speaker, read: Callable[[Reader, Speaker], Reading[None]]) -> Reading[None]:
    """What is read is said when the answer has ended with it. Else, or if no offered tool was named, it is text."""
    rehearsal = _Rehearsal(speaker.tools)
    try:
        yield from read(reader, rehearsal)
    except ReadingError:
        if not rehearsal.calls:
            raise NotACallError from None
        raise
    yield from reader.blanks()
    if (yield from reader.peek()):
        raise NotACallError
    for name, arguments in rehearsal.calls:
        speaker.start(name)
        speaker.argue("".join(arguments))
        speaker.finish()


class _Rehearsal:
    """Takes note of the calls. Anything beside them makes them none."""

    def __init__(self, tools: dict[str, Tool]) -> None:
        self.tools = tools
        self.calls: list[tuple[str, list[str]]] = []
        self.argue = list[str]().append

    def start(self, name: str) -> None:
        if name not in self.tools:
            raise NotACallError
        self.calls.append((name, []))
        self.argue = self.calls[-1][1].append

    def finish(self) -> None:
        pass

    def say(self, _text: str) -> None:
        raise NotACallError

    def think(self, _text: str) -> None:
        raise NotACallError
