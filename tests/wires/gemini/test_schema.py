"""JSON schemas as Gemini takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import json_values
from tests.wires.gemini.oracle import check_schema
from toolrelay.wires.gemini.schema import MAX_NODES, function_schema, output_schema

Json = dict[str, Any]


def rewritten(schema: Json) -> Json:
    """Rewrite a schema that can be said in full, and that stays as it is when it is rewritten again."""
    found, dropped = output_schema(schema)
    assert dropped == []
    assert output_schema(found) == (found, [])
    check_schema(found)
    return found


def losing(schema: Json) -> tuple[Json, list[str]]:
    found, dropped = output_schema(schema)
    assert output_schema(found) == (found, [])
    check_schema(found)
    return found, dropped


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False},
        {"type": ["string", "null"], "description": "d", "format": "date-time", "minLength": 1, "pattern": "^a"},
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 9},
                {"type": "array", "items": {"type": "number"}, "minItems": 1},
            ]
        },
        {"type": "object", "additionalProperties": {"type": "string"}, "title": "t", "propertyOrdering": ["a"]},
        {"enum": ["a", "b"], "type": "string"},
        {"enum": [1, 2.5], "type": "number"},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {}},
        {"type": "object", "properties": {"$ref": {"type": "string"}, "const": {}, "not": {"default": None}}},
    ],
)
def test_known_schema_stays_as_it_is(schema: Json) -> None:
    assert rewritten(schema) == schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$schema": "https://json-schema.org/draft-07", "$id": "x", "$comment": "c", "type": "string"}, {"type": "string"}),
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"const": 5, "type": "integer"}, {"enum": [5], "type": "integer"}),
        ({"enum": ["a", None], "type": "string"}, {"enum": ["a"], "type": ["string", "null"]}),
        ({"const": None}, {"type": "null"}),
        ({"type": "array", "items": [{"const": 1}]}, {"type": "array", "prefixItems": [{"enum": [1], "type": "number"}]}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, {"type": "integer", "minimum": 4}),
        ({"type": "object", "properties": {"a": True, "b": False}}, {"type": "object", "properties": {"a": {}, "b": {}}}),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/x", "description": "mine"}},
                "$defs": {"x": {"type": "string", "description": "d"}},
            },
            {"properties": {"a": {"type": "string", "description": "mine"}}},
        ),
        (
            {
                "items": {"$ref": "#/definitions/a~1b"},
                "definitions": {"a/b": {"$ref": "#/definitions/c"}, "c": {"type": "integer"}},
            },
            {"items": {"type": "integer"}},
        ),
        (
            {
                "allOf": [{"$ref": "#/$defs/x"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
                "description": "both",
                "$defs": {"x": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
            },
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "description": "both",
            },
        ),
    ],
)
def test_unknown_form_is_rewritten(schema: Json, expected: Json) -> None:
    assert rewritten(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected", "dropped"),
    [
        ({"type": "number", "multipleOf": 2, "not": {}}, {"type": "number"}, ["multipleOf", "not"]),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0}, ["exclusiveMinimum"]),
        ({"const": True}, {"type": "boolean"}, ["enum"]),
        ({"enum": [{}, "a"]}, {}, ["enum"]),
        ({"enum": ["", "a"], "type": "string"}, {"enum": ["a"], "type": "string"}, ["enum"]),
        ({"enum": ["a", ""], "required": True}, {"enum": ["a"], "type": "string"}, ["enum", "required"]),
        ({"enum": "a"}, {}, ["enum"]),
        ({"oneOf": [{"type": "string"}], "anyOf": [{}]}, {"anyOf": [{"type": "string"}]}, ["anyOf"]),
        ({"allOf": [{"anyOf": [{}]}, {"anyOf": [{"type": "string"}]}]}, {"anyOf": [{"type": "string"}]}, ["anyOf"]),
        ({"properties": {}, "required": [[], {}, 5, None]}, {"properties": {}}, ["required"]),
        ({"allOf": [{}] * 100}, {}, ["allOf"]),
        ({"$ref": "https://a.example/schema.json", "description": "d"}, {"description": "d"}, ["$ref"]),
        ({"$ref": "#/$defs/no"}, {}, ["$ref"]),
        ({"$ref": 5}, {}, ["$ref"]),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]}, None, ["required"]),
        ({"if": {}, "then": {}, "items": {"patternProperties": {}}}, {"items": {}}, ["if", "then", "patternProperties"]),
    ],
)
def test_other_keywords_are_dropped_by_name(schema: Json, expected: Json | None, dropped: list[str]) -> None:
    found, names = losing(schema)
    assert names == dropped
    assert expected is None or found == expected


def test_circular_reference_is_cut() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "string"}}}
    found, dropped = losing({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert dropped == ["$ref"]
    assert found == {"type": "object", "properties": {"next": {"type": "object"}, "value": {"type": "string"}}}
    assert losing({"type": "object", "properties": {"self": {"$ref": "#"}}})[1] == ["$ref"]


def test_references_that_multiply_are_limited() -> None:
    """Each definition refers twice to the next one: 2 ** 40 schemas."""
    pair: Json = {f"d{number}": {"properties": {key: {"$ref": f"#/$defs/d{number + 1}"} for key in "ab"}} for number in range(40)}
    found, dropped = output_schema({"$ref": "#/$defs/d0", "$defs": pair})
    assert dropped
    assert len(json.dumps(found)) < 100 * MAX_NODES
    merged: Json = {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(40)}
    assert output_schema({"$ref": "#/$defs/d0", "$defs": merged})[1]
    chain: Json = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(50_000)}
    assert output_schema({"$ref": "#/$defs/d0", "$defs": chain})[1]


@pytest.mark.parametrize(
    "schema",
    [None, {}, {"type": "object"}, {"type": "object", "properties": {}, "required": [], "additionalProperties": False}],
)
def test_function_without_parameters_has_no_schema(schema: Json | None) -> None:
    assert function_schema(schema) == (None, [])


def test_parameters_are_an_object() -> None:
    assert function_schema({"properties": {"a": {}}})[0] == {"type": "object", "properties": {"a": {}}}


_APPLYING = ["items", "properties", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "not", "additionalProperties"]
_ASSERTING = ["type", "enum", "const", "required", "nullable", "minimum", "exclusiveMinimum", "prefixItems", "default"]
_KEYWORDS = st.sampled_from([*_APPLYING, *_ASSERTING])
_SCHEMAS = st.recursive(
    json_values(leaves=3) | st.just({"$ref": "#"}) | st.just({"$ref": "#/$defs/a"}),
    lambda inner: st.dictionaries(_KEYWORDS | st.just("a"), inner | st.lists(inner, max_size=2), max_size=4),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.dictionaries(_KEYWORDS, _SCHEMAS, max_size=5))
def test_any_schema_is_rewritten_without_references(schema: Json) -> None:
    for found in (function_schema(schema)[0], output_schema(schema)[0]):
        json.dumps(found)
        assert not _has_reference(found)


def _has_reference(schema: Any) -> bool:
    match schema:
        case {"$ref": _} | {"allOf": _} | {"const": _}:
            return True
        case dict():
            inner = [schema.get(key) for key in ("items", "additionalProperties")]
            lists = [each for key in ("anyOf", "prefixItems") for each in schema.get(key) or ()]
            properties = schema.get("properties") or {}
            return any(_has_reference(each) for each in (*inner, *lists, *properties.values()))
        case _:
            return False
