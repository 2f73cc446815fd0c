"""Parser of calls with a tag for each parameter, such as `<parameter=k>v</parameter>`.

Values are plain text, typed by the tool's schema. Nothing in them is escaped, so a value may contain any mark. And models forget
closing tags. What ends a value:

    mark                                    ends the value
    -------------------------------------   ------------------------------------------------------------------------------
    its closing tag                         if the next parameter, the end of the call, block or answer, or the next call follows;
                                            always if a mark of its own precedes each tag (MiniMax M3)
    the next parameter                      if the tool declares it and it has not been given yet
    the end of the call or of the block     if the end of the block, the next call or the end of the answer follows, or
                                            text of at most 4 KiB up to the end of the answer, without the closing tag
    the next call                           if it names an offered tool

Blanks do not count. The last three, which repair a missing closing tag, count only in the first line of a value or at the
beginning of a line. Every other mark is part of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.dialects.nested_tags import json_to_nested, nested_to_json, text_to_json
from toolrelay.dialects.parameter_types import ANY, OBJECT, STRING, Parameters, coerce
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.dialects.rendering import Argument, split_arguments
from toolrelay.parsing.call_parser import HELD_LIMIT
from toolrelay.parsing.errors import TruncatedCallError
from toolrelay.parsing.grammar import CallFrame, CallSink
from toolrelay.parsing.json import encode_string, escaping, json_arguments
from toolrelay.parsing.stream_reader import NAME, Emit, Parse, Reader

_NO_LIMIT = 1 << 62
_PROSE_LIMIT = 4096  # characters after a call whose last value was not closed
_WRAPPERS = frozenset({"arguments", "input", "parameters", "properties", "args", "kwargs"})
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_NEEDS_CDATA = re.compile(r"[<&\n]")

Header: TypeAlias = tuple[str, frozenset[str] | None]
"""The name of a parameter, and its types if the tag states them."""


def plain_header(text: str) -> Header:
    return text.strip(), None


class TagForm(Struct, frozen=True, kw_only=True):
    """The form of a parameter: key_open HEADER key_close value_open VALUE value_close.

    frame          the marks around the parameters
    variants       what models print for key_open
    parse_header   parses the header, which is the parameter's name in most forms
    render_header  the reverse
    value_close    may contain the name: `{key}`
    trims          one line break at each end of a value belongs to the form
    cdata          a value may be in a CDATA block, which only `]]>` and the closing tag end
    nested         objects and lists are nested tags (`nested_tags`), each after this prefix; None: they are JSON
    parse_value    encodes a value that is not JSON and may not be a string; None: as a string after all
    """

    key_open: str
    key_close: str
    value_close: str
    frame: CallFrame
    variants: tuple[str, ...] = ()
    value_open: str = ""
    parse_header: Callable[[str], Header] = plain_header
    render_header: Callable[[Argument], str] = lambda argument: argument.name
    trims: bool = False
    cdata: bool = False
    nested: str | None = None
    parse_value: Callable[[str], str | None] = python_to_json

    @property
    def followers(self) -> tuple[str, ...]:
        """What may follow a parameter."""
        return (*self.key_opens, *self.frame.ends, *self.frame.followers)

    @property
    def key_opens(self) -> tuple[str, ...]:
        return (self.key_open, *self.variants)

    @property
    def recovery_marks(self) -> tuple[str, ...]:
        """The marks that may end a value without its closing tag. A key that begins with `<` only is like any other tag."""
        return self.followers[1:] if self.key_open.endswith("<") else self.followers

    def close(self, key: str) -> str:
        return self.value_close.replace("{key}", key)

    def render(self, argument: Argument) -> str:
        value = argument.plain
        if self.nested is not None and argument.text is None:
            value = json_to_nested(value, self.nested)
        if self.trims:
            value = f"\n{value}\n"
        if self.cdata and _NEEDS_CDATA.search(value):
            value = f"{_CDATA}{value}{_CDATA_END}"
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
        yield from json_arguments(reader, sink.arguments)
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
            if (yield from reader.is_answer_over()):
                if not self._parameters.are_complete(self._given):
                    raise TruncatedCallError
                mark = ""
                break
            mark = yield from reader.expect(*form.followers)
            if mark not in form.key_opens:
                break
            key, stated = form.parse_header((yield from self._header()))
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

    def _header(self) -> Parse[str]:
        """Parse the header of a parameter, up to its value."""
        reader, form = self._reader, self._form
        before = (form.value_open,) if form.value_open else ()
        header = yield from reader.read_word(form.key_close, before=before)
        if form.value_open:
            yield from reader.skip_blanks()
            yield from reader.expect(form.value_open)
        return header

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
        yield from self._read_value(key, breaks, buffer.add, buffer.room)
        value = coerce(buffer.text, OBJECT) or python_to_json(buffer.text) or ""
        if self._has_declared_keys(value) and not (yield from self._reader.is_ahead(*self._form.key_opens)):
            self._sink.arguments(value)
            yield from self._form.frame.end_call(self._reader)
            return True
        self._begin(key)
        self._sink.arguments(self._encode(key, buffer.text, ANY))
        return False

    def _has_declared_keys(self, value: str) -> bool:
        """Return whether a value is an object with a declared parameter, or an empty one."""
        try:
            members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        except msgspec.MsgspecError:
            return False
        return not members or any(name in members for name in self._parameters.names)

    def _value(self, key: str, types: frozenset[str]) -> Parse[None]:
        """Parse a value and its closing tag. Strings are emitted as they arrive, other values when they are complete."""
        breaks = yield from self._skip_line_break()
        if types == STRING:
            self._sink.arguments('"')
            yield from self._read_value(key, breaks, escaping(self._sink.arguments))
            self._sink.arguments('"')
        else:
            buffer = _ValueBuffer()
            yield from self._read_value(key, breaks, buffer.add, buffer.room)
            self._sink.arguments(self._encode(key, buffer.text, types))

    def _encode(self, key: str, text: str, types: frozenset[str]) -> str:
        """Return the JSON of a value that may not be a string."""
        form = self._form
        if form.nested is not None:
            nested = nested_to_json(text, form.nested, self._parameters.schema(key), self._parameters.root)
            return text_to_json(text, types) if nested is None else nested
        return coerce(text, types) or form.parse_value(text) or encode_string(text)

    def _skip_line_break(self) -> Parse[tuple[str, ...]]:
        """Skip the line break before a value, if the form has one; return the line breaks that may follow the value."""
        if self._form.trims and (yield from self._reader.accept("\r\n", "\n")) == "\r\n":
            return "\r\n", "\n"
        return ("\n",)

    def _read_value(self, key: str, breaks: tuple[str, ...], emit: Emit, room: Callable[[], int] | None = None) -> Parse[None]:
        """Emit a value; consume it and its closing tag, but not a mark that ends it without one.

        `room`: how much of it may be held; None: it is a string. `depth`: how many tags with the same name are open inside it.
        """
        reader, form = self._reader, self._form
        close, marks = form.close(key), form.recovery_marks
        closes = (close, *(end + close for end in breaks)) if form.trims else (close,)
        if form.cdata and (yield from reader.accept_after_blanks(_CDATA)):
            marks, closes = (), (_CDATA_END + close, f"{_CDATA_END}\n{close}")
        same = (f"{form.nested}<{key}>",) if form.nested is not None and room is not None else ()
        searched = (*closes, *marks, *(end + mark for end in breaks for mark in marks), *same)
        place = _PlaceInValue(emit)
        depth = 0
        while True:
            found = yield from reader.read_until(*searched, emit=place.emit, limit=room() if room else _NO_LIMIT)
            if found in same:
                depth += 1
            elif found in closes:
                if not depth and (form.nested or (yield from self._ends_parameter())):
                    return
                depth = max(0, depth - 1)
            else:
                mark = found.lstrip("\r\n")
                may_end = found != mark or place.starts_line or place.in_first_line
                if may_end and (yield from self._ends_value(key, mark, starts_line=found != mark or place.starts_line)):
                    reader.unread(mark)
                    return
            place.emit(found)

    def _ends_parameter(self) -> Parse[bool]:
        reader = self._reader
        return (yield from reader.is_ahead(*self._form.followers)) or (yield from reader.is_answer_over())

    def _ends_value(self, key: str, mark: str, *, starts_line: bool) -> Parse[bool]:
        form, reader = self._form, self._reader
        if mark not in form.key_opens:
            if (yield from form.frame.ends_value(reader, mark, self._sink.tools)):
                return True
            is_end = mark in form.frame.ends or mark in form.frame.closes
            return is_end and not (yield from reader.may_come(form.close(key), _PROSE_LIMIT))
        header = yield from reader.word_ahead(form.key_close)
        if header is None:
            return False
        name, declared = form.parse_header(header)[0], self._parameters.names
        return name not in self._given and (name in declared if declared else starts_line and NAME.fullmatch(name) is not None)


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

    def room(self) -> int:
        return HELD_LIMIT - self.size

    @property
    def text(self) -> str:
        return "".join(self._pieces)


_ATTRIBUTE_VALUE = r"""(?:"([^"]*)"|'([^']*)'|([^\s"'<>/]+))"""
_FIRST_VALUE = re.compile(rf"\s*{_ATTRIBUTE_VALUE}")


def attribute(text: str, name: str) -> str | None:
    """Return the value of an attribute in the text of a tag: `name="value"`. Models vary the quotes, or leave them out."""
    found = re.search(rf"{name}={_ATTRIBUTE_VALUE}", text)
    return None if found is None else _matched(found)


def first_value(text: str) -> str:
    """Return the attribute value at the beginning of a text."""
    found = _FIRST_VALUE.match(text)
    return "" if found is None else _matched(found)


def _matched(found: re.Match[str]) -> str:
    return next((group for group in found.groups() if group is not None), "")
