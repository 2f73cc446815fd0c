"""Tool declarations and tool choices, in the two shapes that OpenAI's APIs use; both doors take both."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.core.request import AnyTool, OpaqueTool, Tool, ToolChoice
from toolrelay.errors import ClientError, invalid
from toolrelay.wires._json import convert


class _Declaration(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


_KNOWN = frozenset({"type", "function", "custom", *_Declaration.__struct_fields__})


def decode_tools(raw: list[dict[str, Any]], wire: str, *, param: str = "tools") -> tuple[AnyTool, ...]:
    """In the client's order. A tool that only the wire's own provider can run stays as it is."""
    tools = tuple(_decode_tool(tool, wire, f"{param}[{number}]") for number, tool in enumerate(raw))
    seen: set[tuple[str, str]] = set()
    for number, tool in enumerate(tools):
        if isinstance(tool, Tool):
            if (tool.kind, tool.name) in seen:
                raise invalid(f"The tool {tool.name!r} is declared twice.", f"{param}[{number}]", code="duplicate_tool")
            seen.add((tool.kind, tool.name))
    return tools


def _decode_tool(raw: dict[str, Any], wire: str, place: str) -> AnyTool:
    kind = raw.get("type", "function")
    if kind not in ("function", "custom"):
        return OpaqueTool(wire=wire, raw=raw)
    nested = raw.get(kind)
    members = nested if isinstance(nested, dict) else raw
    where = f"{place}.{kind}" if members is nested else place
    tool = convert(members, _Declaration, where)
    if not tool.name:
        raise invalid("A tool needs a name.", f"{where}.name")
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
        kind=kind,
        format=_flat_format(tool.format),
        extra={key: value for key, value in {**raw, **members}.items() if key not in _KNOWN} or None,
    )


def _flat_format(form: dict[str, Any] | None) -> JsonObject | None:
    """Chat nests a grammar once more than Responses; the core keeps the flat form."""
    if form and isinstance(form.get("grammar"), dict):
        return {"type": form.get("type"), **form["grammar"]}
    return form


def nested_format(form: JsonObject) -> JsonObject:
    """The form as Chat writes it."""
    if form.get("type") != "grammar":
        return form
    return {"type": "grammar", "grammar": {key: value for key, value in form.items() if key != "type"}}


class _Named(Struct):
    name: str


class _Allowed(Struct):
    tools: list[dict[str, Any]]
    mode: Literal["auto", "required"] = "auto"


def decode_tool_choice(raw: str | dict[str, Any], *, param: str = "tool_choice") -> ToolChoice:
    if isinstance(raw, dict):
        return _decode_choice_object(raw, param)
    match raw:
        case "auto" | "none" | "required":
            return ToolChoice(mode=raw)
        case "any":  # Mistral's word, which its clients bring along
            return ToolChoice(mode="required")
        case _:
            raise _not_a_choice(raw, param)


def _decode_choice_object(raw: dict[str, Any], param: str) -> ToolChoice:
    match raw.get("type"):
        case "function" | "custom" as kind:
            return ToolChoice(mode="named", names=(_named(raw, kind, param),))
        case "allowed_tools":
            nested = raw.get("allowed_tools")
            allowed = convert(nested if isinstance(nested, dict) else raw, _Allowed, param)
            names = tuple(
                _named(tool, "custom" if tool.get("type") == "custom" else "function", f"{param}.tools[{number}]")
                for number, tool in enumerate(allowed.tools)
            )
            return ToolChoice(mode=allowed.mode, names=names)
        case str():
            return ToolChoice(raw=raw)
        case _:
            raise _not_a_choice(raw, param)


def _not_a_choice(raw: object, param: str) -> ClientError:
    expected = "'auto', 'none', 'required' or an object that names a tool"
    return invalid(f"Invalid value for {param!r}: expected {expected}, got {raw!r}.", param, code="invalid_value")


def _named(raw: dict[str, Any], kind: CallKind, param: str) -> tuple[CallKind, str]:
    nested = raw.get(kind)
    return kind, convert(nested if isinstance(nested, dict) else raw, _Named, param).name
