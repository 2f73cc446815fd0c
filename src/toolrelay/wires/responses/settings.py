"""Responses, the settings that a request makes and its answer repeats: tools, tool choice, output format, reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import OutputFormat, Request, Tool, ToolChoice
from toolrelay.wires.json import encode, mended_value
from toolrelay.wires.responses.items import NAME


def written(value: object) -> bytes:
    """As JSON. A lone surrogate, which UTF-8 cannot say, must not end an answer."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(mended_value(value))


def said(members: Mapping[str, Any]) -> JsonObject:
    """Without those that say nothing."""
    return {key: value for key, value in members.items() if value is not None}


def tool_members(tool: Tool) -> JsonObject:
    """A tool, all its members written."""
    members: JsonObject = {"type": tool.kind, "name": tool.name, "description": tool.description}
    if tool.kind == "custom":
        return members | {"format": tool.format if tool.format is not None else {"type": "text"}}
    return members | {"parameters": tool.parameters, "strict": tool.strict}


def tool_choice_value(choice: ToolChoice) -> Json:
    if choice.raw is not None:
        return choice.raw
    named: list[Json] = [{"type": kind, "name": name} for kind, name in choice.names]
    if choice.mode == "named":
        return named[0]
    if named and choice.mode != "none":
        return {"type": "allowed_tools", "mode": choice.mode, "tools": named}
    return choice.mode


def format_members(output: OutputFormat) -> JsonObject:
    if output.type != "json_schema":
        return {"type": output.type}
    members = {"description": output.description, "schema": output.schema, "strict": output.strict}
    return {"type": "json_schema", "name": output.name or "answer", **said(members)}


def text_members(request: Request) -> JsonObject:
    """`text`, with what only this wire's client knows of it."""
    members: JsonObject = {}
    if request.output is not None:
        members["format"] = format_members(request.output)
    if request.sampling.verbosity is not None:
        members["verbosity"] = request.sampling.verbosity
    unknown = (request.extra or {}).get("text")
    if isinstance(unknown, dict) and request.wire == NAME:
        for key, value in unknown.items():
            known = members.get(key)
            members[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return members


def reasoning_members(request: Request) -> JsonObject:
    wish = request.reasoning
    if wish is None:
        return {}
    return said({"effort": wish.effort, "summary": wish.summary}) | (wish.extra if wish.extra and request.wire == NAME else {})
