"""Calls by constrained decoding: the schema of a call, and the dialect that reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.hermes import render_calls, render_results
from toolrelay.dialects.json_calls import json_call
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

_DEFINITION = re.compile(r"#/(\$defs|definitions)/")


def build_call_schema(tools: Sequence[Tool]) -> JsonObject:
    """Return the schema of a call of any of the tools. Definitions move to the root, prefixed with the number of their tool."""
    definitions: JsonObject = {}
    choices: list[JsonObject] = []
    for number, tool in enumerate(tools):
        parameters: JsonObject = dict(tool.parameters or {"type": "object", "properties": {}})
        parameters.pop("$schema", None)
        path = f"/anyOf/{number}/properties/arguments" if len(tools) > 1 else "/properties/arguments"
        for key in ("$defs", "definitions"):
            found = parameters.pop(key, None)
            if isinstance(found, dict):
                definitions |= {f"{number}_{name}": _move_references(value, number, path) for name, value in found.items()}
        members: JsonObject = {"name": {"const": tool.name}, "arguments": _move_references(parameters, number, path)}
        choices.append(
            {"type": "object", "properties": members, "required": ["name", "arguments"], "additionalProperties": False}
        )
    schema: JsonObject = choices[0] if len(choices) == 1 else {"anyOf": [*choices]}
    return schema | {"$defs": definitions} if definitions else schema


def _move_references(schema: Json, number: int, path: str) -> Json:
    """Rewrite references for the tool's schema at its new path."""
    if isinstance(schema, list):
        return [_move_references(each, number, path) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _move_references(value, number, path) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        definition = _DEFINITION.match(reference)
        out["$ref"] = f"#/$defs/{number}_{reference[definition.end() :]}" if definition else f"#{path}{reference[1:]}"
    return out


def _grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    reader.unread(marker)
    yield from json_call(reader, sink)


CONSTRAINED = Dialect(
    name="constrained",
    start_markers=(StartMarker("{", "start"),),
    grammar=_grammar,
    render_calls=render_calls,
    render_results=render_results,
)
