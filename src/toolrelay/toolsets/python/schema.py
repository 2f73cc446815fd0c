"""Strict JSON schemas of Python types: self-contained, and no object takes members that it does not name."""

from __future__ import annotations

from typing import Any

import msgspec

from toolrelay.core.json import Json, JsonObject

_ROOT = "#/$defs/"
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})  # schemas by name
_VALUES = frozenset({"default", "enum", "const", "examples"})


class UnsupportedTypeError(Exception):
    """A type that has no strict JSON schema."""


def make_schema(type_form: Any) -> JsonObject:  # noqa: ANN401 -- a type form
    """Return the schema of a type hint."""
    try:
        (schema,), components = msgspec.json.schema_components([type_form], ref_template=f"{_ROOT}{{name}}")
    except (TypeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        raise UnsupportedTypeError(lines[-1] if lines else type(error).__name__) from None
    except RecursionError:
        raise UnsupportedTypeError("the type is nested too deeply") from None
    closed = _close(schema, components, ())
    return closed if isinstance(closed, dict) else {}


def _close(schema: Json, components: dict[str, Any], expanding: tuple[str, ...]) -> Json:
    """Replace references by what they refer to, and forbid further members of objects with named ones."""
    if isinstance(schema, list):
        return [_close(each, components, expanding) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed: JsonObject = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str):
            name = value.removeprefix(_ROOT)
            if name in expanding:
                raise UnsupportedTypeError(f"the type {name} contains itself")
            target = _close(components[name], components, (*expanding, name))
            closed = {**target, **closed} if isinstance(target, dict) else closed
        elif key in _VALUES:
            closed[key] = value
        elif key in _MAPS and isinstance(value, dict):
            closed[key] = {name: _close(each, components, expanding) for name, each in value.items()}
        elif key not in ("title", "discriminator"):  # the name of a Python class; a mapping to references
            closed[key] = _close(value, components, expanding)
    if closed.get("type") == "object" and "properties" in closed:
        closed["additionalProperties"] = False
    return closed
