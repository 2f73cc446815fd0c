"""Tools as TypeScript, which is how harmony and Apertus declare them. Descriptions stay in comments, whatever they hold."""

from __future__ import annotations

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool
from toolrelay.dialects._writing import json_line

_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null", "object": "object"}
_DEPTH = 8


def declaration(tool: Tool) -> str:
    """`type f = (_: {…}) => any;`"""
    properties = (tool.parameters or {}).get("properties")
    taken = f"_: {_members(tool.parameters or {}, 0)}" if isinstance(properties, dict) and properties else ""
    return f"{_comment(tool.description)}type {tool.name} = ({taken}) => any;"


def _comment(text: Json) -> str:
    return "".join(f"// {line}\n" for line in text.splitlines()) if isinstance(text, str) else ""


def _members(schema: JsonObject, depth: int) -> str:
    properties = schema.get("properties")
    required = schema.get("required")
    lines = []
    for name, member in properties.items() if isinstance(properties, dict) else ():
        fields: JsonObject = member if isinstance(member, dict) else {}
        optional = "" if isinstance(required, list) and name in required else "?"
        default = f" // default: {json_line(fields['default'])}" if "default" in fields else ""
        key = name if name.isidentifier() else json_line(name)
        lines.append(f"{_comment(fields.get('description'))}{key}{optional}: {_type(fields, depth)},{default}\n")
    return "{\n" + "".join(lines) + "}"


def _type(schema: Json, depth: int) -> str:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return "any"
    if isinstance(values := schema.get("enum"), list):
        return " | ".join(map(json_line, values))
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return " | ".join(dict.fromkeys(_type(choice, depth + 1) for choice in choices))
    match schema.get("type"):
        case "array":
            return f"{_type(schema.get('items'), depth + 1)}[]"
        case "object" if schema.get("properties"):
            return _members(schema, depth + 1)
        case str(kind):
            return _PLAIN.get(kind, "any")
        case list(kinds):
            return " | ".join(_type({**schema, "type": kind}, depth + 1) for kind in kinds)
        case _:
            return "any"
