"""What a tool's schema has against the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool

Judge: TypeAlias = Callable[[Json], str | None]

_encode = msgspec.json.Encoder(order="deterministic").encode
_LONGEST = 300
_HEAVIEST = 20_000  # schemas within a schema, each counted as often as it is referred to


def validate(tool: Tool, arguments: str) -> str | None:
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
    """Made once for each schema. One that is none, that refers to the outside or would take for ever is held against nobody."""
    decoded: JsonObject = msgspec.json.decode(schema)
    if _Weight(decoded).is_beyond(_HEAVIEST):
        return lambda _given: None
    import jsonschema_rs  # noqa: PLC0415 -- needed by strict tools only

    try:
        validator = jsonschema_rs.validator_for(decoded, retriever=_refuse)
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


class _Weight:
    """How many schemas a schema comes to when its references are followed: a few lines can come to millions."""

    def __init__(self, schema: Json) -> None:
        self._root = schema
        self._count = 0
        self._within: set[str] = set()

    def is_beyond(self, limit: int) -> bool:
        try:
            self._add(self._root, limit)
        except (OverflowError, RecursionError):
            return True
        return False

    def _add(self, schema: Json, limit: int) -> None:
        self._count += 1
        if self._count > limit:
            raise OverflowError
        if isinstance(schema, list):
            for each in schema:
                self._add(each, limit)
        elif isinstance(schema, dict):
            for key, each in schema.items():
                if key == "$ref" and isinstance(each, str):
                    self._follow(each, limit)
                elif key not in ("$defs", "definitions", "enum", "const", "default", "examples"):
                    self._add(each, limit)

    def _follow(self, reference: str, limit: int) -> None:
        if not reference.startswith("#") or reference in self._within:
            return
        found: Json = self._root
        for step in reference[1:].split("/")[1:]:
            found = found.get(step) if isinstance(found, dict) else None
        self._within.add(reference)
        self._add(found, limit)
        self._within.discard(reference)
