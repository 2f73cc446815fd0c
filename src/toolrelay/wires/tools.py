"""Tool declarations and tool choices, in the two shapes that OpenAI's APIs use; both doors take both."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.core.request import AnyTool, OpaqueTool, Tool, ToolChoice
from toolrelay.errors import ClientError, invalid
from toolrelay.wires.extra import rest
from toolrelay.wires.json import convert


class _Declaration(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


_LONGEST = 100
_KNOWN = frozenset({"type", "function", "custom", *_Declaration.__struct_fields__})
_INNER = dict.fromkeys(("function", "custom"), frozenset(_Declaration.__struct_fields__))


def decode_tools(
    raw: list[dict[str, Any]], wire: str, *, param: str = "tools", nests: bool = False, before: tuple[AnyTool, ...] = ()
) -> tuple[AnyTool, ...]:
    """In the client's order. A tool that only the wire's own provider can run stays as it is.

    `nests`: the wire's own shape is the nested one, and unknown members keep their level. `before` are tools already declared.
    """
    if not raw:
        return ()
    tools = tuple(_decode_tool(tool, wire, f"{param}[{number}]", nests=nests) for number, tool in enumerate(raw))
    seen = {(tool.kind, tool.name) for tool in before if isinstance(tool, Tool)}
    for number, tool in enumerate(tools):
        if isinstance(tool, Tool):
            if (tool.kind, tool.name) in seen:
                raise invalid(f"The tool {tool.name!r} is declared twice.", f"{param}[{number}]", code="duplicate_tool")
            seen.add((tool.kind, tool.name))
    return tools


def _decode_tool(raw: dict[str, Any], wire: str, place: str, *, nests: bool) -> AnyTool:
    if (raw.get("type") or "function") not in ("function", "custom"):
        return OpaqueTool(wire=wire, raw=raw)
    kind: CallKind = "custom" if raw.get("type") == "custom" else "function"
    members, where = _members(raw, kind, place)
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
        extra=rest(raw, _KNOWN, _INNER) if nests else rest({**raw, **members}, _KNOWN),
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
            members, param = _members(raw, "allowed_tools", param)
            allowed = convert(members, _Allowed, param)
            if not allowed.tools:
                raise invalid("allowed_tools must name at least one tool.", f"{param}.tools", code="empty_array")
            if any(tool.get("type") not in ("function", "custom") for tool in allowed.tools):
                return ToolChoice(raw=raw)
            names = tuple(
                _named(tool, "custom" if tool["type"] == "custom" else "function", f"{param}.tools[{number}]")
                for number, tool in enumerate(allowed.tools)
            )
            return ToolChoice(mode=allowed.mode, names=names)
        case str():
            return ToolChoice(raw=raw)
        case _:
            raise _not_a_choice(raw, param)


def _not_a_choice(raw: object, param: str) -> ClientError:
    expected = "'auto', 'none', 'required' or an object that names a tool"
    got = repr(raw[:_LONGEST]) if isinstance(raw, str) else "an object of no such kind"
    return invalid(f"Invalid value for {param!r}: expected {expected}, got {got}.", param, code="invalid_value")


def _members(raw: dict[str, Any], name: str, param: str) -> tuple[dict[str, Any], str]:
    """The members that one of the two shapes nests under a name, and where they stand."""
    nested = raw.get(name)
    return (nested, f"{param}.{name}") if isinstance(nested, dict) else (raw, param)


def _named(raw: dict[str, Any], kind: CallKind, param: str) -> tuple[CallKind, str]:
    members, param = _members(raw, kind, param)
    return kind, convert(members, _Named, param).name
