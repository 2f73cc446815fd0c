"""Calls written as Python: `f(a=1, b="x")`. Read, never evaluated; the arguments go out as JSON while they come."""

from __future__ import annotations

import re

from toolrelay.dialects._reader import BrokenError, NotACallError, Reader, Reading
from toolrelay.dialects._schema import Parameters, escaped, quoted
from toolrelay.dialects.base import Speaker

NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_WIDTHS = {"x": 2, "u": 4, "U": 8}
_DEPTH = 64


def python_calls(reader: Reader, speaker: Speaker) -> Reading[None]:
    """`f(…), g(…)` up to what cannot be a further call."""
    while True:
        yield from reader.blanks()
        yield from python_call(reader, speaker)
        yield from reader.blanks()
        if not (yield from reader.option(",", ";")):
            return


def python_call(reader: Reader, speaker: Speaker) -> Reading[None]:
    name = yield from reader.word("(")
    if NAME.fullmatch(name.strip()) is None:
        raise NotACallError
    speaker.start(name.strip())
    positions = iter(Parameters(speaker.tools.get(name.strip())).names)
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
        yield from _value(reader, speaker, 0)
        yield from reader.blanks()
        if not (yield from reader.option(",")):
            yield from reader.literal(")")
            break
    speaker.argue("{}" if first else "}")
    speaker.finish()


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
    raise BrokenError("malformed")


def _value(reader: Reader, speaker: Speaker, depth: int) -> Reading[None]:
    if depth > _DEPTH:
        raise BrokenError("nested_too_deeply")
    match (yield from reader.peek()):
        case '"' | "'":
            yield from _string(reader, speaker)
        case "[" | "(":
            yield from _sequence(reader, speaker, depth)
        case "{":
            yield from _mapping(reader, speaker, depth)
        case _:
            word = yield from reader.run(_WORD)
            speaker.argue(_WORDS.get(word) or _number(word))


_WORD = re.compile(r"[\w.+\-]*")


def _number(word: str) -> str:
    plain = word.replace("_", "").removeprefix("+")
    if _JSON_NUMBER.fullmatch(plain):
        return plain
    try:
        return repr(int(plain, 0)) if _INTEGER.fullmatch(plain) else repr(float(plain) if _FLOAT.fullmatch(plain) else int(""))
    except ValueError:
        raise BrokenError("malformed") from None


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?")
_INTEGER = re.compile(r"-?0[xXoObB][0-9a-fA-F]{1,32}")
_FLOAT = re.compile(r"-?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+\-]?\d{1,3})?")


def _sequence(reader: Reader, speaker: Speaker, depth: int) -> Reading[None]:
    close = "]" if (yield from reader.literal("[", "(")) == "[" else ")"
    speaker.argue("[")
    first = True
    while True:
        yield from reader.blanks()
        if (yield from reader.option(close)):
            break
        if not first:
            speaker.argue(", ")
        first = False
        yield from _value(reader, speaker, depth + 1)
        yield from reader.blanks()
        if not (yield from reader.option(",")):
            yield from reader.literal(close)
            break
    speaker.argue("]")


def _mapping(reader: Reader, speaker: Speaker, depth: int) -> Reading[None]:
    yield from reader.literal("{")
    speaker.argue("{")
    first = True
    while True:
        yield from reader.blanks()
        if (yield from reader.option("}")):
            break
        if not first:
            speaker.argue(", ")
        first = False
        if (yield from reader.peek()) not in ("'", '"'):
            raise BrokenError("malformed")
        yield from _string(reader, speaker)
        yield from reader.blanks()
        yield from reader.literal(":")
        speaker.argue(": ")
        yield from reader.blanks()
        yield from _value(reader, speaker, depth + 1)
        yield from reader.blanks()
        if not (yield from reader.option(",")):
            yield from reader.literal("}")
            break
    speaker.argue("}")


def _string(reader: Reader, speaker: Speaker) -> Reading[None]:
    """A string, also one in triple quotes, also several that stand beside each other."""
    speaker.argue('"')
    while quote := (yield from reader.option('"""', "'''", '"', "'")):
        if quote in ('"', "'") and (yield from reader.option(quote)):  # the empty string
            pass
        else:
            while (yield from reader.until("\\", quote, take=lambda piece: speaker.argue(escaped(piece)))) == "\\":
                speaker.argue(escaped((yield from _escape(reader))))
        yield from reader.blanks()
    speaker.argue('"')


def _escape(reader: Reader) -> Reading[str]:
    kind = yield from reader.take(1)
    if kind in _WIDTHS:
        digits = yield from reader.take(_WIDTHS[kind])
        try:
            code = int(digits, 16)
        except ValueError:
            raise BrokenError("invalid_escape") from None
        return "\ufffd" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code)
    return _SIMPLE.get(kind, kind if kind in "\\'\"" else f"\\{kind}")
