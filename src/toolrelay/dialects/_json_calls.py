"""Calls that are JSON objects with a name and arguments, the commonest form; or dicts of Python's, which small models write."""

from __future__ import annotations

import re

import msgspec

from toolrelay.dialects._python_value import PYTHON
from toolrelay.parsing.errors import MalformedCallError, NotACallError
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.json import json_string, json_value, short_string
from toolrelay.parsing.stream_reader import Parse, Reader

NAME = re.compile(r"[\w.\-]+")
NAMES = ("name", "tool_name", "function_name", "tool")
ARGUMENTS = ("arguments", "parameters", "args", "input", "kwargs")
_QUOTES = ('"', "'")
_KNOWN = {*NAMES, *ARGUMENTS, "type", "function", "id", "tool_call_id", "call_id", "index"}


def json_call(reader: Reader, sink: CallSink, *, known_keys: bool = False) -> Parse[None]:
    """`{"name": "f", "arguments": {…}}`, its members in any order; the arguments may be a JSON string that holds them.

    Where their key stands in single quotes, they are Python and go out as JSON; else their own text does, whatever it is.
    `known_keys`: an object with any other member is not a call.
    """
    call = _Call(sink, known_keys=known_keys)
    yield from _members(reader, call)
    call.end()


def json_calls(reader: Reader, sink: CallSink, *, known_keys: bool = False) -> Parse[None]:
    """One call, several one after the other, or a list of them."""
    yield from reader.blanks()
    if (yield from reader.peek()) not in ("{", "[", ""):
        raise NotACallError
    if not (yield from reader.option("[")):
        yield from json_call(reader, sink, known_keys=known_keys)
        while (yield from reader.ahead("{", ",{", ", {", ",\n{")):
            if not (yield from reader.peek()):
                return
            yield from reader.closing(",")
            yield from reader.blanks()
            yield from json_call(reader, sink, known_keys=known_keys)
        return
    first = True
    while True:
        yield from reader.blanks()
        if not first and (yield from reader.option("]")):
            return
        yield from json_call(reader, sink, known_keys=known_keys)
        first = False
        yield from reader.blanks()
        if not (yield from reader.option(",")):
            yield from reader.literal("]")
            return


def _members(reader: Reader, call: _Call) -> Parse[None]:
    """The members of an object. A brace that is missing after a whole call is forgiven: nothing else can have been meant."""
    yield from reader.literal("{")
    yield from reader.blanks()
    if (yield from reader.option("}")):
        return
    while True:
        is_python = (yield from reader.peek()) == "'"
        key = yield from short_string(reader)
        call.check(key)
        yield from reader.blanks()
        yield from reader.literal(":")
        yield from reader.blanks()
        yield from call.member(key, reader, is_python=is_python)
        if call.is_whole:
            mark = yield from reader.closing(",", "}")
            if mark != ",":
                return
        else:
            yield from reader.blanks()
            mark = yield from reader.literal(",", "}")
            if mark == "}":
                return
        yield from reader.blanks()
        if (yield from reader.option("}")):  # a comma too many
            return


class _Call:
    """The call that is being read. Arguments that come before the name wait for it."""

    def __init__(self, sink: CallSink, *, known_keys: bool) -> None:
        self._sink = sink
        self._known_keys = known_keys
        self._name = ""
        self._early: list[str] = []
        self._has_arguments = False
        self._nested = False
        self._skipped = False

    def check(self, key: str) -> None:
        if self._known_keys and key not in _KNOWN:
            raise NotACallError

    def member(self, key: str, reader: Reader, *, is_python: bool) -> Parse[None]:
        first = yield from reader.peek()
        if key in NAMES and first in _QUOTES and not self._name:
            self._start((yield from short_string(reader)))
        elif key in ARGUMENTS and not self._has_arguments:
            emit = self._sink.arguments if self._name else self._early.append
            if first == '"':
                yield from json_string(reader, emit)
            elif first == "'":
                emit((yield from _python_string(reader)))
            elif first in ("n", "N"):
                yield from reader.literal("null", "None")
            elif is_python:
                yield from PYTHON.read(reader, emit)
            else:
                yield from json_value(reader, emit)
            self._has_arguments = True
        elif key == "function" and first == "{" and not self._nested:  # OpenAI's own nesting
            self._nested = True
            yield from _members(reader, self)
        else:
            yield from json_value(reader, _ignore)
            self._skipped = True

    @property
    def is_whole(self) -> bool:
        return bool(self._name) and self._has_arguments

    def _start(self, name: str) -> None:
        if NAME.fullmatch(name) is None:
            raise NotACallError
        self._name = name
        self._sink.start(name)
        for piece in self._early:
            self._sink.arguments(piece)
        self._early.clear()

    def end(self) -> None:
        if not self._name:
            # What was read may be long: to look at it again as text would make reading it cost its square.
            raise MalformedCallError("no_name") if self._has_arguments or self._skipped else NotACallError
        self._sink.finish()


def _python_string(reader: Reader) -> Parse[str]:
    pieces: list[str] = []
    yield from PYTHON.read(reader, pieces.append)
    return msgspec.json.decode("".join(pieces), type=str)


def _ignore(_text: str) -> None:
    pass
