"""Calls by constrained decoding: the backend lets the model print nothing but an object that fits this schema."""

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

_DEFINED = re.compile(r"#/(\$defs|definitions)/")


def call_schema(tools: Sequence[Tool]) -> JsonObject:
    """The schema of a call of any of the tools. Definitions move to the root, where references look for them, under names that
    tell the tools' apart.
    """
    definitions: JsonObject = {}
    choices: list[Json] = []
    for number, tool in enumerate(tools):
        parameters: JsonObject = dict(tool.parameters or {"type": "object", "properties": {}})
        parameters.pop("$schema", None)
        place = f"/anyOf/{number}/properties/arguments" if len(tools) > 1 else "/properties/arguments"
        for key in ("$defs", "definitions"):
            found = parameters.pop(key, None)
            if isinstance(found, dict):
                definitions |= {f"{number}_{name}": _moved(value, number, place) for name, value in found.items()}
        members: JsonObject = {"name": {"const": tool.name}, "arguments": _moved(parameters, number, place)}
        choices.append(
            {"type": "object", "properties": members, "required": ["name", "arguments"], "additionalProperties": False}
        )
    schema: Json = choices[0] if len(choices) == 1 else {"anyOf": choices}
    more: JsonObject = {"$defs": definitions} if definitions else {}
    return schema | more if isinstance(schema, dict) else more


def _moved(schema: Json, number: int, place: str) -> Json:
    """With references to where things are now."""
    if isinstance(schema, list):
        return [_moved(each, number, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _moved(value, number, place) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        named = _DEFINED.match(reference)
        out["$ref"] = f"#/$defs/{number}_{reference[named.end() :]}" if named else f"#{place}{reference[1:]}"
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
