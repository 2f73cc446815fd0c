"""The demo model's arguments: made from the user's words, and valid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrelay.backends._demo_mind import think
from toolrelay.core.events import ArgumentsDelta, TextDelta
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Message
from toolrelay.core.request import OutputFormat, Request, Tool

STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer"}


def schema(required: Sequence[str] | None = None, /, **properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties if required is None else required)}


def arguments(text: str, parameters: JsonObject, name: str = "go") -> Any:
    """What the tool is called with when the user says that."""
    tool = Tool(name=name, parameters=parameters)
    asked = Request(wire="chat", model="demo", items=(Message(role="user", content=text),), tools=(tool,))
    return json.loads("".join(event.text for event in think(asked) if isinstance(event, ArgumentsDelta)))


def instance(text: str, form: JsonObject) -> Any:
    """The JSON answer to that."""
    output = OutputFormat(type="json_schema", schema=form)
    asked = Request(wire="chat", model="demo", items=(Message(role="user", content=text),), output=output)
    return json.loads("".join(event.text for event in think(asked) if isinstance(event, TextDelta)))


@pytest.mark.parametrize(
    ("properties", "text", "expected"),
    [
        ({"a": {"type": "number"}, "b": {"type": "number"}}, "go 2 and -3.5", {"a": 2, "b": -3.5}),
        ({"a": {"type": "integer", "default": 9}}, "go", {"a": 9}),
        ({"a": {"type": "integer"}}, "go", {"a": 1}),
        ({"a": {"type": "boolean"}, "b": {"type": "boolean", "default": False}}, "go", {"a": True, "b": False}),
        ({"a": {"enum": ["x", "y"], "default": "y"}, "b": {"enum": [1, 2]}}, "go", {"a": "y", "b": 1}),
        ({"level": {"enum": ["very_low", "high"]}}, "go very low", {"level": "very_low"}),
        ({"a": {"const": 5}}, "go", {"a": 5}),
        ({"tags": {"type": "array", "items": STRING}}, "go: red, green and blue.", {"tags": ["red", "green", "blue"]}),
        ({"tags": {"type": "array", "items": STRING, "default": []}}, "go", {"tags": []}),
        ({"pair": {"type": "array", "prefixItems": [COUNT, STRING]}}, "go 4 Ada", {"pair": [4, "Ada"]}),
        ({"n": {"type": "array", "items": {"type": "integer"}}}, "go 1 2 3", {"n": [1, 2, 3]}),
        ({"at": schema(city=STRING)}, "go in Oslo", {"at": {"city": "Oslo"}}),
        ({"name": {"type": ["string", "null"]}, "age": {"anyOf": [COUNT, {"type": "null"}]}}, "go", {"name": None, "age": None}),
        ({"name": {"type": ["string", "null"]}}, "go, for Ada", {"name": "Ada"}),
        ({"to": STRING, "subject": STRING}, "go to Bob about lunch", {"to": "Bob", "subject": "lunch"}),
        ({"to": STRING, "text": STRING}, 'go to Bob: "hi"', {"to": "Bob", "text": "hi"}),
        ({"email": STRING, "path": STRING}, "go ada@example.org with a/b.md", {"email": "ada@example.org", "path": "a/b.md"}),
        ({"day": {"type": "string", "format": "date"}}, "go on 2024-02-29", {"day": "2024-02-29"}),
        ({"day": {"type": "string", "format": "date"}}, "go in Oslo", {"day": "2025-01-01"}),
        ({"text": STRING}, "go hello world", {"text": "hello world"}),
        ({"city": {"type": "string", "maxLength": 3}}, "go in Oslo", {"city": "Osl"}),
    ],
)  # fmt: skip
def test_arguments_come_from_the_words_and_the_schema(properties: JsonObject, text: str, expected: JsonObject) -> None:
    assert arguments(text, schema(**properties)) == expected


def test_optional_members_are_left_out_unless_the_text_speaks_of_them() -> None:
    optional = {
        "city": STRING,
        "unit": {"enum": ["c", "f"]},
        "verbose": {"type": "boolean"},
        "at": schema(street=STRING),
        "tags": {"type": "array", "items": STRING},
    }
    parameters = schema(["query"], query=STRING, **optional)
    assert arguments("go for Ada", parameters) == {"query": "Ada"}
    assert arguments("go for Ada, verbose, street: Elm", parameters) == {
        "query": "Ada, verbose, street: Elm",
        "verbose": True,
        "at": {"street": "Elm"},
    }


def test_a_tool_that_requires_nothing_still_hears_what_is_offered() -> None:
    assert arguments("go to Rome", schema([], city=STRING, zip=STRING)) == {"city": "Rome"}
    assert arguments("go", schema([], city=STRING)) == {}


def test_references_and_alternatives_are_followed() -> None:  # bug 23
    shapes: JsonObject = {
        "Circle": schema(kind={"const": "circle"}, radius={"type": "number"}),
        "Square": schema(kind={"const": "square"}, side={"$ref": "#/$defs/Length"}),
        "Length": {"allOf": [{"type": "number"}, {"maximum": 10}]},
    }
    ways: JsonObject = {"oneOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}]}
    parameters = {**schema(shape=ways), "$defs": shapes}
    assert arguments("draw a square, 40 wide", parameters, "draw") == {"shape": {"kind": "square", "side": 10}}
    assert arguments("draw", parameters, "draw") == {"shape": {"kind": "circle", "radius": 1}}


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    again: JsonObject = {"$ref": "#"}
    tree = schema(value=COUNT, children={"type": "array", "items": again}, next={"anyOf": [again, {"type": "null"}]})
    assert arguments("go", tree) == {"value": 1, "children": [], "next": None}
    assert arguments("go", schema(value=again)) == {}
    sums: JsonObject = {
        "Term": {"anyOf": [{"$ref": "#/$defs/Sum"}, {"type": "integer"}]},
        "Sum": schema(left={"$ref": "#/$defs/Term"}, right={"$ref": "#/$defs/Term"}),
    }
    assert arguments("go", {**schema(term={"$ref": "#/$defs/Term"}), "$defs": sums}) == {"term": 1}


def test_a_schema_that_doubles_at_every_step_is_given_up() -> None:
    steps: JsonObject = {f"s{n}": schema(a={"$ref": f"#/$defs/s{n + 1}"}, b={"$ref": f"#/$defs/s{n + 1}"}) for n in range(50)}
    assert arguments("go", {"$ref": "#/$defs/s0", "$defs": {**steps, "s50": STRING}}) == {}
    lists: JsonObject = STRING
    for _ in range(9):
        lists = {"type": "array", "items": lists, "minItems": 100}
    assert arguments("go", schema(lists=lists)) == {}


def test_a_schema_nested_out_of_all_reason_is_given_up() -> None:
    deep: JsonObject = STRING
    for _ in range(900):
        deep = schema(inner=deep)
    assert arguments("go", deep) == {}
    assert arguments("go", {"type": "object", "default": {}, "const": deep}) == {}


WORDS = "go the weather in Paris and Tokyo for 3 -12.5 'red wine' a, b: \"x y\" true city=Rome please 2024-02-29 alpha"
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join))


def bounds(least: str, most: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    pairs = st.tuples(values, values).map(sorted)
    return pairs.flatmap(lambda pair: st.sampled_from([{}, {least: pair[0]}, {most: pair[1]}, {least: pair[0], most: pair[1]}]))


def typed(kind: str, *limits: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    return st.tuples(*limits).map(lambda found: {"type": kind} | {key: value for part in found for key, value in part.items()})


INTEGERS = typed(
    "integer",
    bounds("minimum", "maximum", st.integers(-50, 50)),
    st.sampled_from([{}, {"default": 0}, {"default": 1000}]),
).filter(lambda made: "default" not in made or {"minimum", "maximum"}.isdisjoint(made))
STRINGS = typed("string", bounds("minLength", "maxLength", st.integers(0, 40)), st.sampled_from([{}, {"format": "email"}]))
NUMBERS = st.sampled_from(
    [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        {"type": "number", "minimum": -1, "exclusiveMaximum": 1},
        {"type": "number", "multipleOf": 0.25, "minimum": 7},
        {"type": "integer", "multipleOf": 10, "exclusiveMaximum": -5},
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    ]
)
CHOICES = st.lists(st.sampled_from(["alpha", "Paris", 3, -1, None, "true", 0.5]), min_size=1, max_size=4, unique=True).map(
    lambda options: {"enum": options}
)
LEAVES = st.one_of(
    INTEGERS, STRINGS, NUMBERS, CHOICES, st.sampled_from([{"type": "boolean"}, {"const": "alpha"}, {"type": "null"}, {}])
)


def compound(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    members = st.dictionaries(st.sampled_from(["city", "query", "to", "limit", "email", "a b", "ünï"]), inner, max_size=4)
    objects = members.flatmap(
        lambda found: (
            st.sets(st.sampled_from(sorted(found))).map(
                lambda names: schema(sorted(names), **found) | {"additionalProperties": False}
            )
            if found
            else st.just({"type": "object"})
        )
    )
    lists = st.tuples(inner, bounds("minItems", "maxItems", st.integers(0, 4))).map(
        lambda found: {"type": "array", "items": found[0], **found[1]}
    )
    sets = st.sampled_from([{"type": "integer"}, {"type": "string"}, {"type": "integer", "maximum": -5, "multipleOf": 5}]).map(
        lambda found: {"type": "array", "items": found, "minItems": 3, "uniqueItems": True}
    )
    nullable = inner.map(lambda found: {"anyOf": [found, {"type": "null"}]})
    return st.one_of(objects, lists, sets, nullable, st.lists(inner, min_size=1, max_size=3).map(lambda found: {"anyOf": found}))


ORDINARY = st.recursive(LEAVES, compound, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(found=ORDINARY, shared=ORDINARY, text=TEXTS)
def test_what_it_makes_is_valid_for_any_ordinary_schema(found: JsonObject, shared: JsonObject, text: str) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    whole: JsonObject = {
        **schema(x=found, y={"$ref": "#/$defs/shared"}, z={"anyOf": [{"$ref": "#/$defs/shared"}, {"type": "null"}]})
    }
    whole["$defs"] = {"shared": shared}
    validator(whole).validate(arguments(f"go {text}".replace("{", ""), whole))
    validator(whole).validate(instance(text, whole))


KEYWORDS = "type properties required items enum const anyOf allOf $ref minItems maxItems minLength minimum multipleOf a default"
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["string", "array", "#", "#/a", "x"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS.split()), inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(parameters=st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "$ref", "a"]), JSON, max_size=4), text=TEXTS)
def test_no_schema_and_no_text_upsets_it(parameters: JsonObject, text: str) -> None:
    assert isinstance(arguments(f"go {text}", parameters), dict)
    instance(text, parameters)
