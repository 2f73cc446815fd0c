"""Schemas as Codex takes them: which it may hold a model to, and how deep they may be."""

from __future__ import annotations

from toolrelay.core.json import Json
from toolrelay.core.request import OutputFormat

# Codex reads JSON of 127 levels, its own around the schema among them. A line with more it does not answer at all.
MOST_LEVELS = 110


def is_strict(form: OutputFormat) -> bool:
    """Codex marks every schema as strict, which OpenAI refuses unless all members are required and no others allowed."""
    return form.schema is not None and (form.strict is True or _is_closed(form.schema))


def _is_closed(schema: Json) -> bool:
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) or schema.get("type") == "object":
        names = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required", [])
        if schema.get("additionalProperties") is not False or not isinstance(required, list) or set(map(str, required)) != names:
            return False
    return all(map(_is_closed, schema.values()))


def is_too_deep(value: Json, levels: int = MOST_LEVELS) -> bool:
    match value:
        case dict():
            inner = list(value.values())
        case list():
            inner = value
        case _:
            return False
    return levels == 0 or any(is_too_deep(each, levels - 1) for each in inner)
