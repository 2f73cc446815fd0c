"""JSON as models write it: a value's own text, or what a string means, handed over as it comes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from toolrelay.dialects._faults import BrokenError, NotACallError
from toolrelay.dialects._steps import Taker, handed_over

if TYPE_CHECKING:
    from toolrelay.dialects._reader import Reader

SCALAR_LIMIT = 256
_BOTTOMLESS = -(1 << 62)
_MARKS = {
    "": re.compile(r"""["'{}\[\]<>`|｜]"""),
    '"': re.compile(r'["\\\x00-\x1f]'),
    "'": re.compile(r"['\\\x00-\x1f]"),
}
_SCALAR = re.compile(r"""[^\s,:"'{}\[\]<>`|｜]*""")
_REPLACEMENT = "fffd"
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_MEANINGS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_HEX = "[0-9a-fA-F]"
_HALVES = re.compile(rf"[dD](?:[89abAB]{_HEX}{{2}}(\\u[dD][c-fC-F]{_HEX}{{2}})?|[c-fC-F]{_HEX}{{2}})")
_MAY_BE_HALVES = re.compile(
    rf"[dD](?:[89abAB](?:{_HEX}(?:{_HEX}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)?)?|[c-fC-F]{_HEX}?)?\Z"
)
_SHORT = 64
_MANY = 4096


def _kinds(**kinds: bytes) -> bytes:
    """What each byte means to the course of a value, if it means anything."""
    table = bytearray(b"\n" * 32 + b"." * 224)
    for kind, marks in {"{": b"{[", "}": b"}]", "<": _ALIEN, '"': b'"', "'": b"'", "\\": b"\\", **kinds}.items():
        for mark in marks:
            table[mark] = ord(kind)
    return bytes(table)


_ALIEN = b"<>`|" + "｜".encode()[:1]
_KINDS = _kinds()
_KINDS_IN_ESCAPES = _kinds(u=b"u", d=b"dD")


class _State:
    """Where a value has come to: the quotation mark that is open, and the beginning of an escape.

    `courses` are those that texts of some shapes took from there.
    """

    __slots__ = ("courses", "escape", "quote")

    def __init__(self, quote: str, escape: str = "") -> None:
        self.quote = quote
        self.escape = escape
        self.courses: dict[bytes, _Course] = {}

    def course(self, shape: bytes) -> _Course:
        if len(self.courses) >= _MANY:
            self.courses.clear()
        course = self.courses[shape] = self._found(shape.decode())
        return course

    def _found(self, shape: str) -> _Course:
        quote, escape = self.quote, self.escape
        depth = least = 0
        for mark in shape:
            if escape == "\\":
                escape = "\\u" if mark == "u" else ""
                continue
            if (escape and mark == "d") or mark == ("\n" if quote else "<"):
                return self, 0, _BOTTOMLESS
            escape = ""
            if quote:
                if mark == quote:
                    quote = ""
                elif mark == "\\":
                    escape = mark
            elif mark in "\"'":
                quote = mark
            elif mark == "{":
                depth += 1
            elif mark == "}":
                depth -= 1
                least = min(least, depth)
        return _STATES[quote + escape], depth, least


_Course: TypeAlias = tuple[_State, int, int]
"""The next state, how much deeper, and the least depth on the way: where the shape does not tell, one that no value has."""
_OUTSIDE, _IN_STRING, _IN_QUOTES = _State(""), _State('"'), _State("'")
_STATES = {
    state.quote + state.escape: state
    for state in (_OUTSIDE, _IN_STRING, _IN_QUOTES, *(_State(quote, escape) for quote in "\"'" for escape in ("\\", "\\u")))
}


class Value:
    """Follows quotation marks and brackets to a value's end. Hands over one piece for each chunk, or more where it must mend."""

    __slots__ = ("_depth", "_reader", "_state", "take")

    def __init__(self, reader: Reader, take: Taker) -> None:
        self._reader = reader
        self._depth = 0
        self._state = _OUTSIDE
        self.take = take

    def step(self, text: str) -> str | None:
        state = self._state
        if state is _IN_STRING and text and '"' not in text and "\\" not in text and text.isprintable():  # nearly every delta
            return text
        reader = self._reader
        if text and len(text) <= _SHORT and reader.at == len(reader.text):
            shape = text.encode().translate(_KINDS_IN_ESCAPES if state.escape or "\\" in text else _KINDS)
            following, deeper, least = state.courses.get(shape) or state.course(shape)
            if self._depth + least > 0:
                self._state = following
                self._depth += deeper
                return text
        reader.feed(text)
        return self._read()

    def _read(self) -> str | None:
        reader = self._reader
        text, start = reader.text, reader.at
        at, depth, quote, escape = start, self._depth, self._state.quote, self._state.escape
        if not depth and not quote and text[start] not in "\"'{[":
            return self._scalar()
        pieces: list[str] = []
        done = False
        while not done and (at < len(text) or reader.closed):
            if escape == "\\":
                escape = "\\u" if text[at : at + 1] == "u" else ""
                at += 1
            elif escape:
                if not reader.closed and _MAY_BE_HALVES.match(text, at):  # more must come to tell
                    break
                halves = _HALVES.match(text, at)
                if halves is not None:
                    if halves.group(1) is None:
                        pieces += text[start:at], _REPLACEMENT
                        start = halves.end()
                    at = halves.end()
                escape = ""
            else:
                found = _MARKS[quote].search(text, at)
                if found is None:
                    at = len(text)
                    break
                at, mark = found.end(), found.group()
                if mark == "\\":
                    escape = mark
                elif mark == quote:
                    quote = ""
                    done = not depth
                elif quote:
                    pieces += text[start : at - 1], _ESCAPES.get(mark) or f"\\u{ord(mark):04x}"
                    start = at
                elif mark in "\"'":
                    quote = mark
                elif mark in "{[":
                    depth += 1
                elif mark in "}]":
                    depth -= 1
                    done = not depth
                else:
                    reader.at = at - 1
                    self.take("".join(pieces) + text[start : at - 1])
                    raise BrokenError("invalid_json")
        self._depth, self._state = depth, _STATES[quote + escape]
        reader.at = at
        return handed_over("".join(pieces) + text[start:at], self, reader, done=done)

    def _scalar(self) -> str | None:
        reader = self._reader
        found = _SCALAR.match(reader.text, reader.at)
        end = found.end() if found else reader.at
        if end == reader.at or end - reader.at > SCALAR_LIMIT:
            raise NotACallError
        if end == len(reader.text) and not reader.closed:
            return ""
        scalar = reader.text[reader.at : end]
        reader.at = end
        self.take(scalar)
        return None


class String:
    """Reads what a string means, up to its second quotation mark. Hands over one piece for each chunk."""

    __slots__ = ("_reader", "take")

    def __init__(self, reader: Reader, take: Taker) -> None:
        self._reader = reader
        self.take = take

    def step(self, text: str) -> str | None:
        reader = self._reader
        if reader.at < len(reader.text):
            text = reader.text[reader.at :] + text
        elif text and '"' not in text and "\\" not in text:
            return text
        reading = _known_inside if len(text) <= _SHORT and not reader.closed else _inside
        piece, reader.at, done = reading(text, reader.closed)
        reader.text = text
        return piece if not done and not reader.closed else handed_over(piece, self, reader, done=done)


def _inside(text: str, closed: bool) -> tuple[str, int, bool]:  # noqa: FBT001 -- what is known is kept by place
    """What the inside of a string means, how much of it was read, and whether it has come to its end."""
    pieces: list[str] = []
    at = 0
    while (found := _STRING_END.search(text, at)) is not None:
        pieces.append(text[at : found.start()])
        at = found.start()
        if found.group() == '"':
            return "".join(pieces), at + 1, True
        escape = _ESCAPE.match(text, at)
        if escape is None or (not closed and _MAY_BE_ESCAPE.match(text, at)):
            return "".join(pieces), at, False
        pieces.append(_meant(escape))
        at = escape.end()
    pieces.append(text[at:])
    return "".join(pieces), len(text), False


_known_inside = lru_cache(maxsize=_MANY)(_inside)  # short texts of a string that holds JSON are often the same
_STRING_END = re.compile(r'["\\]')
_ESCAPE = re.compile(rf"\\u(?:{_HALVES.pattern}|({_HEX}{{4}}))|\\(.)", re.DOTALL)
_MAY_BE_ESCAPE = re.compile(rf"\\(?:u(?:{_MAY_BE_HALVES.pattern}|{_HEX}{{0,3}}\Z)|\Z)")


def meaning(written: str) -> str:
    """What the inside of a JSON string means."""
    return _ESCAPE.sub(_meant, written) if "\\" in written else written


def _meant(escape: re.Match[str]) -> str:
    second, code, letter = escape.groups()
    if letter:
        return _MEANINGS.get(letter, letter)
    if code:
        return chr(int(code, 16))
    if not second:
        return "\ufffd"
    return chr(0x10000 + ((int(escape.group()[2:6], 16) - 0xD800) << 10) + int(second[2:6], 16) - 0xDC00)
