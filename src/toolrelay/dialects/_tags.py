"""Calls with a tag for each parameter, such as `<parameter=k>v</parameter>`. Values are plain text, typed by the tool's schema.

Nothing in such a value is escaped, so it may hold its own closing tag. A closing tag counts only if, after blanks, the next
parameter or the end of the call follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.dialects._python_value import python_json
from toolrelay.dialects._schema import ANY, STRING, Parameters, meant
from toolrelay.dialects._writing import Argument, listed
from toolrelay.parsing.call_parser import HELD_LIMIT
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.json import escaped, escaping, quoted
from toolrelay.parsing.stream_reader import Parse, Reader

Header: TypeAlias = Callable[[str], tuple[str, frozenset[str] | None]]
"""What a parameter's tag says: its name, and its types where the form says them itself."""


def plain_header(text: str) -> tuple[str, frozenset[str] | None]:
    return text.strip(), None


class TagForm(Struct, frozen=True, kw_only=True):
    """How a parameter is written: key_open HEADER key_close value_open VALUE value_close. `ends` may follow the last one.

    header         reads the header, which is the parameter's name in most forms
    write_header   the reverse, where it is more than the name
    value_close    may hold the name: `{key}`
    trims          one line break at each end of a value belongs to the form
    untyped        what a value may be if the tool is not known
    further        reads a value that is not JSON and may not be a string
    """

    key_open: str
    key_close: str
    value_close: str
    ends: tuple[str, ...]
    value_open: str = ""
    header: Header = plain_header
    write_header: Callable[[Argument], str] = lambda argument: argument.name
    trims: bool = False
    untyped: frozenset[str] = ANY
    further: Callable[[str], str | None] = python_json

    @property
    def strips_names(self) -> bool:
        return self.header is plain_header

    def close(self, key: str) -> str:
        return self.value_close.replace("{key}", key)

    def closes(self, key: str) -> tuple[str, ...]:
        """All that may end a value."""
        return (f"\n{self.close(key)}", self.close(key)) if self.trims else (self.close(key),)

    def write(self, argument: Argument) -> str:
        """A parameter as the model writes it."""
        value = f"\n{argument.plain}\n" if self.trims else argument.plain
        opening = self.key_open + self.write_header(argument) + self.key_close + self.value_open
        return opening + value + self.close(argument.name)


def render_parameters(call: Call, form: TagForm, separator: str = "\n") -> str:
    """All parameters, each followed by the separator."""
    return "".join(form.write(argument) + separator for argument in listed(call))


def tagged_call(reader: Reader, sink: CallSink, form: TagForm, name: str) -> Parse[None]:
    """A call's parameters after its name, to the end of the call, which is passed."""
    parameters = Parameters(sink.tools.get(name))
    known = name in sink.tools
    sink.start(name)
    first = True
    while True:
        yield from reader.blanks()
        mark = yield from reader.literal(form.key_open, *form.ends)
        if mark != form.key_open:
            break
        key, types = form.header((yield from reader.word(form.key_close)))
        if form.value_open:
            yield from reader.blanks()
            yield from reader.literal(form.value_open)
        if types is None:
            types = parameters.types(key) if known else form.untyped
        sink.arguments(("{" if first else ", ") + quoted(key) + ": ")
        first = False
        yield from _value(reader, sink, form, key, types)
    sink.arguments("" if first else "}")
    sink.finish()


def _value(reader: Reader, sink: CallSink, form: TagForm, key: str, types: frozenset[str]) -> Parse[None]:
    """A value up to its closing tag. Strings go out as they come; other values when they are whole."""
    closes = form.closes(key)
    held = None if types == STRING else _Held()
    if form.trims:
        yield from reader.option("\n")
    if held is None:
        sink.arguments('"')
    while True:
        if held is None:
            found = yield from reader.until(*closes, emit=escaping(sink.arguments))
        else:
            found = yield from reader.until(*closes, emit=held.add, limit=HELD_LIMIT - held.size)
        if (yield from reader.ahead(form.key_open, *form.ends)):
            break
        if held is None:
            sink.arguments(escaped(found))
        else:
            held.add(found)
    sink.arguments('"' if held is None else held.spelled(types, form.further))


class _Held:
    """A value whose type is known only when it is whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    def spelled(self, types: frozenset[str], further: Callable[[str], str | None]) -> str:
        text = "".join(self._pieces)
        return meant(text, types) or further(text) or quoted(text)


def attribute(text: str, name: str) -> str | None:
    """The value of an attribute in a tag's text: `name="value"`."""
    start = text.find(f'{name}="')
    if start < 0:
        return None
    start += len(name) + 2
    end = text.find('"', start)
    return text[start:end] if end >= 0 else None
