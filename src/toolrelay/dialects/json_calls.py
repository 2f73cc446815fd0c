"""Parser of calls that are JSON objects: `{"name": "f", "arguments": {…}}`. Python dicts, as small models write, are accepted."""

from __future__ import annotations

import re

import msgspec

from toolrelay.dialects.parameter_types import Parameters
from toolrelay.dialects.python_calls import PYTHON
from toolrelay.parsing.errors import MalformedCallError, NotACallError
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.json import EncodedValue, encode_string, json_arguments, json_value, short_string
from toolrelay.parsing.stream_reader import NAME, Emit, Parse, Reader

_BARE_KEY = re.compile(r"\w+")
_NAME_KEYS = ("name", "tool_name", "function_name", "tool")
_ARGUMENTS_KEYS = ("arguments", "parameters", "args", "input", "kwargs")
_KNOWN_KEYS = {*_NAME_KEYS, *_ARGUMENTS_KEYS, "type", "function", "id", "tool_call_id", "call_id", "index"}


def json_call(reader: Reader, sink: CallSink, *, known_keys: bool = False, closed: bool = False) -> Parse[None]:
    """Parse a call whose members may come in any order. The arguments may be an object, or a string that holds one.

    Arguments whose key is in single quotes are Python and are translated to JSON; others are repaired JSON.
    `known_keys`: an object with any other key is not a call. `closed`: an end mark follows, so the call need not end at once.
    """
    call = _JsonCall(sink, known_keys=known_keys)
    yield from _members(reader, call)
    if closed and (yield from reader.peek()) in ('"', "'"):  # the end was inside a string with unescaped quotes
        raise MalformedCallError("invalid_json")
    call.finish()


def json_calls(reader: Reader, sink: CallSink, *, known_keys: bool = False, closed: bool = False) -> Parse[None]:
    """Parse one call, several in a row, or a list of calls."""
    yield from reader.skip_blanks()
    if (yield from reader.peek()) not in ("{", "[", ""):
        raise NotACallError
    if not (yield from reader.accept("[")):
        yield from json_call(reader, sink, known_keys=known_keys, closed=closed)
        while (yield from reader.is_ahead("{", ",{", ", {", ",\n{")):
            yield from reader.accept_after_blanks(",")
            yield from reader.skip_blanks()
            yield from json_call(reader, sink, known_keys=known_keys, closed=closed)
        return
    while True:
        yield from reader.skip_blanks()
        yield from json_call(reader, sink, known_keys=known_keys, closed=closed)
        yield from reader.skip_blanks()
        if (yield from reader.expect(",", "]")) == "]":
            return
        yield from reader.skip_blanks()
        if (yield from reader.accept("]")):  # after a trailing comma
            return


def _members(reader: Reader, call: _JsonCall) -> Parse[None]:
    """Parse the members of an object. The closing brace of a complete call may be missing."""
    yield from reader.expect("{")
    yield from reader.skip_blanks()
    if (yield from reader.accept("}")):
        return
    while True:
        first = yield from reader.peek()
        is_python = first == "'"
        key = (yield from reader.read_match(_BARE_KEY)) if first.isalpha() or first == "_" else (yield from short_string(reader))
        call.check(key)
        yield from reader.skip_blanks()
        yield from reader.expect(":")
        yield from reader.skip_blanks()
        yield from call.member(key, reader, is_python=is_python)
        if call.is_complete:
            mark = yield from reader.accept_after_blanks(",", "}")
        else:
            yield from reader.skip_blanks()
            mark = yield from reader.expect(",", "}")
        if mark != ",":
            return
        yield from reader.skip_blanks()
        if (yield from reader.accept("}")):  # after a trailing comma
            return


class _JsonCall:
    """The call that is being parsed. Arguments that precede the name are buffered."""

    def __init__(self, sink: CallSink, *, known_keys: bool) -> None:
        self._sink = sink
        self._known_keys = known_keys
        self._name = ""
        self._buffer: list[str] = []
        self._has_arguments = False
        self._has_function = False
        self._members: dict[str, str] = {}  # other than name and arguments
        self._has_skipped = False

    @property
    def is_complete(self) -> bool:
        return bool(self._name) and self._has_arguments

    def check(self, key: str) -> None:
        if self._known_keys and key not in _KNOWN_KEYS:
            raise NotACallError

    def member(self, key: str, reader: Reader, *, is_python: bool) -> Parse[None]:
        first = yield from reader.peek()
        if key in (*_NAME_KEYS, "function") and first in ('"', "'") and not self._name:
            self._start((yield from short_string(reader)).strip())
        elif key in _ARGUMENTS_KEYS and not self._has_arguments:
            emit = self._sink.arguments if self._name else self._buffer.append
            if first == "'":
                yield from _python_string(reader, emit)
            elif first in ("n", "N"):
                yield from reader.expect("null", "None")
            elif is_python:
                yield from PYTHON.read(reader, emit)
            else:
                yield from json_arguments(reader, emit)
            self._has_arguments = True
        elif key == "function" and first == "{" and not self._has_function:  # as in OpenAI's API
            self._has_function = True
            yield from _members(reader, self)
        else:
            pieces: list[str] = []
            yield from json_value(reader, pieces.append)
            self._members[key] = "".join(pieces)
            self._has_skipped = True

    def _start(self, name: str) -> None:
        if NAME.fullmatch(name) is None:
            raise NotACallError
        self._name = name
        self._sink.start(name)
        for piece in self._buffer:
            self._sink.arguments(piece)
        self._buffer.clear()

    def finish(self) -> None:
        if not self._name:
            # Skipped as malformed, because scanning long input again as text would have quadratic cost.
            raise MalformedCallError("no_name") if self._has_arguments or self._has_skipped else NotACallError
        if not self._has_arguments:
            self._emit_members()
        self._sink.finish()

    def _emit_members(self) -> None:
        """Emit arguments that stand beside the name: `{"name": "f", "city": "Paris"}`."""
        declared = Parameters(self._sink.tools.get(self._name)).names
        members = [(key, value) for key, value in self._members.items() if key in declared or key not in _KNOWN_KEYS]
        if members:
            self._sink.arguments("{" + ", ".join(f"{encode_string(key)}: {value}" for key, value in members) + "}")


def _python_string(reader: Reader, emit: Emit) -> Parse[None]:
    """Emit arguments inside a Python string."""
    pieces: list[str] = []
    yield from PYTHON.read(reader, pieces.append)
    encoded = EncodedValue(emit)
    encoded.feed(msgspec.json.decode("".join(pieces), type=str))
    reader.repaired = encoded.close() or reader.repaired
