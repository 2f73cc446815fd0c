"""Calls written as Python: `f(a=1, b="x")`. Read, never evaluated; the arguments go out as JSON while they come."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_letters

from toolrelay.dialects._python_value import PYTHON
from toolrelay.dialects._schema import Parameters
from toolrelay.parsing.errors import MalformedCallError, NotACallError, TruncatedCallError
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.json import quoted
from toolrelay.parsing.stream_reader import BLANK_LIMIT, Parse, Reader

NAME = re.compile(r"[^\W\d][\w.\-]*")
_CALLED = re.compile(r"[\w.\-]*")
_BLANKS = " \t\r\n"
_CONSTANTS = {"True", "False", "None", "true", "false", "null"}


def python_calls(reader: Reader, sink: CallSink, *, offered_only: bool = False) -> Parse[None]:
    """`f(…), g(…)` or one call a line, up to what cannot be a further call. `offered_only`: of other functions it is no call."""
    firsts = (*_LETTERS, *sorted({name[0] for name in sink.tools if name} - {*_LETTERS}))
    while True:
        yield from reader.blanks()
        yield from python_call(reader, sink, offered_only=offered_only)
        yield from reader.closing(",", ";")
        if not (yield from reader.ahead(*firsts)):
            return


_LETTERS = tuple(ascii_letters + "_")


def python_call(reader: Reader, sink: CallSink, *, offered_only: bool = False) -> Parse[None]:
    """`f(a=1)`. An offered tool and a parameter that it declares may have any name, also one that Python would not take."""
    name = yield from reader.run(_CALLED)
    if name not in sink.tools and (offered_only or NAME.fullmatch(name) is None):
        raise NotACallError
    yield from reader.literal("(")
    sink.start(name)
    declared = Parameters(sink.tools.get(name)).names
    odd = _odd(declared)
    positions = iter(declared)
    first = True
    while True:
        yield from reader.blanks()
        keyword = (yield from _declared(reader, odd)) if odd else None
        if keyword is None:
            if (yield from reader.option(")")):
                break
            keyword = yield from _keyword(reader)
        key = keyword if keyword is not None else next(positions, None)
        if key is None:
            raise MalformedCallError("positional_argument")
        sink.arguments(("{" if first else ", ") + quoted(key) + ": ")
        first = False
        yield from reader.blanks()
        yield from PYTHON.read(reader, sink.arguments)
        yield from reader.blanks()
        if (yield from reader.literal(",", ")")) == ")":
            break
    sink.arguments("" if first else "}")
    sink.finish()


def _odd(names: Iterable[str]) -> dict[str, str]:
    """Those that are no names in Python, by what they are without blanks around them; the longest first."""
    odd = {name.strip(_BLANKS): name for name in names if NAME.fullmatch(name) is None}
    return dict(sorted(odd.items(), key=lambda pair: -len(pair[0])))


def _declared(reader: Reader, names: dict[str, str]) -> Parse[str | None]:
    """The one of these that comes next, before `=`, which is passed; None if none does."""
    for bare, name in names.items():
        reach = len(bare) + BLANK_LIMIT
        while True:
            text = reader.text[reader.at : reader.at + reach]
            after = text[len(bare) :].lstrip(_BLANKS)
            may_come = not after and len(text) < reach and (text.startswith(bare) or bare.startswith(text))
            if not may_come or reader.closed:
                break
            yield None
        if text.startswith(bare) and after.startswith("="):
            reader.at += len(text) - len(after) + 1
            return name
    return None


def _keyword(reader: Reader) -> Parse[str | None]:
    """The name before `=`, or None for an argument that has none."""
    word = yield from reader.run(NAME)
    if not word:
        return None
    yield from reader.blanks()
    if (yield from reader.option("=")):
        return word
    if word in _CONSTANTS:
        reader.unread(word)
        return None
    raise MalformedCallError("malformed") if (yield from reader.peek()) else TruncatedCallError
