"""Arguments against a tool's schema, which is hostile input."""

from __future__ import annotations

from typing import Any

import pytest

from toolrelay.core.request import Tool
from toolrelay.core.validation import validate

CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


def said(schema: Any, arguments: str) -> str | None:
    return validate(Tool(name="f", parameters=schema), arguments)


def test_arguments_that_fit_are_fine() -> None:
    assert said(CITY, '{"city": "Paris"}') is None
    assert said(None, '{"anything": 1}') is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"city": 1}', "city: 1 is not of type"),
        ("{}", "required"),
        ('{"city": "x", "more": 1}', "more"),
        ("[]", "not a JSON object"),
        ("{", "not valid JSON"),
        ('{"city": "' + "x" * 999 + '", "more": 1}', "Additional"),
    ],
)
def test_what_is_wrong_is_said_in_a_few_words(arguments: str, why: str) -> None:
    found = said(CITY, arguments)
    assert found is not None
    assert why in found
    assert len(found) < 400


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"pattern": "("}}},
    ],
    ids=["a far reference", "a file", "no type", "a reference to nothing", "no pattern"],
)
def test_a_schema_that_cannot_be_used_is_held_against_nobody(schema: Any) -> None:
    assert said(schema, '{"a": "b"}') is None


def test_a_schema_that_comes_to_millions_is_not_checked() -> None:
    levels = 60
    schema: Any = {"$ref": "#/$defs/d0", "$defs": {f"d{levels}": {"type": "string"}}}
    schema["$defs"] |= {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    assert said(schema, '{"a": 1}') is None


def test_a_schema_that_refers_to_itself_is_checked() -> None:
    tree: Any = {"type": "object", "properties": {"left": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert said(tree, '{"left": {"left": {"n": 1}}}') is None
    assert said(tree, '{"left": {"left": {"n": "x"}}}') is not None


def test_a_pattern_that_could_take_for_ever_does_not() -> None:
    schema: Any = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    said(schema, '{"a": "' + "a" * 50_000 + '!"}')
