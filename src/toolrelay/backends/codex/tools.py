"""Tools of the client as Codex accepts them: declared functions with usable names, encoded calls, decoded arguments.

Codex refuses the name `mcp` and names that start with `mcp__`. It accepts `exec_command` and `shell_command` but never offers
them to the model, because it hides its own tools of these names. A custom tool takes free text, for which Codex has no
declaration: it is declared as a function with that text as its only argument.
"""

from __future__ import annotations

from collections.abc import Collection

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, CallKind
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.toolcalls.custom_tools import as_function, as_function_call, decode_input
from toolrelay.toolcalls.names import ToolNames

# Codex's own tools, by the names that models know. A call of one is never passed to a client that has no such tool.
BUILTIN_TOOLS = frozenset(
    {
        "shell", "shell_command", "local_shell", "exec", "exec_command", "wait", "write_stdin", "apply_patch", "update_plan",
        "view_image", "request_user_input",
    }
)  # fmt: skip

_UNUSABLE_NAMES = frozenset({"mcp", "exec_command", "shell_command"})
_RESERVED_PREFIX = "mcp__"
_RENAME_PREFIX = "client\0"  # \0 is not allowed in names, so that ToolNames chooses another spelling

_ANY_OBJECT: JsonObject = {"type": "object", "properties": {}}


class CodexTools:
    """The tools of one request. `offered` are those that the model may call now, by their names in Codex.

    `reserved` are further names that Codex uses for its own tools.
    """

    def __init__(self, request: Request, reserved: Collection[str] = ()) -> None:
        self._unusable = _UNUSABLE_NAMES.union(reserved)
        self._names = ToolNames(self._usable(tool.name) for tool in request.functions())
        self.offered = {self._to_model(tool.name): tool for tool in _allowed(request)}

    def _to_model(self, name: str) -> str:
        return self._names.to_model(self._usable(name))

    def _usable(self, name: str) -> str:
        must_rename = name in self._unusable or name.startswith((_RESERVED_PREFIX, _RENAME_PREFIX))
        return _RENAME_PREFIX + name if must_rename else name

    def declarations(self) -> list[JsonObject]:
        """Return the dynamicTools of thread/start."""
        return [
            {
                "type": "function",
                "name": name,
                "description": tool.description or "",
                "inputSchema": tool.parameters or _ANY_OBJECT,
            }
            for name, tool in ((name, as_function(tool)) for name, tool in self.offered.items())
        ]

    def encode_call(self, call: Call) -> JsonObject:
        """Encode a call of the conversation's history."""
        arguments = as_function_call(call).arguments or "{}"
        name = self._to_model(call.name)
        item: JsonObject = {"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments}
        if call.namespace is not None:
            item["namespace"] = call.namespace
        return item


def decode_arguments(tool: Tool, arguments: str) -> tuple[CallKind, str]:
    """Return the kind and the arguments as the client declared the tool."""
    return tool.kind, arguments if tool.kind == "function" else decode_input(arguments)


def _allowed(request: Request) -> list[Tool]:
    """Return the tools that tool_choice allows; Codex itself has no tool_choice."""
    choice = request.tool_choice or ToolChoice()
    return [tool for tool in request.functions() if choice.allows(tool.kind, tool.name)]
