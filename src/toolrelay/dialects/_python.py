"""Calls written as Python: `f(a=1, b="x")`. Read, never evaluated; the arguments go out as JSON while they come."""

from __future__ import annotations

import re
from math import isfinite
from string import ascii_letters

from toolrelay.dialects._faults import BrokenError, CutError, NotACallError, ReadingError
from toolrelay.dialects._reader import Reader, Reading, read_whole
from toolrelay.dialects._schema import Parameters, escaped, quoted
from toolrelay.dialects._steps import Taker
from toolrelay.dialects.base import Speaker

NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_WORD = re.compile(r"[\w.+\-]*")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_WIDTHS = {"x": 2, "u": 4, "U": 8}
_DEPTH = 64


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
        yield from _value(reader, speaker.argue, 0)
        yield from reader.blanks()
        if (yield from reader.literal(",", ")")) == ")":
            break
    speaker.argue("{}" if first else "}")
    speaker.finish()


def python_json(text: str) -> str | None:
    """The JSON of a Python literal; None if it is none."""
    pieces: list[str] = []
    try:
        rest = read_whole(text.strip(), lambda reader: _value(reader, pieces.append, 0))
    except ReadingError:
        return None
    return None if rest else "".join(pieces)


def _keyword(reader: Reader) -> Reading[str | None]:
    """The name before `=`, or None for an argument that has none."""
    word = yield from reader.run(NAME)
    if not word:
        return None
    yield from reader.blanks()
    if (yield from reader.option("=")):
        return word
    if word in _WORDS:
        reader.unread(word)
        return None
    raise BrokenError("malformed") if (yield from reader.peek()) else CutError


def _value(reader: Reader, take: Taker, depth: int) -> Reading[None]:
    if depth > _DEPTH:
        raise BrokenError("nested_too_deeply")
    match (yield from reader.peek()):
        case "":
            raise CutError
        case '"' | "'":
            yield from _string(reader, take)
        case "[" | "(":
            yield from _sequence(reader, take, depth)
        case "{":
            yield from _mapping(reader, take, depth)
        case _:
            word = yield from reader.run(_WORD)
            take(_WORDS.get(word) or _number(word))


def _number(word: str) -> str:
    plain = word.replace("_", "").removeprefix("+")
    if _JSON_NUMBER.fullmatch(plain):
        return plain
    try:
        if _INTEGER.fullmatch(plain):
            return str(int(plain, 0))
        if _FLOAT.fullmatch(plain) and isfinite(number := float(plain)):
            return repr(number)
    except ValueError:
        pass
    raise BrokenError("malformed")


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?0[xXoObB][0-9a-fA-F]{1,32}")
_FLOAT = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-]?\d+)?", re.ASCII)


def _sequence(reader: Reader, take: Taker, depth: int) -> Reading[None]:
    close = "]" if (yield from reader.literal("[", "(")) == "[" else ")"
    take("[")
    first = True
    while True:
        yield from reader.blanks()
        if (yield from reader.option(close)):
            break
        if not first:
            take(", ")
        first = False
        yield from _value(reader, take, depth + 1)
        yield from reader.blanks()
        if (yield from reader.literal(",", close)) == close:
            break
    take("]")


def _mapping(reader: Reader, take: Taker, depth: int) -> Reading[None]:
    yield from reader.literal("{")
    take("{")
    first = True
    while True:
        yield from reader.blanks()
        if (yield from reader.option("}")):
            break
        if not first:
            take(", ")
        first = False
        if (yield from reader.peek()) not in ("'", '"', ""):
            raise BrokenError("malformed")
        yield from _string(reader, take)
        yield from reader.blanks()
        yield from reader.literal(":")
        take(": ")
        yield from reader.blanks()
        yield from _value(reader, take, depth + 1)
        yield from reader.blanks()
        if (yield from reader.literal(",", "}")) == "}":
            break
    take("}")


def _string(reader: Reader, take: Taker) -> Reading[None]:
    """A string, also one in triple quotes, also several that stand beside each other."""
    take('"')
    quote = yield from reader.literal(*_QUOTES)
    while quote:
        if quote in ('"', "'") and (yield from reader.option(quote)):  # the empty string
            pass
        else:
            while (yield from reader.until("\\", quote, take=lambda piece: take(escaped(piece)))) == "\\":
                take(escaped((yield from _escape(reader))))
        quote = yield from reader.closing(*_QUOTES)
    take('"')


_QUOTES = ('"""', "'''", '"', "'")


def _escape(reader: Reader) -> Reading[str]:
    kind = yield from reader.take(1)
    if kind not in _WIDTHS:
        return _SIMPLE.get(kind, kind if kind in "\\'\"" else f"\\{kind}")
    code = yield from _code(reader, _WIDTHS[kind])
    if 0xD800 <= code < 0xDC00 and (yield from reader.option("\\u")):  # a pair, which is JSON's way
        second = yield from _code(reader, 4)
        if 0xDC00 <= second < 0xE000:
            return chr(0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00))
        return "\ufffd" + _character(second)
    return _character(code)


def _code(reader: Reader, width: int) -> Reading[int]:
    digits = yield from reader.take(width)
    if _DIGITS.fullmatch(digits) is None:
        raise BrokenError("invalid_escape")
    return int(digits, 16)


_DIGITS = re.compile(r"[0-9a-fA-F]+")


def _character(code: int) -> str:
    return "\ufffd" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code)
