"""What a setting may be, and words for the person who wrote something else."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, inspect

# A description is what an error says was expected.
Port = Annotated[int, Meta(ge=0, le=65535, description="a whole number from 0 to 65535 (0: any free port)")]
Positive = Annotated[int, Meta(gt=0, description="a whole number above 0")]
Count = Annotated[int, Meta(ge=0, description="a whole number, 0 or above")]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000, description="a number of seconds above 0, a year at most")]
SecondsOrOff = Annotated[float, Meta(ge=0, le=31_536_000, description="a number of seconds, 0 (off) or above, a year at most")]
Name = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?\Z", description="a name without blanks around it")]
Host = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f\x7f]+\Z", description="a host's name or address")]
Sha256 = Annotated[
    str,
    Meta(pattern=r"^[0-9A-Fa-f]{64}\Z", description="64 hexadecimal characters (`toolrelay keys hash` makes them from a key)"),
]
_Origin = Annotated[str, Meta(pattern=r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+)\Z")]
Origins = Annotated[tuple[_Origin, ...], Meta(description='a list of origins such as "https://notes.example", without a path')]
BaseUrl = Annotated[
    str,
    Meta(pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?)?\Z", description="an http:// or https:// URL without query or credentials"),
]


def fits(value: object, kind: Any) -> bool:  # noqa: ANN401 -- a type form
    try:
        converted: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    allowed = choices(kind)
    return not allowed or converted in allowed


def choices(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 -- a type form
    """The values of a Literal, or of a string whose Meta has `extra={"choices": …}`; else none."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    match inspect.type_info(kind):
        case inspect.Metadata(extra={"choices": tuple(named)}):
            return named
        case _:
            return ()


def in_words(kind: Any) -> str:  # noqa: ANN401 -- a type form
    """What a value of this kind is: its Meta's description, or the kind's plain name."""
    if allowed := choices(kind):
        return "one of " + ", ".join(choice for choice in allowed if choice)
    match inspect.type_info(kind):
        case inspect.Metadata(extra_json_schema={"description": str(description)}):
            return description
        case inspect.BoolType():
            return "true or false"
        case inspect.VarTupleType():
            return "a list of strings"
        case _:
            return "a string"


def found(value: object, kind: Any) -> str:  # noqa: ANN401 -- a type form
    """A value that does not fit, with the choice that was perhaps meant."""
    return shown(value) + did_you_mean(value, choices(kind))


def did_you_mean(written: object, known: Collection[str]) -> str:
    near = difflib.get_close_matches(written.lower(), known, n=1) if isinstance(written, str) else ()
    return f"; did you mean {near[0]}?" if near else ""


def shown(value: object) -> str:
    """A value as TOML writes it, in one short line."""
    if isinstance(value, dict):
        return kind_of(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:80]}…"


def kind_of(value: object) -> str:
    """What sort of value it is, for values that must not be shown."""
    match value:
        case str():
            return f"a string of {len(value)} characters"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"


def quoted(key: str) -> str:
    """A key as TOML wants it in a dotted path."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
