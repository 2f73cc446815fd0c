r"""Streaming lexer of JSON as models write it. Its output is valid JSON as far as it goes; valid JSON is not changed.

    a model writes                                      output
    -------------------------------------------------   ------------------------------------------------------------
    a comma before a closing bracket                    dropped: a comma is held until the next token
    True, False, None                                   true, false, null: a word is held until it is complete
    a key without quotes, `'strings'`                   with double quotes
    no comma before a key, or next to a bracket         the comma
    a control character or a lone surrogate             escaped; replaced
    `\d`, in a string without other escapes             `\\d`: a backslash is held until the next character
    quotes inside a string                              escaped, if they are in pairs (`quotes`)
    no closing brackets before the end of the call      the brackets, unless an inner object has several members:
                                                        then the last ones may belong to the outer object

Anything else is malformed, at the place where it stands.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from toolrelay.parsing.errors import MalformedCallError
from toolrelay.parsing.json_strings import PARTIAL_SURROGATES, SURROGATES, escape_text
from toolrelay.parsing.markers import is_complete, markers_of
from toolrelay.parsing.quotes import OPENERS, QuoteRole, find_role, may_be_inner
from toolrelay.parsing.stream_reader import Emit, Reader, match_end

_WORD_LIMIT = 4096
_FENCE = "```"
_BLANKS = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"""[^\s,:"'{}\[\]<>`|｜]*""")
_KEY = re.compile(r"[^\W\d][\w$.\-]*|\$[\w$.\-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?", re.ASCII)
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_STRING_MARK = re.compile(r'["\\\x00-\x1f]')
_CODE = re.compile(r"[0-9a-fA-F]{4}")
_PARTIAL_CODE = re.compile(r"[0-9a-fA-F]{0,3}\Z")
_CONTROLS = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_BLANK_ESCAPES = frozenset("nrt")
_CLOSERS = {"{": "}", "[": "]"}
_QUOTES = frozenset("\"'")
_KEYS = frozenset({"key", "member"})

_Expected: TypeAlias = Literal["value", "item", "key", "member", "colon", "comma"]
"""The token expected next: "item" and "member" are the first value or key in a bracket, which may also be closed."""


class JsonLexer:
    """State of a value.

    _closers       closing brackets still to come
    _ambiguous     an inner object has several members; _outer: the same before each open bracket, _before: before the last
    _held          a comma, and the blanks after it
    _after_bracket the last value ended with a bracket
    _quote         the quotation mark of the open string; _is_key: it is a key
    _is_plain      the string is passed on as it is; else its text is escaped
    _in_quotation  inside quotes inside the string; _quotations: their number so far; _starts_quoted: it began with one
    _previous      the last character of the string so far
    _escapes       kind of the escapes in the string: valid, literal backslashes, or unknown so far
    """

    __slots__ = (
        "_after_bracket",
        "_ambiguous",
        "_before",
        "_closers",
        "_escapes",
        "_expected",
        "_held",
        "_in_quotation",
        "_is_key",
        "_is_plain",
        "_outer",
        "_previous",
        "_put",
        "_quotations",
        "_quote",
        "_reader",
        "_starts_quoted",
    )

    def __init__(self, reader: Reader, emit: Emit) -> None:
        self._reader = reader
        self._put = emit
        self._expected: _Expected = "value"
        self._closers: list[str] = []
        self._outer: list[bool] = []
        self._ambiguous = False
        self._before: bool | None = None
        self._held = ""
        self._after_bracket = False
        self._quote = self._escapes = ""
        self._in_quotation = self._starts_quoted = False
        self._quotations = 0

    def advance(self) -> bool:
        reader = self._reader
        size = len(reader.text)
        while self._closers or self._quote or self._expected != "comma":
            if reader.at >= size:
                return False
            if not (self._string() if self._quote else self._token()):
                return False
        return True

    def close_brackets(self) -> bool:
        """Close all brackets at the end of the call; return whether that is unambiguous."""
        if self._ambiguous or self._quote or not (self._expected == "comma" or self._held):
            return False
        self._drop_comma()
        self._expected = "comma"
        self._reader.repaired = True
        while self._closers:
            self._put(self._closers.pop())
        return True

    # Tokens

    def _token(self) -> bool:
        """Consume a token, and the blanks before it; return False if it is incomplete."""
        reader = self._reader
        text, at = reader.text, reader.at
        first = text[at]
        if first in " \t\r\n":
            end = match_end(_BLANKS, text, at)
            if self._held:
                self._held += text[at:end]
            else:
                self._put(text[at:end])
            reader.at = at = end
            if at == len(text):
                return False
            first = text[at]
        if first in _QUOTES:
            self._open_string(first)
        elif first == ":" and self._expected == "colon":
            self._expected = "value"
            self._before = None
            self._put(":")
        elif first == ",":
            self._comma()
        elif first in "{[":
            self._open_bracket(first)
        elif first in "}]":
            return self._close_bracket(first)
        else:
            return self._word()
        reader.at = at + 1
        return True

    def _begin(self, *, bracket: bool = False) -> bool:
        """Begin a key or value; return whether it is a key. A comma may be missing before it."""
        if self._expected == "comma":
            in_object = self._closers[-1:] == ["}"]
            if not (not bracket if in_object else bracket or self._after_bracket):
                raise MalformedCallError("invalid_json")
            self._comma()
            self._held = ", "
            self._reader.repaired = True
        expected = self._expected
        is_key = expected in _KEYS
        if expected == "colon" or (is_key and bracket):
            raise MalformedCallError("invalid_json")
        if self._held:
            self._put(self._held)
            self._held = ""
        self._expected = "colon" if is_key else "comma"
        self._after_bracket = False
        return is_key

    def _comma(self) -> None:
        if self._expected != "comma":
            raise MalformedCallError("invalid_json")
        if self._before is not None:
            self._ambiguous = self._before
            self._before = None
        in_object = self._closers[-1] == "}"
        self._ambiguous = self._ambiguous or (len(self._closers) > 1 and in_object)
        self._held = ","
        self._expected = "key" if in_object else "value"

    def _drop_comma(self) -> None:
        if self._held:
            self._put(self._held[1:])
            self._held = ""
            self._reader.repaired = True

    def _open_bracket(self, bracket: str) -> None:
        self._begin(bracket=True)
        self._before = None
        self._outer.append(self._ambiguous)
        self._closers.append(_CLOSERS[bracket])
        self._expected = "member" if bracket == "{" else "item"
        self._put(bracket)

    def _close_bracket(self, bracket: str) -> bool:
        """Close the bracket, and those inside it that are still open."""
        if not (self._held or self._expected in ("comma", "member", "item")):
            raise MalformedCallError("invalid_json")
        if bracket not in self._closers:  # it closes something around this value
            return self._end_here()
        self._drop_comma()
        closer = ""
        self._reader.repaired = self._reader.repaired or bracket != self._closers[-1]
        while closer != bracket:
            closer = self._closers.pop()
            self._before = self._outer.pop()
            if closer == "]":
                self._ambiguous = self._before
            self._put(closer)
        self._expected = "comma"
        self._after_bracket = True
        self._reader.at += 1
        return True

    def _end_here(self) -> bool:
        if self._expected in ("member", "item"):
            self._expected = "comma"
        if not self.close_brackets():
            raise MalformedCallError("invalid_json")
        return True

    def _word(self) -> bool:
        reader = self._reader
        text, at = reader.text, reader.at
        in_key = self._expected in _KEYS or (self._expected == "comma" and self._closers[-1:] == ["}"])
        end = match_end(_KEY if in_key else _WORD, text, at)
        if end == at:
            return self._foreign()
        if end - at > _WORD_LIMIT:
            raise MalformedCallError("invalid_json")
        if end == len(text) and not reader.closed:
            return False
        word = text[at:end]
        output = f'"{word}"' if in_key else word if _NUMBER.fullmatch(word) else _WORDS.get(word)
        if output is None:
            raise MalformedCallError("invalid_json")
        self._begin()
        reader.repaired = reader.repaired or output != word
        self._put(output)
        reader.at = end
        return True

    def _foreign(self) -> bool:
        """Handle a character that is not JSON: the call may end here without its closing brackets."""
        reader = self._reader
        found = markers_of((*reader.ends, _FENCE)).pattern(closed=reader.closed).match(reader.text, reader.at)
        if found is None:
            raise MalformedCallError("invalid_json")
        return is_complete(found) and self._end_here()

    # Strings

    def _open_string(self, quote: str) -> None:
        expected = self._expected
        if expected == "member" or (expected == "value" and not self._held):
            self._is_key = expected == "member"
            self._expected = "colon" if self._is_key else "comma"
            self._after_bracket = False
        else:
            self._is_key = self._begin()
        self._quote = quote
        self._is_plain = quote == '"'
        self._reader.repaired = self._reader.repaired or not self._is_plain
        self._previous = ""
        self._put('"')

    def _string(self) -> bool:
        """Consume a string up to a mark or its end; return False if more text is needed."""
        reader = self._reader
        text, at = reader.text, reader.at
        if self._is_plain:
            found = _STRING_MARK.search(text, at)
        else:
            ends = reader.ends if self._quotations else ()
            found = markers_of((self._quote, "\\", *ends)).pattern(closed=reader.closed).search(text, at)
        end = len(text) if found is None else found.start()
        if self._is_plain and at < end < len(text) and text[end] == '"' and text[end - 1] not in OPENERS:
            self._put(text[at : end + 1])
            reader.at = end + 1
            self._quote = self._escapes = ""
            return True
        if end > at:
            self._put(text[at:end] if self._is_plain else escape_text(text[at:end]))
            self._previous = text[end - 1]
            reader.at = end
        if found is None:
            return False
        mark = found.group()
        if mark == self._quote:
            return self._quotation_mark()
        if mark == "\\":
            return self._escape(text, end)
        if self._is_plain:
            self._put(_CONTROLS.get(mark) or f"\\u{ord(mark):04x}")
            self._previous = mark
            reader.at = end + 1
            return True
        if is_complete(found):
            raise MalformedCallError("invalid_json")  # quotes that are not in pairs
        return False

    def _quotation_mark(self) -> bool:
        reader = self._reader
        role = QuoteRole.END
        if not self._is_key and (self._in_quotation or may_be_inner(reader.text, reader.at, self._previous)):
            role = find_role(
                reader.text,
                reader.at,
                self._previous,
                in_quotation=self._in_quotation,
                depth=max(1, len(self._closers)),
                ends=reader.ends,
                closed=reader.closed,
            )
        if role is QuoteRole.INCOMPLETE:
            return False
        if role is QuoteRole.AMBIGUOUS or (role is QuoteRole.END and self._starts_quoted and self._previous == self._quote):
            raise MalformedCallError("invalid_json")
        reader.at += 1
        if role is QuoteRole.END:
            self._quote = self._escapes = ""
            self._quotations = 0
            self._starts_quoted = False
            self._put('"')
            return True
        self._is_plain = False
        reader.repaired = True
        if role is QuoteRole.QUOTATION:
            self._starts_quoted = self._starts_quoted or not self._previous
            self._in_quotation = not self._in_quotation
            self._quotations += 1
        self._previous = self._quote
        self._put(escape_text(self._quote))
        return True

    def _escape(self, text: str, at: int) -> bool:
        """Consume an escape, or a backslash that should have been escaped; return False if it is incomplete."""
        reader = self._reader
        kind = text[at + 1 : at + 2]
        if not kind:
            return False
        end, output = at + 2, text[at : at + 2]
        if kind == "'":
            output = "'"
        elif kind == "u":
            if not reader.closed and (PARTIAL_SURROGATES.match(text, end) or _PARTIAL_CODE.match(text, end)):
                return False
            surrogates = SURROGATES.match(text, end)
            if surrogates is not None:
                end = surrogates.end()
                output = "\\ufffd" if surrogates.group(1) is None else text[at:end]
            elif _CODE.match(text, end):
                end += 4
                output = text[at:end]
            else:
                return self._literal_backslash()
        elif kind not in '"\\/bfnrt':
            return self._literal_backslash()
        if kind not in "\"'/":
            self._set_escapes("valid")
        self._put(output)
        self._previous = " " if kind in _BLANK_ESCAPES else kind
        reader.at = end
        return True

    def _literal_backslash(self) -> bool:
        self._set_escapes("literal")
        self._reader.repaired = True
        self._put("\\\\")
        self._previous = "\\"
        self._reader.at += 1
        return True

    def _set_escapes(self, kind: str) -> None:
        """A string with both kinds of escapes is ambiguous."""
        if self._escapes not in ("", kind):
            raise MalformedCallError("invalid_json")
        self._escapes = kind
