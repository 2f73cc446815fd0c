"""How dialects write what they share: a tool, a call, its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str)


def json_line(value: Json) -> str:
    """As chat templates write JSON (`tojson`): on one line, blanks after separators, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False)


def openai_tool(tool: Tool) -> JsonObject:
    """A tool as OpenAI declares it, which is how templates get it."""
    return {"type": "function", "function": function(tool)}


def function(tool: Tool) -> JsonObject:
    described: JsonObject = {"name": tool.name}
    if tool.description is not None:
        described["description"] = tool.description
    described["parameters"] = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    return described


def json_object(call: Call, key: str = "arguments") -> str:
    """`{"name": "f", "arguments": {…}}`. The arguments are the model's own text."""
    return f'{{"name": {json_line(call.name)}, "{key}": {arguments(call)}}}'


def arguments(call: Call) -> str:
    return call.arguments if call.arguments.strip() else "{}"


class Argument(msgspec.Struct, frozen=True):
    """One argument: its own JSON, and its text where it is a string."""

    name: str
    json: str
    text: str | None

    @property
    def plain(self) -> str:
        """As it stands in a tag: a string as it is, anything else as JSON."""
        return self.json if self.text is None else self.text


def listed(call: Call) -> list[Argument]:
    """The arguments one by one, unchanged. Arguments that are no JSON object are one, by the name of `arguments`."""
    try:
        members = _members.decode(arguments(call).encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return [Argument("arguments", json_line(call.arguments), call.arguments)]
    return list(_each(members.items()))


def _each(members: Iterable[tuple[str, msgspec.Raw]]) -> Iterable[Argument]:
    for name, raw in members:
        written = bytes(raw)
        yield Argument(name, written.decode(), _string.decode(written) if written.startswith(b'"') else None)
