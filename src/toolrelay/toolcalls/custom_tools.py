"""Custom tools, which take free text, as functions with that text as their one argument."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool

_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class _Arguments(msgspec.Struct):
    input: str


_decode = msgspec.json.Decoder(_Arguments).decode
_encode = msgspec.json.Encoder().encode


def as_function(tool: Tool) -> Tool:
    if tool.kind != "custom":
        return tool
    grammar = tool.format.get("definition") if tool.format is not None else None
    lines = [tool.description or ""]
    if tool.format is not None and isinstance(grammar, str):
        lines.append(f"Its input has to match this grammar ({tool.format.get('syntax', 'lark')}): {grammar}")
    return replace(tool, kind="function", format=None, parameters=_PARAMETERS, description="\n".join(filter(None, lines)) or None)


def as_function_call(call: Call) -> Call:
    if call.kind != "custom":
        return call
    return replace(call, kind="function", arguments=_encode(_Arguments(call.arguments)).decode())


def decode_input(arguments: str) -> str:
    """Return the custom tool's input from the arguments of the function call; invalid arguments are returned as they are."""
    try:
        return _decode(arguments).input
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
