"""Parser of calls with a tag for each parameter, such as `<parameter=k>v</parameter>`.

Values are plain text, typed by the tool's schema. Nothing in them is escaped, so a value may contain its own closing tag: a
closing tag counts only if the next parameter or the end of the call follows, after blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.dialects.parameter_types import STRING, Parameters, coerce
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.dialects.rendering import Argument, split_arguments
from toolrelay.parsing.call_parser import HELD_LIMIT
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.json import encode_string, escape_text, escaping
from toolrelay.parsing.stream_reader import Parse, Reader

Header: TypeAlias = tuple[str, frozenset[str] | None]
"""The name of a parameter, and its types if the tag states them."""


def plain_header(text: str) -> Header:
    return text.strip(), None


class TagForm(Struct, frozen=True, kw_only=True):
    """The form of a parameter: key_open HEADER key_close value_open VALUE value_close. One of `ends` ends the call.

    parse_header   parses the header, which is the parameter's name in most forms
    render_header  the reverse
    value_close    may contain the name: `{key}`
    trims          one line break at each end of a value belongs to the form
    parse_value    encodes a value that is not JSON and may not be a string; None: as a string after all
    """

    key_open: str
    key_close: str
    value_close: str
    ends: tuple[str, ...]
    value_open: str = ""
    parse_header: Callable[[str], Header] = plain_header
    render_header: Callable[[Argument], str] = lambda argument: argument.name
    trims: bool = False
    parse_value: Callable[[str], str | None] = python_to_json

    def close(self, key: str) -> str:
        return self.value_close.replace("{key}", key)

    def render(self, argument: Argument) -> str:
        value = f"\n{argument.plain}\n" if self.trims else argument.plain
        opening = self.key_open + self.render_header(argument) + self.key_close + self.value_open
        return opening + value + self.close(argument.name)


def render_parameters(call: Call, form: TagForm, separator: str = "\n") -> str:
    """Render all parameters, each followed by the separator."""
    return "".join(form.render(argument) + separator for argument in split_arguments(call))


def tagged_call(reader: Reader, sink: CallSink, form: TagForm, name: str) -> Parse[None]:
    """Parse a call after its name, up to and including its end."""
    parameters = Parameters(sink.tools.get(name))
    sink.start(name)
    first = True
    while True:
        yield from reader.skip_blanks()
        mark = yield from reader.expect(form.key_open, *form.ends)
        if mark != form.key_open:
            break
        key, types = form.parse_header((yield from reader.read_word(form.key_close)))
        if form.value_open:
            yield from reader.skip_blanks()
            yield from reader.expect(form.value_open)
        sink.arguments(("{" if first else ", ") + encode_string(key) + ": ")
        first = False
        yield from _value(reader, sink, form, key, parameters.types(key) if types is None else types)
    sink.arguments("" if first else "}")
    sink.finish()


def _value(reader: Reader, sink: CallSink, form: TagForm, key: str, types: frozenset[str]) -> Parse[None]:
    """Parse a value and its closing tag. Strings are emitted as they arrive, other values when they are complete."""
    close = form.close(key)
    closes = (f"\n{close}", close) if form.trims else (close,)
    buffer = None if types == STRING else _ValueBuffer()
    if form.trims:
        yield from reader.accept("\n")
    if buffer is None:
        sink.arguments('"')
    while True:
        if buffer is None:
            found = yield from reader.read_until(*closes, emit=escaping(sink.arguments))
        else:
            found = yield from reader.read_until(*closes, emit=buffer.add, limit=HELD_LIMIT - buffer.size)
        if (yield from reader.is_ahead(form.key_open, *form.ends)):
            break
        if buffer is None:
            sink.arguments(escape_text(found))
        else:
            buffer.add(found)
    sink.arguments('"' if buffer is None else buffer.encode(types, form.parse_value))


class _ValueBuffer:
    """A value whose type is known only when it is complete."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    def encode(self, types: frozenset[str], parse_value: Callable[[str], str | None]) -> str:
        text = "".join(self._pieces)
        return coerce(text, types) or parse_value(text) or encode_string(text)


def attribute(text: str, name: str) -> str | None:
    """Return the value of an attribute in the text of a tag: `name="value"`."""
    found = re.search(rf'{name}="([^"]*)"', text)
    return None if found is None else found.group(1)
