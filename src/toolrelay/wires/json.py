"""JSON encoding and decoding, with errors that name the parameter and with lone surrogates repaired."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, AnyStr, TypeVar

import msgspec

from toolrelay.core.json import JsonObject
from toolrelay.core.surrogates import join_surrogates
from toolrelay.errors import ToolrelayError, invalid

T = TypeVar("T")

MAX_DEPTH = 200  # far below Python's recursion limit, so that all that was decoded can be encoded
MAX_MESSAGE = 200
INVALID_ARGUMENTS = "invalid_arguments"  # the member that holds a call's arguments which are no JSON object

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_PATH = re.compile(r" - at `\$?(.*?)`$")
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_TYPES = re.compile(r"`([^`]*)`")
_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def decode(data: bytes | str) -> Any:  # noqa: ANN401 -- any JSON
    """Decode like json.loads, several times faster. Raise ValueError, also for what is nested more than MAX_DEPTH deep.

    A lone surrogate escape, which JSON allows and UTF-8 cannot encode, stays a lone surrogate: see `repair_surrogates`.
    """
    return _decode_any(data)[0]


def _decode_any(data: bytes | str) -> tuple[Any, bool]:
    """Return the value, and whether it may hold lone surrogates."""
    try:
        try:
            value, has_surrogates = _decode(data), False
        except msgspec.MsgspecError as error:
            text = data if isinstance(data, str) else data.decode()
            if "\\u" not in text:
                raise ValueError(str(error)) from None
            value, has_surrogates = json.loads(text, parse_constant=_finite, parse_float=_finite), True
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if is_deep(data, value):
        raise ValueError("nested too deeply")
    return value, has_surrogates


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not a number that JSON can say")
    return number


def may_be_deep(data: bytes | str) -> bool:
    """Return whether the data has enough brackets to be nested more than MAX_DEPTH deep."""
    return _has_more(data, ("[", "{")) if isinstance(data, str) else _has_more(data, (b"[", b"{"))


def _has_more(data: AnyStr, brackets: tuple[AnyStr, AnyStr]) -> bool:
    """Most data has few brackets: `find` skips everything else at once, while `count` would look at every byte."""
    left = MAX_DEPTH
    for bracket in brackets:
        at = data.find(bracket)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = data.find(bracket, at + 1)
    return False


def is_deep(data: bytes | str, value: object) -> bool:
    """Return whether the value decoded from the data is nested more than MAX_DEPTH deep."""
    if not may_be_deep(data):
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def repair_surrogates(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Return the value with the surrogates of every string joined, or replaced."""
    match value:
        case str():
            return join_surrogates(value)
        case list():
            return [repair_surrogates(element) for element in value]
        case dict():
            return {join_surrogates(key): repair_surrogates(element) for key, element in value.items()}
        case _:
            return value


def encode_repaired(value: object) -> bytes:
    """Encode, with lone surrogates repaired if there are any."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(repair_surrogates(value))


def arguments_text(arguments: object) -> str:
    """Return a call's arguments as JSON text. Some clients and providers send an object, or nothing."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else encode_repaired(arguments).decode()


def arguments_object(text: str) -> msgspec.Raw | JsonObject:
    """Return a call's arguments for an API that takes only objects: the model's own text, if it is one."""
    if not text.strip():
        return {}
    return msgspec.Raw(text.encode(errors="replace")) if is_object(text) else {INVALID_ARGUMENTS: text}


def without_nones(members: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in members.items() if value is not None}


def decode_repaired(data: bytes | str) -> Any:  # noqa: ANN401 -- any JSON
    """Decode, with lone surrogates repaired if there are any. Raise ValueError."""
    value, has_surrogates = _decode_any(data)
    return repair_surrogates(value) if has_surrogates else value


def is_object(text: str) -> bool:
    """Return whether the text is a JSON object."""
    try:
        return isinstance(decode(text), dict)
    except ValueError:
        return False


def decode_body(body: bytes) -> JsonObject:
    """Decode a request's body, or raise a 400 if it is not a JSON object."""
    try:
        value = decode_repaired(body)
    except ValueError as error:
        raise invalid(f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise invalid("The request body must be a JSON object.", code="invalid_json")
    return value


def convert(value: object, to: type[T], param: str) -> T:
    """Convert to that type, or raise a 400 that names the parameter."""
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), param) from None


def _invalid(message: str, param: str) -> ToolrelayError:
    """Translate msgspec's message from Python's terms into JSON's."""
    path = _PATH.search(message)
    if path:
        message = message[: path.start()]
        param = (param + path[1]) if param else path[1].lstrip(".")
    missing = _MISSING.fullmatch(message)
    if missing:
        param = f"{param}.{missing[1]}" if param else missing[1]
        return invalid(f"Missing required parameter: {param!r}.", param, code="missing_required_parameter")
    code = "invalid_type" if message.startswith("Expected") else "invalid_value"
    message = _TYPES.sub(_json_types, message[:MAX_MESSAGE])
    return invalid(f"Invalid value for {param!r}: {message[:1].lower()}{message[1:]}.", param, code=code)


def _json_types(types: re.Match[str]) -> str:
    names = types[1].split(" | ")
    words = [_JSON_TYPES.get(name, name) for name in names if name != "int" or "float" not in names]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
