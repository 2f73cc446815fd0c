"""Python literals and calls."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.scanning import ParsedCall, Text, call, calls_of, scan, tool
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.dialects.rendering import JSON_CONSTANTS, render_python_call


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1.5", -1.5),
        ("+3", 3),
        ("1_000", 1000),
        ("0x1f", 31),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("True", True),
        ("false", False),
        ("None", None),
        ("'a'", "a"),
        ('"a"', "a"),
        ("''", ""),
        ("'it\\'s'", "it's"),
        ("'''a\n'b' \"c\"'''", "a\n'b' \"c\""),
        ('"""a"""', "a"),
        ("'a' \"b\"\n'c'", "abc"),
        ("'\\n\\t\\\\\\x41\\u00e9\\U0001F600\\ud83d\\ude00'", "\n\t\\Aé😀😀"),
        ("'\\ud83d'", "\ufffd"),
        ("'\\q'", "\\q"),
        ("'a\\\nb'", "ab"),
        ("[1, 'a', [True,],]", [1, "a", [True]]),
        ("(1, 2)", [1, 2]),
        ("()", []),
        ("{'a': {'b': None}, \"c\": [],}", {"a": {"b": None}, "c": []}),
        ("{1: 2, a: 3}", {"1": 2, "a": 3}),
        ('{"a": true, "b": null}', {"a": True, "b": None}),
        ("[ ]", []),
    ],
)
def test_python_literal_is_translated_to_json(text: str, value: object) -> None:
    written = python_to_json(text)
    assert written is not None
    assert json.loads(written) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f()",
        "a",
        "1 2",
        "[1 2]",
        "[,]",
        "[1",
        "{'a':}",
        "{'a' 1}",
        "[1}",
        "'a",
        "'\\x4'",
        "1e999e",
        "__import__('os')",
        "{'a': 1 'b': 2}",
        "1 if x else 2",
        "[1]]",
        "nan",
        "lambda: 1",
        "b'x'",
    ],
)
def test_other_expression_is_not_a_literal(text: str) -> None:
    assert python_to_json(text) is None


_literals: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_literals)
def test_repr_is_parsed_as_by_python(value: Any) -> None:
    written = python_to_json(repr(value))
    assert written is not None
    assert json.loads(written) == ast.literal_eval(repr(value))


@given(_literals, st.sampled_from("'\""))
def test_rendered_arguments_are_python(value: Any, quote: str) -> None:
    made = call("f", {"k": value})
    assert ast.literal_eval(render_python_call(made, quote).removeprefix("f(k=").removesuffix(")")) == value
    assert python_to_json(render_python_call(made, quote, JSON_CONSTANTS).removeprefix("f(k=").removesuffix(")")) is not None


KNOWN = [
    tool("f", {"a": {"type": "integer"}, "b": {"type": "string"}}),
    tool("1up", {"x": {}}),
    tool("-x", {"x": {}}),
    tool("odd", {key: {} for key in ("$filter", "@id", "a", "a b", "a b c", ")")}),
]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("f(1, b='x')", [("f", {"a": 1, "b": "x"})]),
        ("f(a = 1 , b = 'x' ,)", [("f", {"a": 1, "b": "x"})]),
        ("f(\n  a=1,\n  b='x'\n)", [("f", {"a": 1, "b": "x"})]),
        ("f(True)", [("f", {"a": True})]),
        ("f(), f(); f()\nf()", [("f", {})] * 4),
        ("mod.f(a=1)", [("mod.f", {"a": 1})]),
        ("f(é=1, 城市='x')", [("f", {"é": 1, "城市": "x"})]),
        ("1up(x=1)\n-x(x=2), 1up()", [("1up", {"x": 1}), ("-x", {"x": 2}), ("1up", {})]),
        ("odd($filter='x', @id = 1,\n a b=2, a=3)", [("odd", {"$filter": "x", "@id": 1, "a b": 2, "a": 3})]),
        ("odd('x', )='y')", [("odd", {"$filter": "x", ")": "y"})]),
        ("odd()", [("odd", {})]),
    ],
)
def test_python_calls_are_parsed(inner: str, expected: object) -> None:
    assert calls_of(scan("olmo3", f"<function_calls>{inner}</function_calls>", KNOWN)) == expected


@pytest.mark.parametrize(
    ("inner", "parsed"),
    [
        ("f(1, 2, 3)", ParsedCall("f", '{"a": 1, "b": 2', "positional_argument")),
        ("f(a=1 b=2)", ParsedCall("f", '{"a": 1', "malformed")),
        ("f(x.y)", ParsedCall("f", "", "malformed")),
        ("f(a=g())", ParsedCall("f", '{"a": ', "malformed")),
        ("f(*x)", ParsedCall("f", '{"a": ', "malformed")),
        ("f($filter=1)", ParsedCall("f", '{"a": ', "malformed")),
        ("odd(a b d=1)", ParsedCall("odd", "", "malformed")),
        ("odd(a b" + " " * 256 + "=1)", ParsedCall("odd", "", "malformed")),
    ],
)
def test_call_with_other_expressions_is_broken(inner: str, parsed: ParsedCall) -> None:
    assert scan("olmo3", f"<function_calls>{inner}</function_calls>!", KNOWN) == [parsed, Text("!")]


def test_unknown_name_that_begins_with_a_digit_is_text() -> None:
    for text in ("[1up(x=1)]", "[1, 2]", "[1]"):
        assert scan("pythonic", text, [tool("1", {"x": {}})]) == [Text(text)]


def test_arguments_that_are_not_an_object_are_rendered_as_one_keyword() -> None:
    assert render_python_call(call("f", "not json"), "'") == "f(arguments='not json')"
    assert render_python_call(call("f", "[1]"), "'") == "f(arguments='[1]')"
