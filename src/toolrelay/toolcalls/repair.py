"""Repair of invalid JSON objects, only where the repair is unambiguous. Valid JSON is never changed.

A repair counts only if nothing but punctuation is new: strings, words, numbers and brackets stay, in their order. A comma may be
missing (but not between two values that are not brackets) or superfluous before a bracket; brackets at the end may be missing or
wrong; a key may lack its quotes, a value may not: `tru` and `undefined` are not strings.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import msgspec

from toolrelay.core.validation import is_json_object
from toolrelay.parsing.json import decode_escapes

MAX_LENGTH = 64 * 1024  # characters: a repair blocks the event loop
_MAX_SKELETON = 16 * 1024
_MAX_DEPTH = 64
_PLACEHOLDER = "\ue000"
_PLACEHOLDERS = re.compile(f'"{_PLACEHOLDER}([0-9]+)"')
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
_ESCAPES = frozenset("\"'\\/bfnrtu")
_BEFORE_VALUES = frozenset("{[:,")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def repair_object(text: str) -> str | None:
    """Return the JSON object that was meant, or None if that is ambiguous."""
    if is_json_object(text):
        return text
    inner = _decode_twice(text)
    if inner is not None:
        return inner
    tokens = _tokenize(text.strip(" \t\r\n`")) if len(text) <= MAX_LENGTH and _PLACEHOLDER not in text else None
    if tokens is None or not (_values_are_separated(tokens) and _brackets_are_unambiguous(tokens)):
        return None
    from json_repair import repair_json  # noqa: PLC0415 -- needed for bad calls only

    # The library is slow on long strings: it gets placeholders.
    strings = list(dict.fromkeys(token.text for token in tokens if token.kind == "string"))
    placeholders = {string: f"{_PLACEHOLDER}{number}" for number, string in enumerate(strings)}
    skeleton = [_Token("string", placeholders[token.text]) if token.kind == "string" else token for token in tokens]
    joined = " ".join(f'"{token.text}"' if token.kind == "string" else token.text for token in skeleton)
    if len(joined) > _MAX_SKELETON:
        return None
    try:
        candidate = str(repair_json(joined, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None
    if not (is_json_object(candidate) and _is_same(skeleton, candidate)):
        return None
    return _PLACEHOLDERS.sub(lambda found: json.dumps(strings[int(found[1])], ensure_ascii=False), candidate)


def _decode_twice(text: str) -> str | None:
    """Return the object inside a JSON string: arguments that were encoded twice."""
    try:
        inner = msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return None
    return inner if isinstance(inner, str) and is_json_object(inner) else None


class _Token(NamedTuple):
    """`kind`: a decoded "string", a "word" or number, or a "mark": a bracket, comma or colon."""

    kind: str
    text: str


_END = _Token("mark", "")
_COMMA = _Token("mark", ",")


def _tokenize(text: str) -> list[_Token] | None:
    """Return None for an unclosed or ambiguous string."""
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        at = found.end()
        kind = found.lastgroup or ""
        if kind in ("mark", "word"):
            tokens.append(_Token(kind, _PYTHON_WORDS.get(found[kind], found[kind])))
            continue
        string = _decode_string(found[kind])
        if string is None:
            return None
        tokens.append(_Token("string", string))
    return tokens


def _decode_string(content: str) -> str | None:
    """Decode the content of a string. If one backslash starts no escape, none may: else the string is ambiguous."""
    escapes = set(_ESCAPE.findall(content))
    if escapes <= _ESCAPES:
        return decode_escapes(content)
    return None if escapes & _ESCAPES else content


def _is_same(tokens: list[_Token], candidate: str) -> bool:
    """Return whether the candidate differs in commas, closing brackets and the quotes of keys only."""
    repaired = _tokenize(candidate)
    if repaired is None:
        return False
    tokens, repaired = _strip_punctuation(tokens), _strip_punctuation(repaired)
    return len(tokens) == len(repaired) and all(
        old == new or (old == ("word", new.text) and new.kind == "string" and follower.text == ":")
        for old, new, follower in zip(tokens, repaired, [*repaired[1:], _END], strict=True)
    )


def _strip_punctuation(tokens: list[_Token]) -> list[_Token]:
    """Remove commas after values, and the brackets at the end."""
    kept: list[_Token] = []
    previous = "{"
    for token in tokens:
        if token != _COMMA or previous in _BEFORE_VALUES:
            kept.append(token)
        previous = token.text if token.kind == "mark" else ""
    while kept and kept[-1].kind == "mark" and kept[-1].text in "}]":
        kept.pop()
    return kept


def _values_are_separated(tokens: list[_Token]) -> bool:
    """Return whether of two adjacent strings or words the second is a key. Otherwise they may be one value."""
    return all(
        "mark" in (first.kind, second.kind) or third.text == ":"
        for first, second, third in zip(tokens, tokens[1:], [*tokens[2:], _END], strict=False)
    )


def _brackets_are_unambiguous(tokens: list[_Token]) -> bool:
    """Return whether all brackets are closed, or can only be closed in one way.

    It is ambiguous if an unclosed inner object has several members: the last ones might belong to the outer object. Members of
    a closed list, and of an object that another member follows, do not count.
    """
    has_inner_members = False
    opened: list[tuple[str, bool]] = []  # each bracket, with `has_inner_members` before it
    just_closed: bool | None = None
    for kind, mark in tokens:
        if kind != "mark":
            continue
        if mark == ",":
            if just_closed is not None:
                has_inner_members = just_closed
            has_inner_members = has_inner_members or (len(opened) > 1 and opened[-1][0] == "{")
        if mark in "{[":
            opened.append((mark, has_inner_members))
            if len(opened) > _MAX_DEPTH:
                return False
        elif mark in "}]" and opened:
            opening, just_closed = opened.pop()
            if mark == "]" and opening == "[":
                has_inner_members = just_closed
            continue
        just_closed = None
    return not opened or not has_inner_members
