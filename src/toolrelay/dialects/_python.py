"""Calls written as Python: `f(a=1, b="x")`. Read, never evaluated; the arguments go out as JSON while they come."""

from __future__ import annotations

import re
from string import ascii_letters

from toolrelay.dialects._faults import BrokenError, CutError, NotACallError
from toolrelay.dialects._python_value import PYTHON
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects._schema import Parameters, quoted
from toolrelay.dialects.base import Speaker

NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_CONSTANTS = {"True", "False", "None", "true", "false", "null"}


def python_calls(reader: Reader, speaker: Speaker, *, offered_only: bool = False) -> Reading[None]:
    """`f(…), g(…)` or one call a line, up to what cannot be a further call. `offered_only`: of other functions it is no call."""
    while True:
        yield from reader.blanks()
        yield from python_call(reader, speaker, offered_only=offered_only)
        yield from reader.closing(",", ";")
        if not (yield from reader.ahead(*_LETTERS)):
            return


_LETTERS = tuple(ascii_letters + "_")


def python_call(reader: Reader, speaker: Speaker, *, offered_only: bool = False) -> Reading[None]:
    name = yield from reader.run(NAME)
    if not name or (offered_only and name not in speaker.tools):
        raise NotACallError
    yield from reader.literal("(")
    speaker.start(name)
    positions = iter(Parameters(speaker.tools.get(name)).names)
    first = True
    while True:
        yield from reader.blanks()
        if (yield from reader.option(")")):
            break
        keyword = yield from _keyword(reader)
        key = keyword if keyword is not None else next(positions, None)
        if key is None:
            raise BrokenError("positional_argument")
        speaker.argue(("{" if first else ", ") + quoted(key) + ": ")
        first = False
        yield from reader.blanks()
        yield from PYTHON.read(reader, speaker.argue)
        yield from reader.blanks()
        if (yield from reader.literal(",", ")")) == ")":
            break
    speaker.argue("" if first else "}")
    speaker.finish()


def _keyword(reader: Reader) -> Reading[str | None]:
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
    raise BrokenError("malformed") if (yield from reader.peek()) else CutError
