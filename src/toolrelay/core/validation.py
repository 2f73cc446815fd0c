"""Validation of tool-call arguments: JSON, and the JSON schema of a tool."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool

Validator: TypeAlias = Callable[[Json], str | None]

MAX_MESSAGE = 300  # characters
MAX_SCHEMA_SIZE = 20_000  # subschemas, each counted as often as it is referred to
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def is_json_object(text: str) -> bool:
    """Return whether the text is a JSON object. Its values are not decoded, so that numbers may have any size."""
    try:
        _decode_members(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def validate(tool: Tool, arguments: str) -> str | None:
    """Return the first error, worded for the model, or None if the arguments are valid."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "they are not valid JSON"
    if not isinstance(value, dict):
        return "they are not a JSON object"
    find_error = _compile(_encode(tool.parameters)) if tool.parameters else None
    return None if find_error is None else find_error(value)


def describe_invalid(name: str, problem: str) -> str:
    """Return what the model is told about arguments that a gateway tool does not take."""
    return f"Error: invalid arguments for {name}: {problem}. Send a JSON object that matches the tool's schema."


def can_validate(schema: JsonObject) -> bool:
    """Return whether the schema is valid, not oversized and self-contained. `validate` accepts everything if it is not."""
    return _compile(_encode(schema)) is not None


@lru_cache(maxsize=256)
def _compile(schema: bytes) -> Validator | None:
    """Compile and cache a validator, unless the schema is invalid, oversized or not self-contained."""
    decoded: JsonObject = msgspec.json.decode(schema)
    if _SchemaSize(decoded).exceeds(MAX_SCHEMA_SIZE):
        return None
    import jsonschema_rs  # noqa: PLC0415 -- needed by strict tools only

    try:
        validator = jsonschema_rs.validator_for(decoded, retriever=_refuse)
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError):
        return None

    def find_error(value: Json) -> str | None:
        error = next(iter(validator.iter_errors(value)), None)
        if error is None:
            return None
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path).lstrip(".")
        message = error.message[:MAX_MESSAGE]
        return f"{path}: {message}" if path else message

    return find_error


def _refuse(uri: str) -> Json:
    """Schemas come from clients: nothing is fetched for them."""
    raise ValueError(f"{uri} is not part of the schema")


class _SchemaSize:
    """Counts the subschemas of a schema with all references expanded: a few lines can expand to millions."""

    def __init__(self, schema: Json) -> None:
        self._root = schema
        self._count = 0
        self._expanding: set[str] = set()

    def exceeds(self, limit: int) -> bool:
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
            for item in schema:
                self._add(item, limit)
        elif isinstance(schema, dict):
            for key, value in schema.items():
                if key == "$ref" and isinstance(value, str):
                    self._expand(value, limit)
                elif key not in ("$defs", "definitions", "enum", "const", "default", "examples"):
                    self._add(value, limit)

    def _expand(self, reference: str, limit: int) -> None:
        if not reference.startswith("#") or reference in self._expanding:
            return
        target: Json = self._root
        for step in reference[1:].split("/")[1:]:
            target = target.get(step) if isinstance(target, dict) else None
        self._expanding.add(reference)
        self._add(target, limit)
        self._expanding.discard(reference)
