"""Calls by constrained decoding: the backend lets the model print nothing but an object that fits this schema."""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import json_call
from toolrelay.dialects._reader import Reader, Reading
from toolrelay.dialects.base import Dialect, Opener, Speaker
from toolrelay.dialects.hermes import render_calls, render_outcomes


def call_schema(tools: Sequence[Tool]) -> JsonObject:
    """The schema of a call of any of the tools. Definitions move to the root, where references look for them."""
    definitions: JsonObject = {}
    choices: list[Json] = []
    for tool in tools:
        parameters: JsonObject = dict(tool.parameters or {"type": "object", "properties": {}})
        for key in ("$defs", "definitions"):
            found = parameters.pop(key, None)
            if isinstance(found, dict):
                merged = definitions.setdefault(key, {})
                if isinstance(merged, dict):
                    merged |= found
        parameters.pop("$schema", None)
        members: JsonObject = {"name": {"const": tool.name}, "arguments": parameters}
        choices.append(
            {"type": "object", "properties": members, "required": ["name", "arguments"], "additionalProperties": False}
        )
    schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
    return {**schema, **definitions} if isinstance(schema, dict) else {}


def _grammar(reader: Reader, speaker: Speaker, opener: str) -> Reading[None]:
    reader.unread(opener)
    yield from json_call(reader, speaker)


CONSTRAINED = Dialect(
    name="constrained",
    openers=(Opener("{", "start"),),
    grammar=_grammar,
    render_calls=render_calls,
    render_outcomes=render_outcomes,
)
