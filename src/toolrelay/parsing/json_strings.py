"""Text as a part of JSON: encoding and decoding of strings and their escapes."""

from __future__ import annotations

import re
from json.encoder import encode_basestring

import msgspec

from toolrelay.parsing.stream_reader import Emit

_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_HEX = "[0-9a-fA-F]"
SURROGATES = re.compile(rf"[dD](?:[89abAB]{_HEX}{{2}}(\\u[dD][c-fC-F]{_HEX}{{2}})?|[c-fC-F]{_HEX}{{2}})")
PARTIAL_SURROGATES = re.compile(
    rf"[dD](?:[89abAB](?:{_HEX}(?:{_HEX}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)?)?|[c-fC-F]{_HEX}?)?\Z"
)
ESCAPE = re.compile(rf"\\u(?:{SURROGATES.pattern}|({_HEX}{{4}}))|\\(.)", re.DOTALL)
PARTIAL_ESCAPE = re.compile(rf"\\(?:u(?:{PARTIAL_SURROGATES.pattern}|{_HEX}{{0,3}}\Z)|\Z)")


def encode_string(text: str) -> str:
    """Encode as a JSON string."""
    return msgspec.json.encode(text).decode()


def escape_text(text: str) -> str:
    """Encode as a part of a JSON string."""
    return text if text.isprintable() and '"' not in text and "\\" not in text else encode_basestring(text)[1:-1]


def escaping(emit: Emit) -> Emit:
    """Return an `emit` that escapes text as a part of a JSON string."""
    return lambda text: emit(escape_text(text))


def decode_escapes(text: str) -> str:
    """Decode the inside of a JSON string."""
    return ESCAPE.sub(decode_escape, text)


def decode_escape(escape: re.Match[str]) -> str:
    second, code, letter = escape.groups()
    if letter:
        return _CHARACTERS.get(letter, letter)
    if code:
        return chr(int(code, 16))
    if not second:
        return "\ufffd"
    return chr(0x10000 + ((int(escape.group()[2:6], 16) - 0xD800) << 10) + int(second[2:6], 16) - 0xDC00)
