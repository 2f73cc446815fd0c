"""Parser of calls with a tag for each parameter, such as `<parameter=k>v</parameter>`.

Values are plain text, typed by the tool's schema. Nothing in them is escaped, so a value may contain any mark. And models forget
closing tags. What ends a value:

    mark                                    ends the value
    -------------------------------------   ------------------------------------------------------------------------------
    its closing tag                         if the next parameter, the end of the call or block, or the next call follows
    the next parameter                      if the tool declares it and it has not been given yet
    the end of the call or of the block     if the end of the block, the next call or the end of the answer follows
    the next call                           if it names an offered tool

Blanks do not count. The last three, which repair a missing closing tag, count only in the first line of a value or at the
beginning of a line. Every other mark is part of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.dialects.parameter_types import ANY, OBJECT, STRING, Parameters, coerce
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.dialects.rendering import Argument, split_arguments
from toolrelay.parsing.call_parser import HELD_LIMIT
from toolrelay.parsing.grammar import CallFrame, CallSink
from toolrelay.parsing.json import encode_string, escaping, json_value
from toolrelay.parsing.stream_reader import NAME, Emit, Parse, Reader

_NO_LIMIT = 1 << 62
_WRAPPERS = frozenset({"arguments", "input", "parameters", "args", "kwargs"})

Header: TypeAlias = tuple[str, frozenset[str] | None]
"""The name of a parameter, and its types if the tag states them."""


def plain_header(text: str) -> Header:
    return text.strip(), None


class TagForm(Struct, frozen=True, kw_only=True):
    """The form of a parameter: key_open HEADER key_close value_open VALUE value_close.

    frame          the marks around the parameters
    parse_header   parses the header, which is the parameter's name in most forms
    render_header  the reverse
    value_close    may contain the name: `{key}`
    trims          one line break at each end of a value belongs to the form
    parse_value    encodes a value that is not JSON and may not be a string; None: as a string after all
    """

    key_open: str
    key_close: str
    value_close: str
    frame: CallFrame
    value_open: str = ""
    parse_header: Callable[[str], Header] = plain_header
    render_header: Callable[[Argument], str] = lambda argument: argument.name
    trims: bool = False
    parse_value: Callable[[str], str | None] = python_to_json

    @property
    def followers(self) -> tuple[str, ...]:
        """What may follow a parameter."""
        return (self.key_open, *self.frame.ends, *self.frame.followers)

    @property
    def recovery_marks(self) -> tuple[str, ...]:
        """The marks that may end a value without its closing tag. A key that begins with `<` only is like any other tag."""
        return self.followers[1:] if self.key_open == "<" else self.followers

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
    """Parse a call after its name, up to and including its end. Its body may also be a JSON object."""
    sink.start(name)
    yield from reader.skip_blanks()
    if (yield from reader.peek()) == "{":
        yield from json_value(reader, sink.arguments)
        yield from form.frame.end_call(reader)
    else:
        yield from _TaggedCall(reader, sink, form, name).parse()
    sink.finish()


class _TaggedCall:
    """`_given`: the parameters so far, including the one that is being parsed."""

    def __init__(self, reader: Reader, sink: CallSink, form: TagForm, name: str) -> None:
        self._reader = reader
        self._sink = sink
        self._form = form
        self._parameters = Parameters(sink.tools.get(name))
        self._given: set[str] = set()

    def parse(self) -> Parse[None]:
        reader, form = self._reader, self._form
        while True:
            yield from reader.skip_blanks()
            mark = yield from reader.expect(*form.followers)
            if mark != form.key_open:
                break
            key, stated = form.parse_header((yield from reader.read_word(form.key_close)))
            if form.value_open:
                yield from reader.skip_blanks()
                yield from reader.expect(form.value_open)
            if not self._given and self._parameters.names and key in _WRAPPERS and key not in self._parameters.names:
                if (yield from self._wrapped(key)):
                    return
            else:
                self._begin(key)
                yield from self._value(key, self._types(key, stated))
        if mark not in form.frame.ends:
            reader.unread(mark)
        if self._given:
            self._sink.arguments("}")

    def _begin(self, key: str) -> None:
        self._sink.arguments((", " if self._given else "{") + encode_string(key) + ": ")
        self._given.add(key)

    def _types(self, key: str, stated: frozenset[str] | None) -> frozenset[str]:
        """Return the types of a parameter. The schema overrides a type in the tag that it does not allow."""
        types = self._parameters.types(key)
        return types if stated is None else (types & stated or types)

    def _wrapped(self, key: str) -> Parse[bool]:
        """Parse an undeclared first parameter that may hold all arguments; return whether it did, and ended the call."""
        buffer = _ValueBuffer()
        breaks = yield from self._skip_line_break()
        yield from self._read_value(key, breaks, buffer.add, lambda: HELD_LIMIT - buffer.size)
        value = coerce(buffer.text, OBJECT) or ""
        if value.startswith("{") and not (yield from self._reader.is_ahead(self._form.key_open)):
            self._sink.arguments(value)
            yield from self._form.frame.end_call(self._reader)
            return True
        self._begin(key)
        self._sink.arguments(buffer.encode(ANY, self._form.parse_value))
        return False

    def _value(self, key: str, types: frozenset[str]) -> Parse[None]:
        """Parse a value and its closing tag. Strings are emitted as they arrive, other values when they are complete."""
        breaks = yield from self._skip_line_break()
        if types == STRING:
            self._sink.arguments('"')
            yield from self._read_value(key, breaks, escaping(self._sink.arguments), lambda: _NO_LIMIT)
            self._sink.arguments('"')
        else:
            buffer = _ValueBuffer()
            yield from self._read_value(key, breaks, buffer.add, lambda: HELD_LIMIT - buffer.size)
            self._sink.arguments(buffer.encode(types, self._form.parse_value))

    def _skip_line_break(self) -> Parse[tuple[str, ...]]:
        """Skip the line break before a value, if the form has one; return the line breaks that may follow the value."""
        if self._form.trims and (yield from self._reader.accept("\r\n", "\n")) == "\r\n":
            return "\r\n", "\n"
        return ("\n",)

    def _read_value(self, key: str, breaks: tuple[str, ...], emit: Emit, room: Callable[[], int]) -> Parse[None]:
        """Emit a value; consume it and its closing tag, but not a mark that ends it without one."""
        reader, form = self._reader, self._form
        close, marks = form.close(key), form.recovery_marks
        closes = (close, *(end + close for end in breaks)) if form.trims else (close,)
        place = _PlaceInValue(emit)
        while True:
            found = yield from reader.read_until(
                *closes, *marks, *(end + mark for end in breaks for mark in marks), emit=place.emit, limit=room()
            )
            if found in closes:
                if (yield from reader.is_ahead(*form.followers)):
                    return
            else:
                mark = found.lstrip("\r\n")
                may_end = found != mark or place.starts_line or place.in_first_line
                if may_end and (yield from self._ends_value(mark, starts_line=found != mark or place.starts_line)):
                    reader.unread(mark)
                    return
            place.emit(found)

    def _ends_value(self, mark: str, *, starts_line: bool) -> Parse[bool]:
        form, reader = self._form, self._reader
        if mark != form.key_open:
            return (yield from form.frame.ends_value(reader, mark, self._sink.tools))
        header = yield from reader.word_ahead(form.key_close)
        if header is None:
            return False
        key, declared = form.parse_header(header)[0], self._parameters.names
        return key not in self._given and (key in declared if declared else starts_line and NAME.fullmatch(key) is not None)


class _PlaceInValue:
    """Emits a value, and tracks the place in its lines."""

    __slots__ = ("_emit", "in_first_line", "starts_line")

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.in_first_line = True
        self.starts_line = True

    def emit(self, text: str) -> None:
        line = text.rfind("\n") + 1
        if line:
            self.in_first_line = False
            self.starts_line = not text[line:].strip()
        elif self.starts_line and not text.isspace():
            self.starts_line = False
        self._emit(text)


class _ValueBuffer:
    """A value whose type is known only when it is complete."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def encode(self, types: frozenset[str], parse_value: Callable[[str], str | None]) -> str:
        return coerce(self.text, types) or parse_value(self.text) or encode_string(self.text)


def attribute(text: str, name: str) -> str | None:
    """Return the value of an attribute in the text of a tag: `name="value"`."""
    found = re.search(rf'{name}="([^"]*)"', text)
    return None if found is None else found.group(1)
