"""Tool declarations and choices: both shapes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import OpaqueTool, Tool, ToolChoice
from toolrelay.errors import ClientError
from toolrelay.wires.tools import decode_tool_choice, decode_tools, nest_format

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
NESTED: dict[str, Any] = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
FLAT: dict[str, Any] = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True}


def refusal(raw: Any, **members: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        decode_tools(raw, "a_wire", **members)
    assert caught.value.status == 400
    return caught.value


def choice_refusal(raw: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        decode_tool_choice(raw)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("raw", [NESTED, FLAT])
def test_both_shapes_of_a_function_decode_to_the_same_tool(raw: dict[str, Any], is_nested: bool) -> None:  # noqa: FBT001 -- a parameter of pytest
    assert decode_tools([raw], "a_wire", is_nested=is_nested) == (
        Tool(name="f", description="d", parameters=SCHEMA, strict=True),
    )


def test_null_members_equal_missing_members() -> None:
    raw = {"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": None}}
    assert decode_tools([raw], "a_wire") == (Tool(name="f"),)


@pytest.mark.parametrize("kind", [{}, {"type": None}])
def test_tool_without_a_type_is_a_function(kind: dict[str, Any]) -> None:
    assert decode_tools([{**kind, "name": "f"}], "a_wire") == (Tool(name="f"),)


def test_both_shapes_of_a_grammar_decode_to_the_flat_one() -> None:  # bug 33
    flat: JsonObject = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    nested = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    tool = Tool(name="c", kind="custom", format=flat)
    assert decode_tools([{"type": "custom", "custom": {"name": "c", "format": nested}}], "a_wire") == (tool,)
    assert decode_tools([{"type": "custom", "name": "c", "format": flat}], "a_wire") == (tool,)
    assert nest_format(flat) == nested
    assert nest_format({"type": "text"}) == {"type": "text"}


def test_provider_tool_is_opaque() -> None:
    raw: JsonObject = {"type": "web_search", "name": 5, "filters": None}
    assert decode_tools([raw], "a_wire") == (OpaqueTool(wire="a_wire", raw=raw),)


def test_unknown_members_of_a_nested_tool_keep_their_level() -> None:
    raw = {"type": "function", "function": {"name": "f", "inner": 1}, "outer": 2}
    (tool,) = decode_tools([raw], "a_wire", is_nested=True)
    assert isinstance(tool, Tool)
    assert tool.extra == {"outer": 2, "function": {"inner": 1}}


def test_unknown_members_of_a_nested_tool_are_flattened_on_a_flat_wire() -> None:
    raw = {"type": "function", "function": {"name": "f", "inner": 1}, "outer": 2}
    (tool,) = decode_tools([raw], "a_wire")
    assert isinstance(tool, Tool)
    assert tool.extra == {"outer": 2, "inner": 1}


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ({"type": "function", "function": {"description": "d"}}, "tools[1].function.name"),
        ({"type": "function", "function": {"name": ""}}, "tools[1].function.name"),
        ({"type": "function"}, "tools[1].name"),
        ({"type": "function", "function": {"name": 5}}, "tools[1].function.name"),
        ({"type": "function", "function": {"name": "g", "parameters": "{}"}}, "tools[1].function.parameters"),
        ({"type": "function", "function": {"name": "g", "strict": "yes"}}, "tools[1].function.strict"),
        ({"type": "custom", "custom": {"name": "g", "format": []}}, "tools[1].custom.format"),
        ({"type": "custom", "custom": {}}, "tools[1].custom.name"),
    ],
)
def test_invalid_tool_is_refused_with_its_path(raw: dict[str, Any], param: str) -> None:
    assert refusal([NESTED, raw]).param == param


def test_duplicate_tool_name_is_refused() -> None:
    error = refusal([NESTED, FLAT])
    assert (error.param, error.code) == ("tools[1]", "duplicate_tool")
    assert "'f'" in error.message


def test_error_names_the_parameter_that_the_client_used() -> None:
    assert refusal([{"description": "d"}], param="functions").param == "functions[0].name"


@pytest.mark.parametrize(
    ("raw", "choice"),
    [
        ("auto", ToolChoice(mode="auto")),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ("any", ToolChoice(mode="required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice(mode="named", names=(("function", "f"),))),
        ({"type": "function", "name": "f"}, ToolChoice(mode="named", names=(("function", "f"),))),
        ({"type": "custom", "custom": {"name": "c"}}, ToolChoice(mode="named", names=(("custom", "c"),))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "c"}}],
                },
            },
            ToolChoice(mode="required", names=(("function", "f"), ("custom", "c"))),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice(mode="auto", names=(("function", "f"),)),
        ),
        ({"type": "web_search"}, ToolChoice(raw={"type": "web_search"})),
    ],
)
def test_every_shape_of_a_choice_is_decoded(raw: Any, choice: ToolChoice) -> None:  # bug 26
    assert decode_tool_choice(raw) == choice


def test_allowed_tools_with_a_provider_tool_stay_raw_and_name_the_others() -> None:
    tools: list[Json] = [{"type": "function", "name": "f"}, {"type": "web_search"}, {"type": "custom", "name": "c"}]
    raw: JsonObject = {"type": "allowed_tools", "mode": "required", "tools": tools}
    assert decode_tool_choice(raw) == ToolChoice(mode="required", names=(("function", "f"), ("custom", "c")), raw=raw)


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ("sometimes", "tool_choice"),
        ({}, "tool_choice"),
        ({"type": 5}, "tool_choice"),
        ({"function": {"name": "f"}}, "tool_choice"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "function": {}}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": None}}, "tool_choice.function.name"),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tool_choice.allowed_tools.tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": []}}, "tool_choice.allowed_tools.mode"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}},
            "tool_choice.allowed_tools.tools[0].name",
        ),
    ],
)
def test_invalid_choice_is_refused_with_its_path(raw: Any, param: str) -> None:
    assert choice_refusal(raw).param == param


def test_long_invalid_choice_is_truncated_in_the_error() -> None:
    assert len(choice_refusal("x" * 10_000).message) < 400
    assert len(choice_refusal({"y": "x" * 10_000}).message) < 400
