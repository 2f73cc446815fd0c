"""JSON that a model got wrong, put right where only one thing can have been meant.

A repair counts only if nothing but punctuation is new: the strings, each from its first quote to its last, the words and numbers
and the brackets are the model's own, in their order. A comma may be missing, but not between two plain values, or be one too
many before a bracket; brackets at the end may be missing or wrong; a key may do without its quotes, a value may not: `tru` or
`undefined` is no string.
JSON that is valid is never touched.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import msgspec

from toolrelay.parsing.json import decode_escapes

LONGEST = 64 * 1024  # characters: a repair takes its time, and all wait for it
_LONGEST_SKELETON = 16 * 1024
_DEEPEST = 64
_STRING = "\ue000"
_NUMBERED = re.compile(f'"{_STRING}([0-9]+)"')
_TOKEN = re.compile(
    r"""
    \s*(?:
        "(?P<double> [^"\\]* (?:\\.[^"\\]*)* )"
      | '(?P<single> [^'\\]* (?:\\.[^'\\]*)* )'
      | (?P<mark> [{}\[\],:] )
      | (?P<word> [^\s"',:{}\[\]]+ )
    )\s*
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_decode = msgspec.json.decode
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_object(text: str) -> bool:
    """Whether the text is a valid JSON object. Its values stay as they are: no number is too large."""
    try:
        _objects.decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def repaired(text: str) -> str | None:
    """The object that was meant; None if that cannot be said."""
    if is_object(text):
        return text
    doubled = _unwrapped(text)
    if doubled is not None:
        return doubled
    said = _tokens(text.strip(" \t\r\n`")) if len(text) <= LONGEST and _STRING not in text else None
    if said is None or not (_values_are_apart(said) and _brackets_are_sure(said)):
        return None
    from json_repair import repair_json  # noqa: PLC0415 -- needed for bad calls only

    strings = list(dict.fromkeys(token.text for token in said if token.kind == "string"))
    numbers = {string: f"{_STRING}{number}" for number, string in enumerate(strings)}  # with long ones the library takes long
    skeleton = [_Token("string", numbers[token.text]) if token.kind == "string" else token for token in said]
    written = " ".join(f'"{token.text}"' if token.kind == "string" else token.text for token in skeleton)
    if len(written) > _LONGEST_SKELETON:
        return None
    try:
        candidate = str(repair_json(written, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None
    if not (is_object(candidate) and _says_the_same(skeleton, candidate)):
        return None
    return _NUMBERED.sub(lambda found: json.dumps(strings[int(found[1])], ensure_ascii=False), candidate)


class _Token(NamedTuple):
    """A string and what it means, a word, or a mark: a bracket, a comma or a colon."""

    kind: str
    text: str


_END = _Token("mark", "")


def _says_the_same(said: list[_Token], candidate: str) -> bool:
    meant = _tokens(candidate)
    if meant is None:
        return False
    said, meant = _without_commas(said), _without_commas(meant)
    if len(said) != len(meant):
        return False
    followers = [*meant[1:], _END]
    return all(
        one == other or (one == ("word", other.text) and other.kind == "string" and follower.text == ":")
        for one, other, follower in zip(said, meant, followers, strict=True)
    )


def _tokens(text: str) -> list[_Token] | None:
    """None if there is a quote without its second one, or a string that may mean several things."""
    found: list[_Token] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        kind = token.lastgroup or ""
        if kind in ("mark", "word"):
            found.append(_Token(kind, _WORDS.get(token[kind], token[kind])))
            continue
        string = _meaning(token[kind])
        if string is None:
            return None
        found.append(_Token("string", string))
    return found


def _meaning(written: str) -> str | None:
    """Of a string's inside. Where one backslash can only stand for itself all do; None if another might begin an escape."""
    escapes = set(_ESCAPE.findall(written))
    if escapes <= _ESCAPES:
        return decode_escapes(written)
    return None if escapes & _ESCAPES else written


_ESCAPES = frozenset("\"'\\/bfnrtu")


def _without_commas(tokens: list[_Token]) -> list[_Token]:
    """Without those that stand after a value, and without the brackets at the end."""
    kept: list[_Token] = []
    last = "{"
    for token in tokens:
        if token != ("mark", ",") or last in _BEFORE_VALUES:
            kept.append(token)
        last = token.text if token.kind == "mark" else ""
    while kept and kept[-1].kind == "mark" and kept[-1].text in "}]":
        kept.pop()
    return kept


_BEFORE_VALUES = frozenset("{[:,")


def _values_are_apart(tokens: list[_Token]) -> bool:
    """Of two strings or words side by side the second is a key: else they may be one value."""
    return all(
        "mark" in (one.kind, other.kind) or after.text == ":"
        for one, other, after in zip(tokens, tokens[1:], [*tokens[2:], _END], strict=False)
    )


def _brackets_are_sure(tokens: list[_Token]) -> bool:
    """Whether all brackets are closed, or it cannot matter where: a member of an inner object might be the outer one's.

    Not so in what is closed for sure: a list, as its brackets cannot be an object's, and what another member follows.
    """
    inner_members = False
    opened: list[tuple[str, bool]] = []
    closed: bool | None = None
    for kind, mark in tokens:
        if kind != "mark":
            continue
        if mark == ",":
            if closed is not None:
                inner_members = closed
            inner_members = inner_members or (len(opened) > 1 and opened[-1][0] == "{")
        if mark in "{[":
            opened.append((mark, inner_members))
            if len(opened) > _DEEPEST:
                return False
        elif mark in "}]" and opened:
            opening, before = opened.pop()
            closed = before
            if mark == "]" and opening == "[":
                inner_members = before
            continue
        closed = None
    return not opened or not inner_members


def _unwrapped(text: str) -> str | None:
    """Arguments that were encoded twice: a JSON string that holds the object."""
    try:
        inner = _decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return None
    return inner if isinstance(inner, str) and is_object(inner) else None
