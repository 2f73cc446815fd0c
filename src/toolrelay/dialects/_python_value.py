"""Python's literals: strings in any quotes, `True`, `None`, `1_000`, `0x1f`, tuples. Read, never evaluated."""

from __future__ import annotations

import re
from math import isfinite

from toolrelay.parsing.errors import MalformedCallError, ParseError
from toolrelay.parsing.literals import LiteralSyntax
from toolrelay.parsing.stream_reader import parse_whole

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
    """What the escape at that place means, and where it ends. None: it is not all there."""
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
    if 0xD800 <= code < 0xDC00:  # a pair, which is JSON's way
        second = _SECOND_HALF.match(text, end)
        if second is not None:
            return chr(0x10000 + ((code - 0xD800) << 10) + (int(second.group(1), 16) - 0xDC00)), second.end()
        if end + 6 > len(text) and "\\u".startswith(text[end : end + 2]):
            return None
    return "\ufffd" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code), end


def _number(word: str) -> str:
    if _JSON_NUMBER.fullmatch(word):
        return word
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
    raise MalformedCallError("malformed")


PYTHON = LiteralSyntax(
    quotes=("'''", '"""', "'", '"'),
    word=_WORD,
    key=_WORD,
    encode_word=lambda word: _WORDS.get(word) or _number(word),
    decode_escape=_escape,
)


def python_json(text: str) -> str | None:
    """The JSON of a text that is a Python literal; None if it is none."""
    pieces: list[str] = []
    try:
        rest = parse_whole(text.strip(), lambda reader: PYTHON.read(reader, pieces.append))
    except ParseError:
        return None
    return None if rest else "".join(pieces)
