"""What a tool's schema has against the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from toolrelay.core.json import Json
from toolrelay.core.request import Tool

Judge: TypeAlias = Callable[[Json], str | None]

_encode = msgspec.json.Encoder(order="deterministic").encode
_LONGEST = 300


def breach(tool: Tool, arguments: str) -> str | None:
    """The first thing that is wrong, in words for the model; None: the arguments fit."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        return "they are not valid JSON"
    if not isinstance(given, dict):
        return "they are not a JSON object"
    if not tool.parameters:
        return None
    return _judge(_encode(tool.parameters))(given)


@lru_cache(maxsize=256)
def _judge(schema: bytes) -> Judge:
    """Made once for each schema. A schema that is none, or that refers to the outside, is held against nobody."""
    import jsonschema_rs  # noqa: PLC0415 -- needed by strict tools only

    try:
        validator = jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=_refuse)
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError):
        return lambda _given: None

    def judge(given: Json) -> str | None:
        error = next(iter(validator.iter_errors(given)), None)
        if error is None:
            return None
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path).lstrip(".")
        said = error.message[:_LONGEST]
        return f"{place}: {said}" if place else said

    return judge


def _refuse(uri: str) -> Json:
    """Schemas come from clients: nothing is fetched for them."""
    raise ValueError(f"{uri} is not part of the schema")
