"""Calls by constrained decoding: the schemas, and the dialects that read what comes of them.

dialect       the output                                                        used for
-----------   ---------------------------------------------------------------   ------------------------------------------
CONSTRAINED   {"name": "f", "arguments": {…}}                                   a call that must happen
CHOICE        {"tool": "f", "arguments": {…}} or {"tool": "none", "answer": …}  any answer of a model that knows no dialect
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.hermes import render_calls, render_results
from toolrelay.dialects.json_calls import json_call
from toolrelay.parsing.errors import NotACallError, TruncatedCallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_arguments, json_string, short_string
from toolrelay.parsing.stream_reader import Parse, Reader

NO_TOOL = "none"  # in CHOICE: the tool of an answer that calls none

_DEFINITION = re.compile(r"#/(\$defs|definitions)/")
_encode = msgspec.json.Encoder().encode


def build_call_schema(tools: Sequence[Tool], *, name_key: str = "name", others: Sequence[JsonObject] = ()) -> JsonObject:
    """Return the schema of a call of any of the tools, or of what `others` describe.

    Definitions move to the root, prefixed with the number of their tool.
    """
    definitions: JsonObject = {}
    choices: list[JsonObject] = []
    for number, tool in enumerate(tools):
        parameters: JsonObject = dict(tool.parameters or {"type": "object", "properties": {}})
        parameters.pop("$schema", None)
        path = f"/anyOf/{number}/properties/arguments" if len(tools) + len(others) > 1 else "/properties/arguments"
        for key in ("$defs", "definitions"):
            found = parameters.pop(key, None)
            if isinstance(found, dict):
                definitions |= {f"{number}_{name}": _move_references(value, number, path) for name, value in found.items()}
        choices.append(_object({name_key: {"const": tool.name}, "arguments": _move_references(parameters, number, path)}))
    choices += others
    schema: JsonObject = choices[0] if len(choices) == 1 else {"anyOf": [*choices]}
    return schema | {"$defs": definitions} if definitions else schema


def build_choice_schema(tools: Sequence[Tool]) -> JsonObject:
    """Return the schema of a call of any of the tools, if there are any, or an answer. No tool is called NO_TOOL."""
    answer = _object({"tool": {"const": NO_TOOL}, "answer": {"type": "string"}})
    return build_call_schema(tools, name_key="tool", others=(answer,))


def _object(members: JsonObject) -> JsonObject:
    return {"type": "object", "properties": members, "required": [*members], "additionalProperties": False}


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


def _choice_grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    """Parse a call, or an answer, whose text is emitted as it arrives. A truncated answer is text as far as it came."""
    reader.unread(marker)
    yield from reader.expect("{")
    yield from _key(reader, "tool")
    name = yield from short_string(reader)
    if name != NO_TOOL:
        sink.start(name)
    yield from reader.skip_blanks()
    yield from reader.expect(",")
    if name != NO_TOOL:
        yield from _key(reader, "arguments")
        yield from json_arguments(reader, sink.arguments)
        yield from reader.skip_blanks()
        yield from reader.expect("}")
        sink.finish()
        return
    yield from _key(reader, "answer")
    try:
        yield from json_string(reader, sink.text)
        yield from reader.skip_blanks()
        yield from reader.accept("}")
    except TruncatedCallError:
        reader.at = len(reader.text)


def _key(reader: Reader, key: str) -> Parse[None]:
    """Consume a key and its colon."""
    yield from reader.skip_blanks()
    if (yield from short_string(reader)) != key:
        raise NotACallError
    yield from reader.skip_blanks()
    yield from reader.expect(":")
    yield from reader.skip_blanks()


def _render_choice_calls(calls: Sequence[Call]) -> str:
    return "\n".join(f'{{"tool": {_encode(call.name).decode()}, "arguments": {call.arguments or "{}"}}}' for call in calls)


def _render_choice_results(results: Sequence[ToolResult]) -> str:
    # Without these words SmolLM2-135M repeats the call.
    return f"{render_results(results)}\nAnswer me with this."


def _render_choice_tools(tools: Sequence[Tool]) -> str:
    # Short on purpose, and the tool before the answer: with other wordings SmolLM2-135M calls always, or never.
    listed = "\n".join(
        _encode({"name": tool.name, "description": tool.description or "", "parameters": tool.parameters or {}}).decode()
        for tool in tools
    )
    return f"""Tools:
{listed}

Reply with {{"tool": "NAME", "arguments": {{…}}}} to use a tool, or with {{"tool": "{NO_TOOL}", "answer": …}}."""


CHOICE = Dialect(
    name="choice",
    start_markers=(StartMarker("{", "start"),),
    grammar=_choice_grammar,
    render_calls=_render_choice_calls,
    render_results=_render_choice_results,
    render_tools=_render_choice_tools,
)
