"""Calls without any mark: taken only if the whole answer is nothing else, and names tools that were offered."""

from __future__ import annotations

from collections.abc import Callable

from toolrelay.core.request import Tool
from toolrelay.parsing.errors import NotACallError, ParseError
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.stream_reader import Parse, Reader


def whole_answer(reader: Reader, sink: CallSink, read: Callable[[Reader, CallSink], Parse[None]]) -> Parse[None]:
    """Emit the calls when the answer has ended with them. Otherwise, or if a tool was not offered, it is all text."""
    recorder = _CallRecorder(sink.tools)
    try:
        yield from read(reader, recorder)
    except ParseError:
        if not recorder.calls:
            raise NotACallError from None
        raise
    yield from reader.blanks()
    if (yield from reader.peek()):
        raise NotACallError
    for name, arguments in recorder.calls:
        sink.start(name)
        sink.arguments("".join(arguments))
        sink.finish()


class _CallRecorder:
    """Records calls. Anything else that is emitted makes them none."""

    def __init__(self, tools: dict[str, Tool]) -> None:
        self.tools = tools
        self.calls: list[tuple[str, list[str]]] = []
        self.arguments = list[str]().append

    def start(self, name: str) -> None:
        if name not in self.tools:
            raise NotACallError
        self.calls.append((name, []))
        self.arguments = self.calls[-1][1].append

    def finish(self) -> None:
        pass

    def text(self, _text: str) -> None:
        raise NotACallError

    def reasoning(self, _text: str) -> None:
        raise NotACallError
