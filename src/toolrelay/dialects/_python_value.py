"""A Python literal into JSON, as it comes: without recursion, and without ever evaluating anything.

what                         becomes
--------------------------   ----------------------------------------------------------
a string, in any quotes      a JSON string; strings that stand side by side are one
True, None, 1_000, 0x1f      true, null, 1000, 31; as a key of a dict: a string
a tuple                      a list
a comma before a bracket     nothing
"""

from __future__ import annotations

import re
from math import isfinite

from toolrelay.dialects._faults import BrokenError, CutError, ReadingError
from toolrelay.dialects._reader import Reader, Reading, read_whole
from toolrelay.dialects._schema import escaped, quoted
from toolrelay.dialects._steps import Taker, marks_pattern

_BLANK = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[\w.+\-]*")
_WORD_LIMIT = 256
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_BRACKETS = {"[": ("[", "]"), "(": ("[", ")"), "{": ("{", "}")}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+\-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?0[xXoObB][0-9a-fA-F]{1,32}")
_FLOAT = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+\-]?\d+)?", re.ASCII)
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_CODES = {kind: re.compile(rf"\\{kind}([0-9a-fA-F]{{{width}}})") for kind, width in (("x", 2), ("u", 4), ("U", 8))}
_LENGTHS = {"x": 4, "u": 6, "U": 10}
_STRING_ENDS = {quote: re.compile(marks_pattern(("\\", quote))) for quote in ("'", '"', "'''", '"""')}
_SECOND_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def python_value(reader: Reader, take: Taker) -> Reading[None]:
    """A literal that comes next; its JSON is handed over as it comes."""
    value = _Value(reader, take)
    if not value.step():
        yield value.step


def python_json(text: str) -> str | None:
    """The JSON of a text that is a Python literal; None if it is none."""
    pieces: list[str] = []
    try:
        rest = read_whole(text.strip(), lambda reader: python_value(reader, pieces.append))
    except ReadingError:
        return None
    return None if rest else "".join(pieces)


class _Value:
    """`stack` holds the brackets that are open. `filled`: a value stands there, and a separator or a bracket must follow.

    `key`: what comes is a key of a dict. `ended`: a string has ended, unless another one follows. `comma`: one was read, and is
    given out with what follows.
    """

    __slots__ = ("_comma", "_ended", "_filled", "_key", "_out", "_quote", "_reader", "_stack", "_take")

    def __init__(self, reader: Reader, take: Taker) -> None:
        self._reader = reader
        self._take = take
        self._stack: list[str] = []
        self._out: list[str] = []
        self._quote = ""
        self._comma = self._ended = self._filled = self._key = False

    def step(self) -> bool:
        reader = self._reader
        try:
            while True:
                there_is_more = self._in_string() if self._quote else self._token()
                if not self._quote and not self._ended and self._filled and not self._stack:
                    return True
                if not there_is_more:
                    if reader.closed:
                        raise CutError
                    return False
        finally:
            if self._out:
                self._take("".join(self._out))
                self._out.clear()

    def _token(self) -> bool:
        """Reads one token; False if more must come first."""
        reader = self._reader
        text = reader.text
        blank = _BLANK.match(text, reader.at)
        at = reader.at = blank.end() if blank else reader.at
        if at == len(text):
            self._end_string(at_end=reader.closed)
            return False
        first = text[at]
        if first in "\"'":
            return self._open_string(first)
        self._end_string(at_end=True)
        if first in _BRACKETS:
            self._begin()
            opening, closing = _BRACKETS[first]
            self._out.append(opening)
            self._stack.append(closing)
            self._filled, self._key = False, first == "{"
        elif self._filled and not self._stack:
            return True
        elif not self._stack or first not in ",:])}":
            return self._word()
        else:
            self._punctuate(first)
        reader.at = at + 1
        return True

    def _begin(self) -> None:
        """A value begins here."""
        if self._filled:
            raise BrokenError("malformed")
        if self._comma:
            self._out.append(", ")
            self._comma = False

    def _punctuate(self, mark: str) -> None:
        in_dict = self._stack[-1] == "}"
        if mark == ",":
            fits = self._filled and not self._key
        elif mark == ":":
            fits = self._filled and self._key
        else:
            fits = mark == self._stack[-1] and (not in_dict or self._filled != self._key)
        if not fits:
            raise BrokenError("malformed")
        if mark == ",":
            self._comma, self._filled, self._key = True, False, in_dict
        elif mark == ":":
            self._out.append(": ")
            self._filled = self._key = False
        else:
            self._out.append("}" if in_dict else "]")
            self._stack.pop()
            self._comma, self._filled, self._key = False, True, False

    def _word(self) -> bool:
        reader = self._reader
        found = _WORD.match(reader.text, reader.at)
        end = found.end() if found else reader.at
        if end == reader.at or end - reader.at > _WORD_LIMIT:
            raise BrokenError("malformed")
        if end == len(reader.text) and not reader.closed:
            return False
        self._begin()
        word = reader.text[reader.at : end]
        self._out.append(quoted(word) if self._key else _WORDS.get(word) or _number(word))
        self._filled = True
        reader.at = end
        return True

    # Strings

    def _open_string(self, mark: str) -> bool:
        reader = self._reader
        text, at = reader.text, reader.at
        if text[at : at + 2] == mark * 2 and text[at + 2 : at + 3] != mark:
            if at + 2 == len(text) and not reader.closed:
                return False
            length, quote = 2, ""  # the empty string
        elif text[at : at + 3] == mark * 3:
            length, quote = 3, mark * 3
        elif at + 1 == len(text) and not reader.closed:
            return False
        else:
            length, quote = 1, mark
        if not self._ended:
            self._begin()
            self._out.append('"')
        self._quote, self._ended, self._filled = quote, not quote, True
        reader.at = at + length
        return True

    def _end_string(self, *, at_end: bool) -> None:
        if self._ended and at_end:
            self._out.append('"')
            self._ended = False

    def _in_string(self) -> bool:
        reader = self._reader
        found = _STRING_ENDS[self._quote].search(reader.text, reader.at)
        end = len(reader.text) if found is None else found.start()
        if end > reader.at:
            self._out.append(escaped(reader.text[reader.at : end]))
            reader.at = end
        if found is None:
            return False
        if found.lastindex is not None:  # a part of the end, or what it would be made of
            if reader.closed:
                self._out.append(escaped(found.group()))
                reader.at = found.end()
            return False
        if found.group() == "\\":
            escape = _escape(reader.text, end, closed=reader.closed)
            if escape is None:
                return False
            self._out.append(escaped(escape[0]))
            reader.at = escape[1]
        else:
            reader.at = found.end()
            self._quote, self._ended = "", True
        return True


def _escape(text: str, at: int, *, closed: bool) -> tuple[str, int] | None:
    """What the escape at that place means, and where it ends. None: more must come to tell."""
    if at + 2 > len(text):
        return None
    kind = text[at + 1]
    if kind not in _CODES:
        return _SIMPLE.get(kind, kind if kind in "\\'\"" else f"\\{kind}"), at + 2
    found = _CODES[kind].match(text, at)
    if found is None:
        if at + _LENGTHS[kind] > len(text) and not closed:
            return None
        raise BrokenError("invalid_escape")
    code, end = int(found.group(1), 16), found.end()
    if 0xD800 <= code < 0xDC00:  # a pair, which is JSON's way
        second = _SECOND_HALF.match(text, end)
        if second is not None:
            return chr(0x10000 + ((code - 0xD800) << 10) + (int(second.group(1), 16) - 0xDC00)), second.end()
        if end + 6 > len(text) and not closed and "\\u".startswith(text[end : end + 2]):
            return None
    return "\ufffd" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code), end


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
