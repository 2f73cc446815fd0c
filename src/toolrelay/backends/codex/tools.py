"""A client's tools as Codex takes them: functions under names that it neither refuses nor swallows, and calls read back.

Codex refuses the name `mcp` and names that begin with `mcp__`. `exec_command` and `shell_command` it takes and then leaves out of
what the model is offered, without a word, because it hides tools of its own under these names. A custom tool takes free text,
which Codex has no word for: it is offered as a function with that text as its one argument.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, CallKind
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.toolcalls.names import Names

# Its own tools, by the names under which models know them. A call of one is no client's, unless a client has such a tool.
BUILT_IN = frozenset(
    {
        "shell", "shell_command", "local_shell", "exec", "exec_command", "wait", "write_stdin", "apply_patch", "update_plan",
        "view_image", "request_user_input",
    }
)  # fmt: skip

_UNUSABLE = frozenset({"mcp", "exec_command", "shell_command"})
_RESERVED = "mcp__"
_AWAY = "client\0"  # which makes core.names look for another spelling

_ANYTHING: JsonObject = {"type": "object", "properties": {}}
_FREE_TEXT: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}

_encode = msgspec.json.Encoder().encode


class Tools:
    """The tools of one request. `offered` are those that the model may call now, by the name that it knows them under.

    `taken` are names that Codex's own tools have.
    """

    def __init__(self, request: Request, taken: Collection[str] = ()) -> None:
        self._unusable = _UNUSABLE.union(taken)
        self._names = Names(self._usable(tool.name) for tool in request.functions())
        self.offered = {self.to_model(tool.name): tool for tool in _allowed(request)}

    def to_model(self, name: str) -> str:
        return self._names.to_model(self._usable(name))

    def _usable(self, name: str) -> str:
        return _AWAY + name if name in self._unusable or name.startswith((_RESERVED, _AWAY)) else name

    def declared(self) -> list[JsonObject]:
        """What `thread/start` takes as dynamicTools."""
        return [
            {
                "type": "function",
                "name": name,
                "description": tool.description or "",
                "inputSchema": _FREE_TEXT if tool.kind == "custom" else tool.parameters or _ANYTHING,
            }
            for name, tool in self.offered.items()
        ]

    def item(self, call: Call) -> JsonObject:
        """A call of the past."""
        arguments = call.arguments or "{}"
        if call.kind == "custom":
            arguments = _encode({"input": call.arguments}).decode()
        item: JsonObject = {
            "type": "function_call",
            "call_id": call.id,
            "name": self.to_model(call.name),
            "arguments": arguments,
        }
        if call.namespace is not None:
            item["namespace"] = call.namespace
        return item


def given(tool: Tool, arguments: str) -> tuple[CallKind, str]:
    """What the tool is called with, in the client's own form of it."""
    if tool.kind == "function":
        return "function", arguments
    said = msgspec.json.decode(arguments).get("input")
    return "custom", said if isinstance(said, str) else arguments


def _allowed(request: Request) -> list[Tool]:
    """None, all, or those that tool_choice names: Codex itself knows no tool_choice."""
    choice = request.tool_choice or ToolChoice()
    if choice.mode == "none":
        return []
    return [tool for tool in request.functions() if not choice.names or (tool.kind, tool.name) in choice.names]
