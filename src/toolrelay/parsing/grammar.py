"""The interface between the scanner and a dialect: markers, grammars, and the sink that a grammar emits to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from string import ascii_letters, digits
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from toolrelay.core.request import Tool
from toolrelay.parsing.errors import NotACallError, ParseError
from toolrelay.parsing.stream_reader import Parse, Reader

MarkerPosition: TypeAlias = Literal["anywhere", "line", "start"]


class StartMarker(Struct, frozen=True):
    """Text that may begin calls, and its position: anywhere, at the start of a line, or at the start of the answer.

    No start marker of a dialect is a prefix of another one. `quotable`: it is text directly after an opening quotation mark
    inside a line.
    """

    text: str
    position: MarkerPosition = "anywhere"
    quotable: bool = False


NAME_AT_START = tuple(StartMarker(character, "start") for character in f"{ascii_letters}{digits}_")
"""An answer that begins with the name of a tool. The grammar must fail at the first character that no offered tool has."""


END_OF_TURN = ("</s>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>")
"""Special tokens with which chat templates end an answer. Servers leave them in; after a call they are no text."""


class CallSink(Protocol):
    """Receives the output of a grammar. Arguments are JSON in every dialect."""

    @property
    def tools(self) -> dict[str, Tool]:
        """The offered tools, by the names that the model knows."""
        ...

    def start(self, name: str) -> None: ...

    def arguments(self, text: str) -> None:
        """Add to the arguments of the call that was started last."""
        ...

    def finish(self) -> None:
        """End the call. If there were no arguments, they are `{}`."""
        ...

    def text(self, text: str) -> None:
        """Emit text outside of calls."""
        ...

    def reasoning(self, text: str) -> None: ...


Grammar: TypeAlias = Callable[[Reader, CallSink, str], Parse[None]]
"""Parses what follows a start marker, which is the third argument."""


class CallSyntax(Protocol):
    """The part of a dialect that the scanner uses."""

    @property
    def start_markers(self) -> tuple[StartMarker, ...]: ...

    @property
    def end_markers(self) -> tuple[str, ...]:
        """Marks that end a malformed call: the text up to the next one is part of the call."""
        ...

    @property
    def stray_marks(self) -> tuple[str, ...]:
        """Other marks that are not text, such as those around text."""
        ...

    @property
    def grammar(self) -> Grammar: ...


class CallFrame(Struct, frozen=True, kw_only=True):
    """The marks around calls. Models forget closing marks, so each of these also ends what is open inside a call.

    call       begins a call; the name of a tool follows, up to one of `name_ends`
    ends       end a call
    opens      begin a block of calls
    closes     end the block
    """

    call: str
    name_ends: tuple[str, ...]
    ends: tuple[str, ...]
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()

    @property
    def followers(self) -> tuple[str, ...]:
        """What may come after a call whose end is missing."""
        return (*self.closes, *self.opens, self.call)

    def end_call(self, reader: Reader) -> Parse[None]:
        """Consume the end of a call. It may be missing where the block or the answer ends or the next call begins."""
        yield from reader.skip_blanks()
        if (yield from reader.accept_after_blanks(*("}" + end for end in self.ends))):  # one bracket too many
            return
        if (yield from reader.accept(*self.ends)) or (yield from reader.is_ahead(*self.followers)):
            return
        if not (yield from reader.is_answer_over()):
            yield from reader.expect(*self.ends)

    def ends_value(self, reader: Reader, mark: str, tools: Collection[str]) -> Parse[bool]:
        """Return whether a mark, just consumed, ends a value that was not closed; otherwise the value quotes it.

        The end of a call or block must be followed by what may follow it; the next call must name an offered tool.
        """
        if mark in self.ends or mark in self.closes:
            followers = (*self.closes, *self.opens) if mark in self.ends else self.opens
            if (yield from reader.is_at_end()) or (followers and (yield from reader.is_ahead(*followers))):
                return True
        after = 0
        if mark != self.call:
            after = yield from reader.find_ahead(self.call)
            if not after:
                return False
        name = yield from reader.word_ahead(*self.name_ends, after=after)
        return name is not None and name.strip("\"' /") in tools


def whole_answer(reader: Reader, sink: CallSink, parse: Callable[[Reader, CallSink], Parse[None]]) -> Parse[None]:
    """Parse calls without a start marker: they count only if they are the whole answer and call offered tools."""
    recorder = CallRecorder(sink.tools)
    try:
        yield from parse(reader, recorder)
    except ParseError:
        if not recorder.calls:
            raise NotACallError from None
        raise
    while (yield from reader.accept_after_blanks(*END_OF_TURN)):
        pass
    yield from reader.skip_blanks()
    if (yield from reader.peek()):
        raise NotACallError
    recorder.emit_to(sink)


class CallRecorder:
    """Records calls of offered tools; anything else is not a call."""

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

    reasoning = text

    def emit_to(self, sink: CallSink) -> None:
        for name, arguments in self.calls:
            sink.start(name)
            sink.arguments("".join(arguments))
            sink.finish()
