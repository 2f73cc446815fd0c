"""Tools of a client that its model's server does not know, made into plain functions, or left out.

    the client declares                  the server gets                                   a call comes back
    ----------------------------------   -----------------------------------------------   ---------------------------
    a namespace with functions           the functions, as NAMESPACE__NAME                 with its name and namespace
    further tools in the conversation    the tools, with the others                        as it was declared
    a custom tool, which takes free      a function with that text as its one argument     as a custom call, with its
      text                                                                                   whole input at once
    a provider's own tool                nothing, or the request is refused                -

Names stay unique and valid: if NAMESPACE__NAME is too long, or another tool has it, it gets a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from toolrelay.core.events import CallStarted, StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, CallKind, Item, Result
from toolrelay.core.request import ALLOWED_TOOLS, AnyTool, OpaqueTool, Request, Tool, ToolChoice
from toolrelay.errors import ClientError, invalid
from toolrelay.toolcalls.custom_tools import CustomCalls, as_function, as_function_call, is_custom
from toolrelay.toolcalls.names import make_valid_name
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.wires.responses.request import NAME as RESPONSES
from toolrelay.wires.responses.tool_groups import is_tool_group

MAX_SHOWN = 100  # characters of a tool's type

_NAMESPACE = OpaqueTool(wire=RESPONSES, raw={"type": "namespace"}, namespace="any")
_Key = tuple[str, str]  # namespace, name


class FlatTools:
    """One request with plain functions only. `dropped` are the types of tools that were left out."""

    def __init__(self, request: Request, options: ToolCallOptions) -> None:
        self._options = options
        self._flat_names: dict[_Key, str] = {}
        self._keys: dict[str, _Key] = {}
        self._taken = {tool.name for tool in request.functions()}
        self._custom_names: set[str] = set()
        self._kinds: dict[str, CallKind] = {}  # of the tools of namespaces, by their flat names
        self.dropped: list[str] = []
        tools = tuple(self._flatten_tools(request.tools))
        choice = request.tool_choice
        if choice is not None:
            choice = replace(choice, names=tuple((self._flat_kind(kind), name) for kind, name in choice.names))
        if choice is not None and choice.raw is not None and not self._passes_choice(choice.raw, request.tools):
            choice = self._flatten_choice(choice, choice.raw, tools)
        if choice is not None and choice.mode == "required" and request.tools and not tools:
            raise _unsupported(self.dropped[0], "tool_choice")
        self.request = replace(
            request, tools=tools, tool_choice=choice if tools else None, items=tuple(self._flatten_items(request.items))
        )
        self._custom_calls = CustomCalls(self._custom_names)

    # Tools

    def _flatten_tools(self, tools: Iterable[AnyTool]) -> Iterator[AnyTool]:
        """Yield each tool once: the conversation may repeat a declaration."""
        seen: set[tuple[CallKind, str]] = set()
        for tool in self._expand(tools):
            if not isinstance(tool, Tool):
                yield tool
                continue
            declared = as_function(tool) if _flattens_custom_tools(self._options) else tool
            if (declared.kind, declared.name) in seen:
                continue
            seen.add((declared.kind, declared.name))
            if declared.kind != tool.kind:
                self._custom_names.add(tool.name)
            if tool.name in self._keys:
                self._kinds[tool.name] = declared.kind
            yield declared

    def _expand(self, tools: Iterable[AnyTool]) -> Iterator[AnyTool]:
        for tool in tools:
            if isinstance(tool, Tool):
                yield tool
            elif tool.in_input:
                yield from self._expand(tool.tools)
            elif tool.namespace is not None:
                for inner in tool.tools:
                    if isinstance(inner, Tool):
                        yield replace(inner, name=self._flat_name((tool.namespace, inner.name)))
            elif self._options.passes_tool(tool):
                yield tool
            else:
                self._drop(_type_of(tool))

    def _drop(self, kind: str) -> None:
        if self._options.on_unsupported_tool == "refuse":
            raise _unsupported(kind, "tools")
        if kind not in self.dropped:
            self.dropped.append(kind)

    def _flat_name(self, key: _Key) -> str:
        name = self._flat_names.get(key)
        if name is None:
            name = make_valid_name("__".join(key), self._taken, seed="\0".join(key))
            self._taken.add(name)
            self._flat_names[key] = name
            self._keys[name] = key
        return name

    def _flat_kind(self, kind: CallKind) -> CallKind:
        return "function" if _flattens_custom_tools(self._options) else kind

    # tool_choice

    def _passes_choice(self, raw: JsonObject, tools: Sequence[AnyTool]) -> bool:
        """Return whether the server knows the one tool that the choice names."""
        wanted = raw.get("type")
        return any(
            isinstance(tool, OpaqueTool) and tool.raw.get("type") == wanted and self._options.passes_tool(tool) for tool in tools
        )

    def _flatten_choice(self, choice: ToolChoice, raw: JsonObject, tools: Sequence[AnyTool]) -> ToolChoice:
        """Return the choice by flat names, or refuse one that names only tools that the server does not know."""
        if raw.get("type") != ALLOWED_TOOLS:
            names = self._resolve(raw)
            if not names:
                raise _unsupported(str(raw.get("type"))[:MAX_SHOWN], "tool_choice")
            return ToolChoice(mode="named", names=names[:1])
        nested = raw.get(ALLOWED_TOOLS)
        listed = (nested if isinstance(nested, dict) else raw).get("tools")
        names = (*choice.names, *(name for entry in _objects(listed) for name in self._resolve(entry)))
        if not names:
            raise _unsupported(ALLOWED_TOOLS, "tool_choice")
        declared = {(tool.kind, tool.name) for tool in tools if isinstance(tool, Tool)}
        for kind, name in names:
            if (kind, name) not in declared:
                raise invalid(f"tool_choice names the tool {name!r}, which is not in tools.", "tool_choice", code="unknown_tool")
        return ToolChoice(mode=choice.mode, names=names)

    def _resolve(self, raw: JsonObject) -> tuple[tuple[CallKind, str], ...]:
        """Return the tools that an object names: a function of a namespace, or all functions of one."""
        kind = self._flat_kind("custom" if raw.get("type") == "custom" else "function")
        name, namespace = raw.get("name"), raw.get("namespace")
        if raw.get("type") == "namespace":
            return tuple((self._kinds[flat], flat) for (owner, _), flat in self._flat_names.items() if owner == name)
        if not isinstance(name, str) or not isinstance(namespace, str):
            return ()
        flat = self._flat_names.get((namespace, name))
        if flat is None:
            message = f"tool_choice names the tool {name!r} of the namespace {namespace!r}, which is not in tools."
            raise invalid(message, "tool_choice", code="unknown_tool")
        return ((kind, flat),)

    # Calls

    def _flatten_items(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if type(item) is Call:
                call = as_function_call(item) if _flattens_custom_tools(self._options) else item
                if call.namespace is not None:
                    call = replace(call, name=self._flat_name((call.namespace, call.name)), namespace=None)
                yield call
            elif type(item) is Result and _flattens_custom_tools(self._options):
                yield replace(item, kind="function")
            elif not is_tool_group(item):
                yield item

    def restore(self, events: Sequence[StreamEvent]) -> Sequence[StreamEvent]:
        """Give calls the names and kinds that the client declared."""
        if self._custom_names:
            events = self._custom_calls.restore(events)
        if not any(type(event) is CallStarted and event.name in self._keys for event in events):
            return events
        return [self._restore_call(event) if type(event) is CallStarted else event for event in events]

    def _restore_call(self, event: CallStarted) -> CallStarted:
        key = self._keys.get(event.name)
        return event if key is None else replace(event, namespace=key[0], name=key[1])


def needs_flattening(request: Request, options: ToolCallOptions) -> bool:
    """Return whether the model's server would not understand a tool, or a call of the conversation."""
    if _flattens_custom_tools(options) and (any(map(_has_custom_tool, request.tools)) or any(map(is_custom, request.items))):
        return True
    if any(isinstance(tool, OpaqueTool) and not _passes(tool, options) for tool in request.tools):
        return True
    if request.wire != RESPONSES or _passes(_NAMESPACE, options):
        return False
    return any(is_tool_group(item) or (type(item) is Call and item.namespace is not None) for item in request.items)


def _flattens_custom_tools(options: ToolCallOptions) -> bool:
    """A model that prints its calls is told of custom tools in a way of its own."""
    return options.native and not options.takes_custom_tools


def _has_custom_tool(tool: AnyTool) -> bool:
    return tool.kind == "custom" if isinstance(tool, Tool) else any(map(_has_custom_tool, tool.tools))


def _passes(tool: OpaqueTool, options: ToolCallOptions) -> bool:
    """A model that prints its calls is told of functions only."""
    is_group = tool.in_input or tool.namespace is not None
    return options.passes_tool(tool) and (options.native or not is_group)


def _objects(value: object) -> list[JsonObject]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _type_of(tool: OpaqueTool) -> str:
    return str(tool.raw.get("type"))[:MAX_SHOWN]


def _unsupported(kind: str, param: str) -> ClientError:
    message = f"The model's server cannot run the tool {kind!r}, which only its provider's own API knows."
    return ClientError(message, param=param, code="unsupported_by_upstream")
