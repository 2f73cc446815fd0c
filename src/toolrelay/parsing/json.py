"""Streaming parser of JSON as models write it: the text of a value, or the content of a string."""

from __future__ import annotations

import re
from json.encoder import encode_basestring

import msgspec

from toolrelay.parsing.errors import MalformedCallError, NotACallError, TruncatedCallError
from toolrelay.parsing.stream_reader import NAME_LIMIT, Emit, Parse, Reader, run_lexer

_SCALAR_LIMIT = 256
_SCALAR = re.compile(r"""[^\s,:"'{}\[\]<>`|｜]*""")
_NEXT_MARK = {
    "": re.compile(r"""["'{}\[\]<>`|｜]"""),
    '"': re.compile(r'["\\\x00-\x1f]'),
    "'": re.compile(r"['\\\x00-\x1f]"),
}
"""Finds the next significant character, by the open quotation mark."""
_SHORT_STRING = re.compile(r"""(?:"([^"\\]*(?:\\.[^"\\]*)*)"|'([^'\\]*(?:\\.[^'\\]*)*)')""", re.DOTALL)
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_HEX = "[0-9a-fA-F]"
_SURROGATES = re.compile(rf"[dD](?:[89abAB]{_HEX}{{2}}(\\u[dD][c-fC-F]{_HEX}{{2}})?|[c-fC-F]{_HEX}{{2}})")
_PARTIAL_SURROGATES = re.compile(
    rf"[dD](?:[89abAB](?:{_HEX}(?:{_HEX}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)?)?|[c-fC-F]{_HEX}?)?\Z"
)
_STRING_MARK = re.compile(r'["\\]')
_ESCAPE = re.compile(rf"\\u(?:{_SURROGATES.pattern}|({_HEX}{{4}}))|\\(.)", re.DOTALL)
_PARTIAL_ESCAPE = re.compile(rf"\\(?:u(?:{_PARTIAL_SURROGATES.pattern}|{_HEX}{{0,3}}\Z)|\Z)")


def encode_string(text: str) -> str:
    """Encode as a JSON string."""
    return msgspec.json.encode(text).decode()


def escape_text(text: str) -> str:
    """Encode as a part of a JSON string."""
    return text if text.isprintable() and '"' not in text and "\\" not in text else encode_basestring(text)[1:-1]


def escaping(emit: Emit) -> Emit:
    """Return an `emit` that escapes text as a part of a JSON string."""
    return lambda text: emit(escape_text(text))


def json_value(reader: Reader, emit: Emit) -> Parse[None]:
    """Emit the text of a JSON value. It ends where its brackets do.

    Two errors of models are repaired: control characters inside strings are escaped, and lone surrogate escapes are replaced.
    The value is not validated otherwise, except that the characters which begin end markers are malformed outside of strings.
    """
    first = yield from reader.peek()
    if not first:
        raise TruncatedCallError
    if first not in "\"'{[":
        scalar = yield from reader.read_match(_SCALAR, _SCALAR_LIMIT)
        if not scalar:
            raise NotACallError
        emit(scalar)
    else:
        yield from run_lexer(_ValueLexer(reader), reader, emit)


class _ValueLexer:
    r"""Tracks quotation marks, escapes and brackets. `_escape`: the open escape, `\` or `\u`, or ""."""

    __slots__ = ("_depth", "_escape", "_quote", "_reader", "out")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._depth = 0
        self._quote = ""
        self._escape = ""
        self.out: list[str] = []

    def advance(self) -> bool:
        reader, text = self._reader, self._reader.text
        start = at = reader.at
        done = False
        while at < len(text) and not done:
            if self._escape == "\\":
                self._escape = "\\u" if text[at] == "u" else ""
                at += 1
            elif self._escape:
                if not reader.closed and _PARTIAL_SURROGATES.match(text, at):
                    break
                self._escape = ""
                surrogates = _SURROGATES.match(text, at)
                if surrogates is not None:
                    if surrogates.group(1) is None:
                        self.out += text[start:at], "fffd"
                        start = surrogates.end()
                    at = surrogates.end()
            else:
                found = _NEXT_MARK[self._quote].search(text, at)
                if found is None:
                    at = len(text)
                    break
                at, mark = found.end(), found.group()
                if mark < " ":
                    self.out += text[start : at - 1], _ESCAPES.get(mark) or f"\\u{ord(mark):04x}"
                    start = at
                elif mark in "<>`|｜":
                    reader.at = at - 1
                    self.out.append(text[start : at - 1])
                    raise MalformedCallError("invalid_json")
                else:
                    done = self._follow(mark)
        reader.at = at
        self.out.append(text[start:at])
        return done

    def _follow(self, mark: str) -> bool:
        """Update the state; return whether the value ends with that mark."""
        if mark == "\\":
            self._escape = mark
            return False
        if self._quote or mark in "\"'":
            self._quote = "" if self._quote else mark
            return not self._quote and not self._depth
        self._depth += 1 if mark in "{[" else -1
        return not self._depth


def json_string(reader: Reader, emit: Emit) -> Parse[None]:
    """Emit the content of a JSON string, decoded."""
    yield from reader.expect('"')
    while True:
        piece, reader.at, done = _decode(reader.text, reader.at, closed=reader.closed)
        if piece:
            emit(piece)
        if done:
            return
        reader.require_more()
        yield


def _decode(text: str, at: int, *, closed: bool) -> tuple[str, int, bool]:
    """Decode the inside of a string; return the text, where decoding stopped, and whether the string ends there."""
    pieces: list[str] = []
    while (found := _STRING_MARK.search(text, at)) is not None:
        pieces.append(text[at : found.start()])
        at = found.start()
        if found.group() == '"':
            return "".join(pieces), at + 1, True
        escape = _ESCAPE.match(text, at)
        if escape is None or (not closed and _PARTIAL_ESCAPE.match(text, at)):
            return "".join(pieces), at, False
        pieces.append(_decode_escape(escape))
        at = escape.end()
    pieces.append(text[at:])
    return "".join(pieces), len(text), False


def short_string(reader: Reader, limit: int = NAME_LIMIT) -> Parse[str]:
    """Decode a short string, such as a key, when it is complete. Single quotes are accepted."""
    while True:
        if reader.at < len(reader.text) and reader.text[reader.at] not in "\"'":
            raise NotACallError
        found = _SHORT_STRING.match(reader.text, reader.at, reader.at + limit + 2)
        if found is not None:
            reader.at = found.end()
            return decode_escapes(found.group(1) or found.group(2) or "")
        if len(reader.text) - reader.at >= limit + 2:
            raise NotACallError
        reader.require_more()
        yield


def decode_escapes(text: str) -> str:
    """Decode the inside of a JSON string."""
    return _ESCAPE.sub(_decode_escape, text)


def _decode_escape(escape: re.Match[str]) -> str:
    second, code, letter = escape.groups()
    if letter:
        return _CHARACTERS.get(letter, letter)
    if code:
        return chr(int(code, 16))
    if not second:
        return "\ufffd"
    return chr(0x10000 + ((int(escape.group()[2:6], 16) - 0xD800) << 10) + int(second[2:6], 16) - 0xDC00)
