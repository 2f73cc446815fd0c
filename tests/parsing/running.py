"""Run parser primitives on texts in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toolrelay.parsing.errors import ParseError
from toolrelay.parsing.stream_reader import Emit, Parse, Reader

T = TypeVar("T")


def run(parser: Callable[[Reader], Parse[T]], chunks: Sequence[str]) -> tuple[T | type[ParseError], str, bool]:
    """Return the result or the error, the unconsumed text, and whether the end of the stream was needed."""
    reader = Reader()
    parse = parser(reader)
    waiting = list(chunks)
    while True:
        try:
            next(parse)
        except StopIteration as stop:
            return stop.value, reader.text[reader.at :] + "".join(waiting), reader.closed
        except ParseError as error:
            return type(error), reader.text[reader.at :] + "".join(waiting), reader.closed
        if waiting:
            reader.feed(waiting.pop(0))
        else:
            assert not reader.closed, "the parser waits after the end"
            reader.closed = True


def same(parser: Callable[[Reader], Parse[Any]], text: str) -> tuple[Any, str]:
    """Run on the whole text and on single characters; assert that the results are equal."""
    whole = run(parser, [text])
    assert run(parser, list(text))[:2] == whole[:2]
    return whole[:2]


def collected(parser: Callable[[Reader, Emit], Parse[Any]]) -> Callable[[Reader], Parse[Any]]:
    """Turn a parser that emits pieces into one that returns them together with its result."""

    def inner(reader: Reader) -> Parse[Any]:
        pieces: list[str] = []
        result = yield from parser(reader, pieces.append)
        return "".join(pieces) if result is None else ("".join(pieces), result)

    return inner
