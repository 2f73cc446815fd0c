"""Streaming parser of JSON as models write it: the text of a value, or the content of a string."""

from __future__ import annotations

import re

from toolrelay.parsing.errors import MalformedCallError, NotACallError, TruncatedCallError
from toolrelay.parsing.json_lexer import JsonLexer
from toolrelay.parsing.json_strings import (
    ESCAPE,
    PARTIAL_ESCAPE,
    decode_escape,
    decode_escapes,
    encode_string,
    escape_text,
    escaping,
)
from toolrelay.parsing.stream_reader import NAME_LIMIT, Emit, Parse, Reader, run_lexer

__all__ = [
    "EncodedValue",
    "decode_escapes",
    "encode_string",
    "escape_text",
    "escaping",
    "json_arguments",
    "json_string",
    "json_value",
    "short_string",
]

_SCALAR_LIMIT = 256
_SCALAR = re.compile(r"""[^\s,:"'{}\[\]<>`|｜]*""")
_SHORT_STRING = re.compile(r"""(?:"([^"\\]*(?:\\.[^"\\]*)*)"|'([^'\\]*(?:\\.[^'\\]*)*)')""", re.DOTALL)
_STRING_MARK = re.compile(r'["\\]')
_OPENED_OBJECTS = ('"{"', '"{ "', '"{\n')


def json_value(reader: Reader, emit: Emit) -> Parse[None]:
    """Emit a JSON value. It ends where its brackets do. Valid JSON is emitted as it is; errors of models are repaired.

    See json_lexer. What cannot be repaired unambiguously is malformed.
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
        yield from run_lexer(JsonLexer(reader, emit), reader)


def json_arguments(reader: Reader, emit: Emit) -> Parse[None]:
    """Emit arguments: an object, or a string that holds one."""
    opened = yield from reader.accept(*_OPENED_OBJECTS)
    if opened:  # its quotes are not escaped
        reader.unread(opened[1:])
        reader.repaired = True
        yield from json_value(reader, emit)
        yield from reader.expect('"')
        return
    first = yield from reader.peek()
    if first == '"':
        encoded = EncodedValue(emit)
        yield from json_string(reader, encoded.feed)
        reader.repaired = encoded.close() or reader.repaired
    elif first in ("{", ""):
        yield from json_value(reader, emit)
    else:
        raise MalformedCallError("invalid_json")


class EncodedValue:
    """Emits an object that arrives as the content of a string, repaired as by `json_value`. Anything else is malformed.

    The error is raised at the end of the string: where else would depend on the chunks.
    """

    def __init__(self, emit: Emit) -> None:
        self._error: MalformedCallError | None = None
        self._reader = Reader()
        self._lexer = JsonLexer(self._reader, emit)
        self._has_begun = False
        self._has_ended = False

    def feed(self, text: str) -> None:
        if self._error is None:
            try:
                self._take(text)
            except MalformedCallError as error:
                self._error = error

    def _take(self, text: str) -> None:
        if not self._has_begun:
            text = text.lstrip(" \t\r\n")
            if not text:
                return
            if text[0] != "{":
                raise MalformedCallError("invalid_json")
            self._has_begun = True
        self._reader.feed(text)
        self._advance()

    def close(self) -> bool:
        """End the string; return whether its content was repaired."""
        if self._error is not None:
            raise self._error
        self._reader.closed = True
        if self._has_begun:
            self._advance()
        return self._reader.repaired

    def _advance(self) -> None:
        reader, lexer = self._reader, self._lexer
        self._has_ended = self._has_ended or lexer.advance() or (reader.closed and lexer.close_brackets())
        if reader.closed and not self._has_ended:
            raise MalformedCallError("invalid_json")
        if self._has_ended and reader.text[reader.at :].strip():
            raise MalformedCallError("invalid_json")


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
        escape = ESCAPE.match(text, at)
        if escape is None or (not closed and PARTIAL_ESCAPE.match(text, at)):
            return "".join(pieces), at, False
        pieces.append(decode_escape(escape))
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
