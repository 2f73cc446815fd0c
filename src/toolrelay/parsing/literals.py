"""Streaming translation of literals that are not JSON, such as Python's, to JSON. No recursion; nothing is evaluated.

literal                      JSON
--------------------------   ----------------------------------------------------------
string, in any quotes        string; adjacent strings are joined
bare word                    encoded by the syntax; as a key of a dict: a string
tuple                        list
trailing comma               dropped
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from toolrelay.parsing.errors import MalformedCallError
from toolrelay.parsing.json import encode_string, escape_text
from toolrelay.parsing.markers import is_complete, markers_of
from toolrelay.parsing.stream_reader import Emit, Parse, Reader, match_end, run_lexer

_WORD_LIMIT = 256
_DEPTH_LIMIT = 256
_BLANKS = frozenset(" \t\r\n")
_BRACKETS = {"[": ("[", "]"), "(": ("[", ")"), "{": ("{", "}")}

DecodeEscape: TypeAlias = Callable[[str, int], tuple[str, int] | None]
"""Decode the escape at a place; return its text and where it ends, None if it is incomplete."""


class LiteralSyntax:
    """The syntax of literals.

    quotes         enclose strings
    word, key      match an unquoted value, and an unquoted key of a dict
    encode_word    returns the JSON of an unquoted value
    decode_escape  decodes escapes, which begin with a backslash; None: strings have none
    brackets       open lists, dicts and the like
    """

    def __init__(
        self,
        *,
        quotes: tuple[str, ...],
        word: re.Pattern[str],
        key: re.Pattern[str],
        encode_word: Callable[[str], str],
        decode_escape: DecodeEscape | None = None,
        brackets: str = "[{(",
    ) -> None:
        self.word = word
        self.key = key
        self.encode_word = encode_word
        self.decode_escape = decode_escape
        self.brackets = frozenset(brackets)
        self.punctuation = frozenset({",", ":", *(_BRACKETS[bracket][1] for bracket in brackets)})
        self.quote_markers = markers_of(quotes)
        self.quote_characters = frozenset(quote[0] for quote in quotes)
        self.string_markers = {quote: markers_of((quote, "\\") if decode_escape else (quote,)) for quote in quotes}

    def read(self, reader: Reader, emit: Emit) -> Parse[None]:
        """Parse a literal and emit its JSON."""
        yield from run_lexer(_LiteralLexer(self, reader), reader, emit)


_Expected: TypeAlias = Literal["value", "key", "colon", "comma"]
"""The token expected next, unless it closes the bracket."""
_TRANSITIONS: dict[tuple[str, _Expected, str], tuple[str, _Expected]] = {
    ("}", "colon", ":"): (": ", "value"),
    ("}", "comma", ","): ("", "key"),
    ("}", "comma", "}"): ("}", "comma"),
    ("}", "key", "}"): ("}", "comma"),
    ("]", "comma", ","): ("", "value"),
    ("]", "comma", "]"): ("]", "comma"),
    ("]", "value", "]"): ("]", "comma"),
    (")", "comma", ","): ("", "value"),
    (")", "comma", ")"): ("]", "comma"),
    (")", "value", ")"): ("]", "comma"),
}
"""(closer of the open bracket, expected token, punctuation mark) → (JSON, next expected token)."""


class _LiteralLexer:
    """State of a literal.

    _closers       closing brackets still to come
    _quote         the quotation mark of the open string
    _comma         a comma to be emitted before the next item
    _string_ended  the string is complete unless an adjacent one follows
    """

    __slots__ = ("_closers", "_comma", "_expected", "_quote", "_reader", "_string_ended", "_syntax", "out")

    def __init__(self, syntax: LiteralSyntax, reader: Reader) -> None:
        self._syntax = syntax
        self._reader = reader
        self._expected: _Expected = "value"
        self._closers: list[str] = []
        self._quote = ""
        self._comma = False
        self._string_ended = False
        self.out: list[str] = []

    def advance(self) -> bool:
        while self._closers or self._quote or self._string_ended or self._expected != "comma":
            if not (self._string() if self._quote else self._token()):
                return False
        return True

    def _token(self) -> bool:
        """Consume a token; return False if it is incomplete."""
        reader, syntax = self._reader, self._syntax
        text = reader.text
        at = reader.at
        first = text[at : at + 1]
        while first in _BLANKS:
            at = reader.at = at + 1
            first = text[at : at + 1]
        if not first and not reader.closed:
            return False
        if first in syntax.quote_characters:
            found = syntax.quote_markers.pattern(closed=reader.closed).match(text, at)
            if found is not None:
                return self._open_string(found)
        if self._string_ended:
            self.out.append('"')
            self._string_ended = False
        if first in syntax.brackets:
            self._open_bracket(first)
        elif self._closers and first in syntax.punctuation:
            self._punctuation(first)
        elif first and (self._closers or self._expected == "value"):
            return self._word()
        else:
            return not self._closers and self._expected == "comma"
        reader.at = at + 1
        return True

    def _begin(self) -> None:
        """Begin a key or value."""
        if self._expected == "key":
            self._expected = "colon"
        elif self._expected == "value":
            self._expected = "comma"
        else:
            raise MalformedCallError("malformed")
        if self._comma:
            self.out.append(", ")
            self._comma = False

    def _open_bracket(self, bracket: str) -> None:
        self._begin()
        if len(self._closers) == _DEPTH_LIMIT:
            raise MalformedCallError("nested_too_deeply")
        opening, closing = _BRACKETS[bracket]
        self.out.append(opening)
        self._closers.append(closing)
        self._expected = "key" if bracket == "{" else "value"

    def _punctuation(self, mark: str) -> None:
        closer = self._closers[-1]
        found = _TRANSITIONS.get((closer, self._expected, mark))
        if found is None:
            raise MalformedCallError("malformed")
        output, self._expected = found
        self._comma = mark == ","
        if output:
            self.out.append(output)
        if mark == closer:
            self._closers.pop()

    def _word(self) -> bool:
        reader, syntax = self._reader, self._syntax
        in_key = self._expected == "key"
        end = match_end(syntax.key if in_key else syntax.word, reader.text, reader.at)
        if not 0 < end - reader.at <= _WORD_LIMIT:
            raise MalformedCallError("malformed")
        if end == len(reader.text) and not reader.closed:
            return False
        word = reader.text[reader.at : end]
        self._begin()
        self.out.append(encode_string(word.strip()) if in_key else syntax.encode_word(word))
        reader.at = end
        return True

    def _open_string(self, found: re.Match[str]) -> bool:
        if not is_complete(found):
            return False
        if self._string_ended:
            self._string_ended = False
        else:
            self._begin()
            self.out.append('"')
        self._quote = found.group()
        self._reader.at = found.end()
        return self._string()

    def _string(self) -> bool:
        """Consume a string up to an escape or its end; return False if more text is needed."""
        reader, syntax = self._reader, self._syntax
        text = reader.text
        found = syntax.string_markers[self._quote].pattern(closed=reader.closed).search(text, reader.at)
        end = len(text) if found is None else found.start()
        if end > reader.at:
            self.out.append(escape_text(text[reader.at : end]))
            reader.at = end
        if found is None or not is_complete(found):
            return False
        if syntax.decode_escape is None or found.group() == self._quote:
            self._quote, self._string_ended = "", True
            reader.at = found.end()
            return True
        escape = syntax.decode_escape(text, end)
        if escape is None:
            return False
        self.out.append(escape_text(escape[0]))
        reader.at = escape[1]
        return True
