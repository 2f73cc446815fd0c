"""Streaming translation of literals that are not JSON, such as Python's, to JSON. No recursion; nothing is evaluated.

literal                      JSON
--------------------------   ----------------------------------------------------------
string, in any quotes        string; adjacent strings are joined
bare word                    encoded by the syntax; as a key of a dict: a string
tuple, set                   list; a brace is held until it is known which one it opens
quotes inside a string       escaped, if they are in pairs (`quotes`), in syntaxes with escapes
trailing comma               dropped
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from toolrelay.parsing.errors import MalformedCallError
from toolrelay.parsing.json import encode_string, escape_text
from toolrelay.parsing.markers import is_complete, markers_of
from toolrelay.parsing.quotes import QuoteRole, find_role, may_be_inner
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
        self.has_sets = "(" in brackets
        self.punctuation = frozenset({",", ":", *(_BRACKETS[bracket][1] for bracket in brackets)})
        self.quote_markers = markers_of(quotes)
        self.quote_characters = frozenset(quote[0] for quote in quotes)
        self.string_markers = {quote: markers_of((quote, "\\") if decode_escape else (quote,)) for quote in quotes}

    def read(self, reader: Reader, emit: Emit) -> Parse[None]:
        """Parse a literal and emit its JSON."""
        yield from run_lexer(_LiteralLexer(self, reader, emit), reader)


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
    ("set", "comma", ","): ("", "value"),
    ("set", "comma", "}"): ("]", "comma"),
    ("set", "value", "}"): ("]", "comma"),
}
"""(closer of the open bracket, expected token, punctuation mark) → (JSON, next expected token)."""


class _LiteralLexer:
    """State of a literal.

    _closers       closing brackets still to come
    _quote         the quotation mark of the open string
    _comma         a comma to be emitted before the next item
    _string_ended  the string is complete unless an adjacent one follows
    _held          what follows a brace that may open a set; _word_held: the same as a word
    _in_quotation, _quotations, _previous: as in json_lexer
    """

    __slots__ = (
        "_closers",
        "_comma",
        "_emit",
        "_expected",
        "_held",
        "_in_quotation",
        "_previous",
        "_put",
        "_quotations",
        "_quote",
        "_reader",
        "_string_ended",
        "_syntax",
        "_word_held",
    )

    def __init__(self, syntax: LiteralSyntax, reader: Reader, emit: Emit) -> None:
        self._syntax = syntax
        self._reader = reader
        self._expected: _Expected = "value"
        self._closers: list[str] = []
        self._quote = ""
        self._comma = False
        self._string_ended = False
        self._held: list[str] | None = None
        self._word_held: str | None = None
        self._in_quotation = False
        self._quotations = 0
        self._previous = ""
        self._emit = self._put = emit

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
            following = text[at + 1 : at + 2]
            if following and following != first and first in syntax.string_markers:  # no longer quote
                return self._open_string(first)
            found = syntax.quote_markers.pattern(closed=reader.closed).match(text, at)
            if found is not None:
                return is_complete(found) and self._open_string(found.group())
        if self._string_ended:
            self._put('"')
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
            self._put(", ")
            self._comma = False

    def _open_bracket(self, bracket: str) -> None:
        if self._expected == "key":
            raise MalformedCallError("malformed")
        self._begin()
        if len(self._closers) == _DEPTH_LIMIT:
            raise MalformedCallError("nested_too_deeply")
        opening, closing = _BRACKETS[bracket]
        if bracket == "{" and self._syntax.has_sets:
            self._held = []
            self._put = self._held.append
        else:
            self._put(opening)
        self._closers.append(closing)
        self._expected = "key" if bracket == "{" else "value"

    def _open_brace(self, mark: str) -> None:
        """Open a dict or a set, by the mark after its first item."""
        held, self._held = self._held or [], None
        is_set = self._expected == "colon" and mark != ":"
        if is_set:
            self._closers[-1] = "set"
            self._expected = "comma"
            if self._word_held is not None:
                held = [self._syntax.encode_word(self._word_held)]
        self._word_held = None
        self._put = self._emit
        self._put("".join(("[" if is_set else "{", *held)))

    def _punctuation(self, mark: str) -> None:
        if self._held is not None:
            if mark == ":" and self._expected == "colon":  # the common case
                self._emit("".join(("{", *self._held)))
                self._put, self._held, self._word_held = self._emit, None, None
            else:
                self._open_brace(mark)
        closer = self._closers[-1]
        found = _TRANSITIONS.get((closer, self._expected, mark))
        if found is None:
            raise MalformedCallError("malformed")
        output, self._expected = found
        self._comma = mark == ","
        if output:
            self._put(output)
        if mark == closer or (mark == "}" and closer == "set"):
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
        if self._held is not None:
            self._word_held = word
        self._put(encode_string(word.strip()) if in_key else syntax.encode_word(word))
        reader.at = end
        return True

    def _open_string(self, quote: str) -> bool:
        if self._string_ended:
            self._string_ended = False
        else:
            self._begin()
            self._put('"')
        self._quote = quote
        self._quotations = 0
        self._previous = ""
        self._reader.at += len(quote)
        return self._string()

    def _string(self) -> bool:
        """Consume a string up to an escape or its end; return False if more text is needed."""
        reader, syntax = self._reader, self._syntax
        text = reader.text
        markers = syntax.string_markers[self._quote]
        if self._quotations and reader.ends:
            markers = markers_of((self._quote, "\\", *reader.ends))
        at = reader.at
        found = (markers.complete if reader.closed else markers.partial).search(text, at)
        end = len(text) if found is None else found.start()
        if end > at:
            self._put(escape_text(text[at:end]))
            self._previous = text[end - 1]
            reader.at = end
        if found is None or found.lastindex is not None:
            return False  # no mark, or not all of it
        if syntax.decode_escape is None or found.group() == self._quote:
            return self._quotation_mark(found.end())
        if found.group() != "\\":
            raise MalformedCallError("malformed")  # the end of the call: quotes that are not in pairs
        escape = syntax.decode_escape(text, end)
        if escape is None:
            return False
        self._put(escape_text(escape[0]))
        self._previous = escape[0][-1:] or self._previous
        reader.at = escape[1]
        return True

    def _quotation_mark(self, end: int) -> bool:
        reader, role = self._reader, QuoteRole.END
        if (self._in_quotation or may_be_inner(reader.text, reader.at, self._previous)) and self._may_repair():
            role = find_role(
                reader.text,
                reader.at,
                self._previous,
                in_quotation=self._in_quotation,
                depth=max(1, len(self._closers)),
                ends=reader.ends,
                closed=reader.closed,
            )
        if role is QuoteRole.END:
            self._quote, self._string_ended = "", True
            reader.at = end
            return True
        if role is QuoteRole.INCOMPLETE:
            return False
        if role is QuoteRole.AMBIGUOUS:
            raise MalformedCallError("malformed")
        reader.at = end
        if role is QuoteRole.QUOTATION:
            self._in_quotation = not self._in_quotation
            self._quotations += 1
        self._previous = self._quote
        self._put(escape_text(self._quote))
        return True

    def _may_repair(self) -> bool:
        """Return whether quotes inside the string may be escaped."""
        return self._expected != "colon" and self._syntax.decode_escape is not None and len(self._quote) == 1
