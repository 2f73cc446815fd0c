"""Arguments of the demo model's calls: values from the message, valid for the schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrelay.backends.demo import respond
from toolrelay.core.events import ArgumentsDelta, TextDelta
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Message
from toolrelay.core.request import OutputFormat, Request, Tool

STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer"}


def schema(required: Sequence[str] | None = None, /, **properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties if required is None else required)}


def arguments(text: str, parameters: JsonObject, name: str = "go") -> Any:
    """Return the arguments of the call that answers the text."""
    tool = Tool(name=name, parameters=parameters)
    asked = Request(wire="chat", model="demo", items=(Message(role="user", content=text),), tools=(tool,))
    return json.loads("".join(event.text for event in respond(asked) if isinstance(event, ArgumentsDelta)))


def instance(text: str, form: JsonObject) -> Any:
    """Return the JSON answer to the text."""
    output = OutputFormat(type="json_schema", schema=form)
    asked = Request(wire="chat", model="demo", items=(Message(role="user", content=text),), output=output)
    return json.loads("".join(event.text for event in respond(asked) if isinstance(event, TextDelta)))


@pytest.mark.parametrize(
    ("properties", "text", "expected"),
    [
        ({"a": {"type": "number"}, "b": {"type": "number"}}, "go 2 and -3.5", {"a": 2, "b": -3.5}),
        ({"a": {"type": "integer", "default": 9}}, "go", {"a": 9}),
        ({"a": {"type": "integer"}}, "go", {"a": 1}),
        ({"a": {"type": "boolean"}, "b": {"type": "boolean", "default": False}}, "go", {"a": True, "b": False}),
        ({"a": {"enum": ["x", "y"], "default": "y"}, "b": {"enum": [1, 2]}}, "go", {"a": "y", "b": 1}),
        ({"level": {"enum": ["very_low", "high"]}}, "go High", {"level": "high"}),
        ({"a": {"const": 5}}, "go", {"a": 5}),
        ({"fast": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0}}, "go fast 1 0", {"fast": True, "n": 1}),
        ({"tags": {"type": "array", "items": STRING}}, "go: red, green and blue.", {"tags": ["red", "green", "blue"]}),
        ({"tags": {"type": "array", "items": STRING, "default": []}}, "go", {"tags": []}),
        ({"pair": {"type": "array", "prefixItems": [COUNT, STRING], "minItems": 2}}, "go", {"pair": [1, "go"]}),
        ({"n": {"type": "array", "items": {"type": "integer"}}}, "go 1 2 3", {"n": [1, 2, 3]}),
        ({"at": schema(city=STRING)}, "go in Oslo", {"at": {"city": "Oslo"}}),
        ({"name": {"type": ["string", "null"]}, "age": {"anyOf": [COUNT, {"type": "null"}]}}, "go", {"name": None, "age": None}),
        ({"name": {"type": ["string", "null"]}}, "go, for Ada", {"name": "Ada"}),
        ({"to": STRING, "subject": STRING}, "go to Bob about lunch", {"to": "Bob", "subject": "lunch"}),
        ({"text": STRING, "to": STRING}, 'go to Bob: "hi"', {"text": "hi", "to": "Bob"}),
        ({"sender": {"type": "string", "format": "email"}}, "go, from ada@example.org.", {"sender": "ada@example.org"}),
        ({"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}, "go with code ABC now", {"code": "ABC"}),
        ({"day": {"type": "string", "format": "date"}}, "go on 2024-02-29", {"day": "2024-02-29"}),
        ({"day": {"type": "string", "format": "date"}}, "go in Oslo", {"day": "2025-01-01"}),
        ({"text": STRING}, "go hello world", {"text": "hello world"}),
        ({"city": {"type": "string", "maxLength": 3}}, "go in Oslo", {"city": "Osl"}),
        ({"city": {"type": "string", "minLength": 3}}, "go now in Oslo", {"city": "Oslo"}),
    ],
)  # fmt: skip
def test_arguments_come_from_the_message_and_the_schema(properties: JsonObject, text: str, expected: JsonObject) -> None:
    assert arguments(text, schema(**properties)) == expected


def test_optional_arguments_are_omitted_unless_the_message_names_them() -> None:
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
    }


def test_first_optional_string_is_filled_when_nothing_is_required() -> None:
    assert arguments("go to Rome", schema([], city=STRING, zip=STRING)) == {"city": "Rome"}
    assert arguments("go", schema([], city=STRING)) == {}


def test_references_and_unions_are_followed() -> None:  # bug 23
    shapes: JsonObject = {
        "Circle": schema(kind={"const": "circle"}, radius={"$ref": "#/$defs/Length"}),
        "Square": schema(kind={"const": "square"}, side={"$ref": "#/$defs/Length"}),
        "Length": {"allOf": [{"type": "number"}, {"maximum": 10}]},
    }
    union: JsonObject = {"oneOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}]}
    parameters = {**schema(shape=union), "$defs": shapes}
    assert arguments("draw, radius 7", parameters, "draw") == {"shape": {"kind": "circle", "radius": 7}}
    assert arguments("draw 40", parameters, "draw") == {"shape": {"kind": "circle", "radius": 1}}


def test_recursive_schema_gives_finite_arguments() -> None:
    again: JsonObject = {"$ref": "#"}
    tree = schema(value=COUNT, children={"type": "array", "items": again}, next={"anyOf": [again, {"type": "null"}]})
    assert arguments("go", tree) == {"value": 1, "children": [], "next": None}
    assert arguments("go", schema(value=again)) == {}
    sums: JsonObject = {
        "Term": {"anyOf": [{"$ref": "#/$defs/Sum"}, {"type": "integer"}]},
        "Sum": schema(left={"$ref": "#/$defs/Term"}, right={"$ref": "#/$defs/Term"}),
    }
    assert arguments("go", {**schema(term={"$ref": "#/$defs/Term"}), "$defs": sums}) == {"term": 1}


def test_exponential_schema_gives_empty_arguments() -> None:
    steps: JsonObject = {f"s{n}": schema(a={"$ref": f"#/$defs/s{n + 1}"}, b={"$ref": f"#/$defs/s{n + 1}"}) for n in range(50)}
    assert arguments("go", {"$ref": "#/$defs/s0", "$defs": {**steps, "s50": STRING}}) == {}
    lists: JsonObject = STRING
    for _ in range(9):
        lists = {"type": "array", "items": lists, "minItems": 100}
    assert arguments("go", schema(lists=lists)) == {}


def test_too_deep_schema_gives_empty_arguments() -> None:
    deep: JsonObject = STRING
    for _ in range(900):
        deep = schema(inner=deep)
    assert arguments("go", deep) == {}
    assert arguments("go", {"type": "object", "default": {}, "const": deep}) == {}


def test_large_enumeration_gives_a_valid_option() -> None:
    options = [f"option {number}" for number in range(20_000)]
    assert arguments("go", schema(a={"enum": options})) == {"a": "option 0"}


def test_remote_reference_is_not_fetched() -> None:
    remote: JsonObject = {"$ref": "http://127.0.0.1:9/schema"}
    assert arguments("go", schema(["a"], a=STRING, b={"not": remote}, c=remote)) == {"a": "go"}


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
def test_arguments_and_json_answers_are_valid_for_ordinary_schemas(found: JsonObject, shared: JsonObject, text: str) -> None:
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
def test_malformed_schemas_raise_nothing(parameters: JsonObject, text: str) -> None:
    assert isinstance(arguments(f"go {text}", parameters), dict)
    instance(text, parameters)
