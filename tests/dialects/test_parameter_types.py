"""Types of parameters, and the coercion of plain text to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.scanning import tool
from toolrelay.core.request import Tool
from toolrelay.dialects.parameter_types import ANY, Parameters, coerce, types_of

STRING = {"string"}
NUMBER = {"number", "integer"}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, STRING),
        ({"type": "number"}, NUMBER),
        ({"type": "integer"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"string", "integer"}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["string", "integer"]}]}, STRING),
        ({"$ref": "#/$defs/A"}, {"integer"}),
        ({"$ref": "#/$defs/A", "description": "x"}, {"integer"}),
        ({"$ref": "#/$defs/list/anyOf/1"}, {"boolean"}),
        ({"$ref": "#/$defs/a~1b"}, {"array"}),
        ({"$ref": "#/$defs/caf%C3%A9%20name"}, {"object"}),
        ({"$ref": "#/$defs/a%7E1b"}, {"array"}),
        ({"$ref": "#/$defs/%FF"}, ANY),
        ({"$ref": "#/$defs/none"}, ANY),
        ({"type": ["string", "null"], "not": {"type": "null"}}, STRING),
        ({"type": ["string", "null"], "not": {"const": None}}, STRING),
        ({"type": ["string", "null"], "not": {"type": "null", "minLength": 3}}, {"string", "null"}),
        ({"type": "string", "not": {"enum": ["a"]}}, STRING),
        ({"type": "string", "not": {"type": "string"}}, ANY),
        ({"$ref": "elsewhere.json"}, ANY),
        ({"enum": ["a", "b"]}, STRING),
        ({"enum": [1, None]}, {"integer", "null"}),
        ({"const": True}, {"boolean"}),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"type": "nonsense"}, ANY),
        ({"type": 3, "anyOf": "x", "enum": 1}, ANY),
        ({}, ANY),
        (True, ANY),
        (None, ANY),
    ],
)
def test_types_of_a_schema(schema: Any, types: set[str]) -> None:  # bug 23
    root: Any = {
        "$defs": {
            "A": {"type": "integer"},
            "list": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
            "a/b": {"type": "array"},
            "café name": {"type": "object"},
        }
    }
    assert types_of(schema, root) == types


def test_recursive_schema_is_resolved_once() -> None:  # bug 23
    node: Any = {"anyOf": [{"$ref": "#/$defs/Node"}] * 40 + [{"type": "null"}]}
    assert types_of({"$ref": "#/$defs/Node"}, {"$defs": {"Node": node}}) == ANY
    many: Any = {f"N{n}": {"anyOf": [{"$ref": f"#/$defs/N{m}"} for m in range(30)] + [{"type": "string"}]} for n in range(30)}
    assert "string" in types_of({"$ref": "#/$defs/N0"}, {"$defs": many})


def test_undeclared_parameters_have_additional_or_any_types() -> None:
    assert Parameters(tool("f", {"a": {"type": "string"}})).types("b") == ANY
    further = Tool(name="f", parameters={"additionalProperties": {"type": "integer"}})
    assert Parameters(further).types("b") == {"integer"}
    assert Parameters(None).types("b") == ANY
    assert Parameters(Tool(name="f")).names == []
    assert Parameters(Tool(name="f", parameters={"properties": []})).names == []
    assert Parameters(tool("f", {"b": {}, "a": {}})).names == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "types", "json"),
    [
        ("5", {"integer"}, "5"),
        (" 5\n", {"integer"}, "5"),
        ("5", STRING, '"5"'),
        ("5", {"string", "integer"}, "5"),
        ("five", {"string", "integer"}, '"five"'),
        ("five", {"integer"}, None),
        ("True", {"boolean"}, "true"),
        ("None", {"string", "null"}, "null"),
        ("None", STRING, '"None"'),
        ('{"a": [1]}', {"object"}, '{"a": [1]}'),
        ('{"a": [1]}', STRING, '"{\\"a\\": [1]}"'),
        ('"x"', {"string", "null"}, '"x"'),
        ('"x"', {"integer"}, '"x"'),
        ("1.0", {"integer"}, "1.0"),
        ("", {"integer"}, None),
        ("[" * 5000, {"array"}, None),
    ],
)
def test_plain_text_is_coerced_to_the_types(text: str, types: set[str], json: str | None) -> None:  # bug 6
    assert coerce(text, frozenset(types)) == json
