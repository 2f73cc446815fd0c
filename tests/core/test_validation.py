"""Validation of arguments against a schema, which is hostile input."""

from __future__ import annotations

from typing import Any

import pytest

from toolrelay.core.request import Tool
from toolrelay.core.validation import validate

CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


def check(schema: Any, arguments: str) -> str | None:
    return validate(Tool(name="f", parameters=schema), arguments)


def test_valid_arguments_are_accepted() -> None:
    assert check(CITY, '{"city": "Paris"}') is None
    assert check(None, '{"anything": 1}') is None


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
def test_error_message_is_short(arguments: str, why: str) -> None:
    found = check(CITY, arguments)
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
    ids=["remote reference", "file reference", "invalid type", "dangling reference", "invalid pattern"],
)
def test_unusable_schema_accepts_everything(schema: Any) -> None:
    assert check(schema, '{"a": "b"}') is None


def test_exponential_schema_accepts_everything() -> None:
    levels = 60
    schema: Any = {"$ref": "#/$defs/d0", "$defs": {f"d{levels}": {"type": "string"}}}
    schema["$defs"] |= {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    assert check(schema, '{"a": 1}') is None


def test_recursive_schema_is_checked() -> None:
    tree: Any = {"type": "object", "properties": {"left": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert check(tree, '{"left": {"left": {"n": 1}}}') is None
    assert check(tree, '{"left": {"left": {"n": "x"}}}') is not None


def test_catastrophic_pattern_returns() -> None:
    schema: Any = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    check(schema, '{"a": "' + "a" * 50_000 + '!"}')
