"""Parser of calls and literals in Python syntax, `f(a=1, b="x")`. Nothing is evaluated; arguments stream as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite
from string import ascii_letters

from toolrelay.dialects.parameter_types import Parameters
from toolrelay.parsing.errors import MalformedCallError, NotACallError, ParseError, TruncatedCallError
from toolrelay.parsing.grammar import CallSink
from toolrelay.parsing.json import encode_string
from toolrelay.parsing.literals import LiteralSyntax
from toolrelay.parsing.stream_reader import BLANK_LIMIT, NAME, Parse, Reader

_WORD = re.compile(r"[\w.+\-]*")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?0[xXoObB][0-9a-fA-F]{1,32}")
_FLOAT = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-]?\d+)?", re.ASCII)
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_CODES = {kind: re.compile(rf"\\{kind}([0-9a-fA-F]{{{width}}})") for kind, width in (("x", 2), ("u", 4), ("U", 8))}
_LENGTHS = {"x": 4, "u": 6, "U": 10}
_SECOND_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _escape(text: str, at: int) -> tuple[str, int] | None:
    """Decode the escape at that place; return its text and where it ends, None if it is incomplete."""
    if at + 2 > len(text):
        return None
    kind = text[at + 1]
    if kind not in _CODES:
        return _SIMPLE.get(kind, kind if kind in "\\'\"" else f"\\{kind}"), at + 2
    found = _CODES[kind].match(text, at)
    if found is None:
        if at + _LENGTHS[kind] > len(text):
            return None
        raise MalformedCallError("invalid_escape")
    code, end = int(found.group(1), 16), found.end()
    if 0xD800 <= code < 0xDC00:  # a surrogate pair, as in JSON
        second = _SECOND_HALF.match(text, end)
        if second is not None:
            return chr(0x10000 + ((code - 0xD800) << 10) + (int(second.group(1), 16) - 0xDC00)), second.end()
        if end + 6 > len(text) and "\\u".startswith(text[end : end + 2]):
            return None
    return "\ufffd" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code), end


def _encode_word(word: str) -> str:
    if _JSON_NUMBER.fullmatch(word):
        return word
    if word in _WORDS:
        return _WORDS[word]
    plain = word.replace("_", "").removeprefix("+")
    if _JSON_NUMBER.fullmatch(plain):
        return plain
    try:
        if plain.isdecimal():  # with leading zeros
            return str(int(plain))
        if _INTEGER.fullmatch(plain):
            return str(int(plain, 0))
        if _FLOAT.fullmatch(plain) and isfinite(number := float(plain)):
            return repr(number)
    except ValueError:
        pass
    raise MalformedCallError("malformed")


PYTHON = LiteralSyntax(
    quotes=("'''", '"""', "'", '"'),
    word=_WORD,
    key=_WORD,
    encode_word=_encode_word,
    decode_escape=_escape,
)


def python_to_json(text: str) -> str | None:
    """Return the JSON of a Python literal; None if the text is not one."""
    reader = Reader(text.strip())
    reader.closed = True
    pieces: list[str] = []
    try:
        next(PYTHON.read(reader, pieces.append), None)
    except ParseError:
        return None
    return "".join(pieces) if reader.at == len(reader.text) else None


_IDENTIFIER = re.compile(r"[^\W\d][\w.\-]*")
_LETTERS = (*ascii_letters, "_")
_BLANKS = " \t\r\n"


def python_calls(reader: Reader, sink: CallSink, *, offered_only: bool = False) -> Parse[None]:
    """Parse `f(…), g(…)` or one call per line. `offered_only`: a call of any other function is text."""
    firsts = (*_LETTERS, *sorted({name[0] for name in sink.tools if name} - {*_LETTERS}))
    while True:
        yield from reader.skip_blanks()
        yield from python_call(reader, sink, offered_only=offered_only)
        yield from reader.accept_after_blanks(",", ";")
        if not (yield from reader.is_ahead(*firsts)):
            return


def python_call(reader: Reader, sink: CallSink, *, offered_only: bool = False) -> Parse[None]:
    """Parse `f(a=1)`. Offered tools and their declared parameters may have names that are not valid in Python."""
    name = yield from reader.read_match(NAME)
    if name not in sink.tools and (offered_only or _IDENTIFIER.fullmatch(name) is None):
        raise NotACallError
    yield from reader.expect("(")
    sink.start(name)
    declared = Parameters(sink.tools.get(name)).names
    invalid = _invalid_names(declared)
    positions = iter(declared)
    first = True
    while True:
        yield from reader.skip_blanks()
        keyword = (yield from _declared_keyword(reader, invalid)) if invalid else None
        if keyword is None:
            if (yield from reader.accept(")")):
                break
            keyword = yield from _keyword(reader)
        key = keyword if keyword is not None else next(positions, None)
        if key is None:
            raise MalformedCallError("positional_argument")
        sink.arguments(("{" if first else ", ") + encode_string(key) + ": ")
        first = False
        yield from reader.skip_blanks()
        yield from PYTHON.read(reader, sink.arguments)
        yield from reader.skip_blanks()
        if (yield from reader.expect(",", ")")) == ")":
            break
    sink.arguments("" if first else "}")
    sink.finish()


def _invalid_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names that are not valid in Python, the longest first, by the name without surrounding blanks."""
    invalid = {name.strip(_BLANKS): name for name in names if _IDENTIFIER.fullmatch(name) is None}
    return dict(sorted(invalid.items(), key=lambda pair: -len(pair[0])))


def _declared_keyword(reader: Reader, names: dict[str, str]) -> Parse[str | None]:
    """Consume one of the names and the `=` after it; None if none comes next."""
    for bare, name in names.items():
        reach = len(bare) + BLANK_LIMIT
        while True:
            text = reader.text[reader.at : reader.at + reach]
            after = text[len(bare) :].lstrip(_BLANKS)
            may_follow = not after and len(text) < reach and (text.startswith(bare) or bare.startswith(text))
            if not may_follow or reader.closed:
                break
            yield None
        if text.startswith(bare) and after.startswith("="):
            reader.at += len(text) - len(after) + 1
            return name
    return None


def _keyword(reader: Reader) -> Parse[str | None]:
    """Consume a keyword and its `=`; None for a positional argument."""
    word = yield from reader.read_match(_IDENTIFIER)
    if not word:
        return None
    yield from reader.skip_blanks()
    if (yield from reader.accept("=")):
        return word
    if word in _WORDS:
        reader.unread(word)
        return None
    raise MalformedCallError("malformed") if (yield from reader.peek()) else TruncatedCallError
