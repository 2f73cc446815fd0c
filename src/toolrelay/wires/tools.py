"""Tool declarations and tool choices, in the two shapes that OpenAI's APIs use. Both endpoints take both."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.core.request import ALLOWED_TOOLS, AnyTool, OpaqueTool, Tool, ToolChoice
from toolrelay.errors import ClientError, invalid
from toolrelay.wires.extra import unknown_members
from toolrelay.wires.json import convert


class _Declaration(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


class _ToolGroup(Struct):
    tools: list[dict[str, Any]]


class _Namespace(_ToolGroup):
    name: str


_MAX_SHOWN = 100
_KNOWN = frozenset({"type", "function", "custom", *_Declaration.__struct_fields__})
_NESTED = dict.fromkeys(("function", "custom"), frozenset(_Declaration.__struct_fields__))


def decode_tools(
    raw: list[dict[str, Any]], wire: str, *, param: str = "tools", is_nested: bool = False, before: tuple[AnyTool, ...] = ()
) -> tuple[AnyTool, ...]:
    """Decode tools in the client's order. Tools that only the wire's own provider can run stay as they are.

    `is_nested`: the wire's own shape is nested, and unknown members keep their level. `before` are tools declared elsewhere.
    """
    if not raw:
        return ()
    tools = tuple(_decode_tool(tool, wire, f"{param}[{number}]", is_nested=is_nested) for number, tool in enumerate(raw))
    seen = {(tool.kind, tool.name) for tool in before if isinstance(tool, Tool)}
    for number, tool in enumerate(tools):
        if isinstance(tool, Tool):
            if (tool.kind, tool.name) in seen:
                raise invalid(f"The tool {tool.name!r} is declared twice.", f"{param}[{number}]", code="duplicate_tool")
            seen.add((tool.kind, tool.name))
    return tools


def _decode_tool(raw: dict[str, Any], wire: str, param: str, *, is_nested: bool) -> AnyTool:
    if raw.get("type") == "namespace" and isinstance(raw.get("tools"), list):
        return _decode_namespace(raw, wire, param)
    if (raw.get("type") or "function") not in ("function", "custom"):
        return OpaqueTool(wire=wire, raw=raw)
    kind: CallKind = "custom" if raw.get("type") == "custom" else "function"
    members, param = _unnest(raw, kind, param)
    tool = convert(members, _Declaration, param)
    if not tool.name:
        raise invalid("A tool needs a name.", f"{param}.name")
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
        kind=kind,
        format=_flatten_format(tool.format),
        extra=unknown_members(raw, _KNOWN, _NESTED) if is_nested else unknown_members({**raw, **members}, _KNOWN),
    )


def _decode_namespace(raw: dict[str, Any], wire: str, param: str) -> OpaqueTool:
    """Decode a group of functions. Other tools in it are its provider's business."""
    namespace = convert(raw, _Namespace, param)
    if not namespace.name:
        raise invalid("A namespace needs a name.", f"{param}.name")
    tools = [_decode_tool(tool, wire, f"{param}.tools[{number}]", is_nested=False) for number, tool in enumerate(namespace.tools)]
    return OpaqueTool(wire=wire, raw=raw, namespace=namespace.name, tools=tuple(tool for tool in tools if isinstance(tool, Tool)))


def decode_tool_group(raw: dict[str, Any], wire: str, param: str) -> OpaqueTool:
    """Decode an item of the conversation that declares further tools (additional_tools)."""
    tools = decode_tools(convert(raw, _ToolGroup, param).tools, wire, param=f"{param}.tools")
    return OpaqueTool(wire=wire, raw=raw, tools=tools, in_input=True)


def _flatten_format(form: dict[str, Any] | None) -> JsonObject | None:
    """Chat nests a grammar one level deeper than Responses; the core keeps the flat form."""
    if form and isinstance(form.get("grammar"), dict):
        return {"type": form.get("type"), **form["grammar"]}
    return form


def nest_format(form: JsonObject) -> JsonObject:
    """Return a custom tool's format as Chat writes it."""
    if form.get("type") != "grammar":
        return form
    return {"type": "grammar", "grammar": {key: value for key, value in form.items() if key != "type"}}


class _NamedTool(Struct):
    name: str


class _AllowedTools(Struct):
    tools: list[dict[str, Any]]
    mode: Literal["auto", "required"] = "auto"


def decode_tool_choice(raw: str | dict[str, Any], *, param: str = "tool_choice") -> ToolChoice:
    match raw:
        case dict():
            return _decode_choice_object(raw, param)
        case "auto" | "none" | "required":
            return ToolChoice(mode=raw)
        case "any":  # Mistral's name for it
            return ToolChoice(mode="required")
        case _:
            raise _invalid_choice(raw, param)


def _decode_choice_object(raw: dict[str, Any], param: str) -> ToolChoice:
    match raw.get("type"):
        case "function" | "custom" as kind:
            if _is_in_namespace(raw):
                return ToolChoice(mode="named", raw=raw)
            return ToolChoice(mode="named", names=(_decode_name(raw, kind, param),))
        case "allowed_tools":
            members, param = _unnest(raw, ALLOWED_TOOLS, param)
            allowed = convert(members, _AllowedTools, param)
            if not allowed.tools:
                raise invalid("allowed_tools must name at least one tool.", f"{param}.tools", code="empty_array")
            names = tuple(
                _decode_name(tool, "custom" if tool["type"] == "custom" else "function", f"{param}.tools[{number}]")
                for number, tool in enumerate(allowed.tools)
                if tool.get("type") in ("function", "custom") and not _is_in_namespace(tool)
            )
            return ToolChoice(mode=allowed.mode, names=names, raw=raw if len(names) < len(allowed.tools) else None)
        case str():
            return ToolChoice(raw=raw)
        case _:
            raise _invalid_choice(raw, param)


def _is_in_namespace(raw: dict[str, Any]) -> bool:
    return isinstance(raw.get("namespace"), str)


def _invalid_choice(raw: object, param: str) -> ClientError:
    expected = "'auto', 'none', 'required' or an object that names a tool"
    got = repr(raw[:_MAX_SHOWN]) if isinstance(raw, str) else "an object of no such kind"
    return invalid(f"Invalid value for {param!r}: expected {expected}, got {got}.", param, code="invalid_value")


def _unnest(raw: dict[str, Any], name: str, param: str) -> tuple[dict[str, Any], str]:
    """Return the members that one of the two shapes nests under a name, and their path."""
    nested = raw.get(name)
    return (nested, f"{param}.{name}") if isinstance(nested, dict) else (raw, param)


def _decode_name(raw: dict[str, Any], kind: CallKind, param: str) -> tuple[CallKind, str]:
    members, param = _unnest(raw, kind, param)
    return kind, convert(members, _NamedTool, param).name
