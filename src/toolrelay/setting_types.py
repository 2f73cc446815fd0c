"""Types of settings, and descriptions of types and values for error messages.

`Meta.extra` may hold:

    choices   the allowed strings
    later     strings that a later version will allow
    secret    True: a credential; it may be written as env:NAME and is masked everywhere
    hidden    True: error messages do not show the value, because it may contain a credential
    check     a function that returns False for a value that the type's pattern cannot exclude
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, inspect


def _has_valid_port(url: str) -> bool:
    try:
        urlsplit(url).port  # noqa: B018 -- raises ValueError for an invalid port or IPv6 address
    except ValueError:
        return False
    return True


# Error messages quote the description: "expected DESCRIPTION, found …".
Port = Annotated[int, Meta(ge=0, le=65535, description="a whole number from 0 to 65535 (0: any free port)")]
Positive = Annotated[int, Meta(gt=0, description="a whole number above 0")]
Count = Annotated[int, Meta(ge=0, description="a whole number, 0 or above")]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000, description="a number of seconds above 0, a year at most")]
SecondsOrOff = Annotated[float, Meta(ge=0, le=31_536_000, description="a number of seconds, 0 (off) or above, a year at most")]
DaysOrOff = Annotated[int, Meta(ge=0, le=36_500, description="a whole number of days, 0 (for ever) or above, a century at most")]
Name = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*\S)?\Z", description="a name without blanks around it")]
Host = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f\x7f]+\Z", description="a host's name or address")]
Secret = Annotated[str, Meta(extra={"secret": True})]
ServiceUrl = Annotated[str, Meta(extra={"hidden": True})]
Sha256 = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Fa-f]{64}\Z",
        description="64 hexadecimal characters (`toolrelay keys hash` makes them from a key)",
        extra={"hidden": True},  # a key may have been pasted instead of its hash
    ),
]
_Origin = Annotated[str, Meta(pattern=r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+)\Z")]
Origins = Annotated[tuple[_Origin, ...], Meta(description='a list of origins such as "https://notes.example", without a path')]
BaseUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?\Z",
        description="an http:// or https:// URL with a valid host and port, without query or credentials",
        extra={"hidden": True, "check": _has_valid_port},
    ),
]
Approval = Annotated[
    Literal["always", "never"] | dict[str, Literal["always", "never"]],
    Meta(description='"always", "never", or a table of them by tool: {file_read = "always"}'),
]


class ParameterDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of requests that do not say otherwise."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(gt=0)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    reasoning_effort: Annotated[str, Meta(min_length=1)] | None = None
    verbosity: Annotated[str, Meta(min_length=1)] | None = None


def _are_defaults(table: object) -> bool:
    try:
        msgspec.convert(table, ParameterDefaults)
    except msgspec.ValidationError:
        return False
    return True


Defaults = Annotated[
    dict[str, Any],
    Meta(
        description=f"a table with any of {', '.join(ParameterDefaults.__struct_fields__)}, each in its range",
        extra={"check": _are_defaults},
    ),
]


def accepts(type_form: Any, value: object) -> bool:  # noqa: ANN401 -- mypy has no type for type forms
    """Tell whether a setting of this type may have the value, in this version or a later one."""
    try:
        converted: Any = msgspec.convert(value, type_form)
    except msgspec.ValidationError:
        return False
    extra = _extra(type_form)
    if "choices" in extra:
        return converted in extra["choices"] or converted in extra.get("later", ())
    check: Callable[[Any], bool] | None = extra.get("check")
    return check is None or check(converted)


def choices(type_form: Any) -> tuple[str, ...]:  # noqa: ANN401 -- as above
    """Return the allowed strings of a type that has a fixed set of them, else nothing."""
    if get_origin(type_form) is Literal:
        return get_args(type_form)
    return tuple(_extra(type_form).get("choices", ()))


def is_for_later(type_form: Any, value: object) -> bool:  # noqa: ANN401 -- as above
    return value in _extra(type_form).get("later", ())


def is_secret(type_form: Any) -> bool:  # noqa: ANN401 -- as above
    return "secret" in _extra(type_form)


def is_hidden(type_form: Any) -> bool:  # noqa: ANN401 -- as above
    return not {"secret", "hidden"}.isdisjoint(_extra(type_form))


def _extra(type_form: Any) -> dict[str, Any]:  # noqa: ANN401 -- as above
    info = inspect.type_info(type_form)
    return info.extra or {} if isinstance(info, inspect.Metadata) else {}


def describe_type(type_form: Any) -> str:  # noqa: ANN401 -- as above
    """Say what a value of this type is: its Meta's description, its choices, or a plain name."""
    if allowed := choices(type_form):
        return f"one of {_joined(allowed)}"
    match inspect.type_info(type_form):
        case inspect.Metadata(extra_json_schema={"description": str(description)}):
            return description
        case inspect.BoolType():
            return "true or false"
        case inspect.VarTupleType(item_type=inspect.LiteralType(values=values)):
            return f"a list of any of {_joined(values)}"
        case inspect.VarTupleType():
            return "a list of strings"
        case _:
            return "a string"


def _joined(values: Collection[Any]) -> str:
    return ", ".join(value for value in values if value)


def describe_value(type_form: Any, value: object) -> str:  # noqa: ANN401 -- as above
    """Describe a value that the type does not accept, with the nearest choice."""
    return describe_kind(value) if is_hidden(type_form) else format_value(value) + did_you_mean(value, choices(type_form))


def did_you_mean(written: object, known: Collection[str]) -> str:
    near = difflib.get_close_matches(written.lower(), known, n=1) if isinstance(written, str) else ()
    return f"; did you mean {near[0]}?" if near else ""


def format_value(value: object) -> str:
    """Format a value as TOML, in one short line."""
    if isinstance(value, dict):
        return describe_kind(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:80]}…"


def describe_kind(value: object) -> str:
    """Describe a value without showing it."""
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


def quote_key(key: str) -> str:
    """Quote a key as TOML requires in a dotted path."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
