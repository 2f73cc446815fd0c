"""Schemas and arguments of functions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from toolrelay import ToolContext, ToolError, tool
from toolrelay.core.request import Tool
from toolrelay.core.validation import validate
from toolrelay.toolsets.python.function import read_function


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(TypedDict):
    city: str
    country: NotRequired[str]


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


class Box(msgspec.Struct, frozen=True):
    corner: Point
    colour: Colour = Colour.RED


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


CONTEXT = ToolContext(call_id="call_1")
CLOSED: dict[str, Any] = {"additionalProperties": False}
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "y": {"type": "integer", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    **CLOSED,
}


@tool
def everything(
    *,
    text: str,
    number: int,
    ratio: float,
    flag: bool,
    choice: Literal["a", "b", 3],
    colour: Colour,
    maybe: Optional[int],  # noqa: UP045 -- the older form is in use, too
    names: list[str],
    counts: dict[str, int],
    place: Place,
    point: Point,
    box: Box | None,
    shape: Circle | Square,
    day: date,
    limit: Annotated[int, Meta(ge=1, le=9)] = 5,
) -> str:
    """Take everything."""
    return ""


def properties(function: Any) -> dict[str, Any]:
    found = read_function(function).definition.parameters["properties"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("text", {"type": "string"}),
        ("number", {"type": "integer"}),
        ("ratio", {"type": "number"}),
        ("flag", {"type": "boolean"}),
        ("choice", {"enum": [3, "a", "b"]}),
        ("colour", {"enum": ["blue", "red"]}),
        ("maybe", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ("names", {"type": "array", "items": {"type": "string"}}),
        ("counts", {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            "place",
            {
                "type": "object",
                "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
                "required": ["city"],
                **CLOSED,
            },
        ),
        ("point", POINT),
        (
            "box",
            {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"corner": POINT, "colour": {"enum": ["blue", "red"], "default": "red"}},
                        "required": ["corner"],
                        **CLOSED,
                    },
                    {"type": "null"},
                ]
            },
        ),
        ("day", {"type": "string", "format": "date"}),
        ("limit", {"type": "integer", "minimum": 1, "maximum": 9, "default": 5}),
    ],
)
def test_type_hint_becomes_a_strict_schema(name: str, schema: dict[str, Any]) -> None:
    assert properties(everything)[name] == schema


def test_parameters_without_default_are_required_and_others_are_refused() -> None:
    parameters = read_function(everything).definition.parameters
    assert parameters["required"] == [name for name in properties(everything) if name != "limit"]
    assert parameters["additionalProperties"] is False


def test_schema_has_no_references() -> None:
    text = json.dumps(read_function(everything).definition.parameters)
    assert "$ref" not in text
    assert "$defs" not in text
    assert "discriminator" not in text


def test_member_called_title_is_kept() -> None:
    @tool
    def save(note: Annotated[Place, "the note"], title: str, properties_: dict[str, str]) -> None: ...

    assert list(properties(save)) == ["note", "title", "properties_"]
    assert properties(save)["note"]["description"] == "the note"


def test_descriptions_come_from_annotations_before_the_docstring() -> None:
    @tool
    def weather(
        city: Annotated[str, "from Annotated"], unit: Annotated[str, Meta(description="from Meta")] = "c", day: str = ""
    ) -> str:
        """Return the weather.

        Args:
            city: not this
            unit: nor this
            day: from the docstring

        """
        return city + unit + day

    definition = read_function(weather).definition
    assert (definition.name, definition.description) == ("weather", "Return the weather.")
    assert {name: each["description"] for name, each in properties(weather).items()} == {
        "city": "from Annotated",
        "unit": "from Meta",
        "day": "from the docstring",
    }
    assert properties(weather)["day"]["default"] == ""


def test_options_of_the_decorator_are_in_the_definition() -> None:
    @tool(name="find", description="Find it.", idempotent=True, timeout_seconds=2.5, hints={"readOnlyHint": True})
    def search() -> str:
        """Not this."""
        return "found"

    definition = read_function(search).definition
    assert (definition.name, definition.description) == ("find", "Find it.")
    assert (definition.idempotent, definition.timeout_seconds, definition.hints) == (True, 2.5, {"readOnlyHint": True})
    assert search() == "found"


@pytest.mark.parametrize("hint", [ToolContext, ToolContext | None, Annotated[ToolContext, "the run"]])
def test_context_parameter_is_passed_and_not_in_the_schema(hint: Any) -> None:
    def who(text: str, context: Any = None) -> str:
        return text

    who.__annotations__["context"] = hint
    read = read_function(tool(who))
    assert list(properties(who)) == ["text"]
    assert read.convert({"text": "a"}, CONTEXT) == {"text": "a", "context": CONTEXT}


def test_default_that_is_not_json_is_left_out() -> None:
    @tool
    def paint(size: int = 1, colour: Colour = Colour.BLUE, thing: Any = object()) -> None: ...  # noqa: B008 -- on purpose

    assert properties(paint) == {
        "size": {"type": "integer", "default": 1},
        "colour": {"enum": ["blue", "red"], "default": "blue"},
        "thing": {},
    }
    assert read_function(paint).definition.parameters["required"] == []


def test_arguments_get_the_hinted_types() -> None:
    @tool
    def draw(box: Box, day: date, by_number: dict[int, Point], shape: Circle | Square, size: int) -> None: ...

    values = read_function(draw).convert(
        {
            "box": {"corner": {"x": 1}, "colour": "blue"},
            "day": "2026-02-03",
            "by_number": {"7": {"x": 2, "tags": ["t"]}},
            "shape": {"type": "square", "side": 2},
            "size": 3.0,
        },
        CONTEXT,
    )
    assert values == {
        "box": Box(Point(1), Colour.BLUE),
        "day": date(2026, 2, 3),
        "by_number": {7: Point(2, tags=["t"])},
        "shape": Square(2.0),
        "size": 3,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"day": "tomorrow"}, "Invalid arguments: day: Invalid RFC3339 encoded date"),
        ({"day": 5}, "Invalid arguments: day: Expected"),
        ({"day": "2026-02-03", "more": 1}, "has no parameter 'more'"),
        ({}, "Invalid arguments: day missing."),
    ],
)
def test_arguments_that_cannot_be_converted_are_a_tool_error(arguments: dict[str, Any], message: str) -> None:
    @tool
    def on(day: date) -> None: ...

    with pytest.raises(ToolError, match=message):
        read_function(on).convert(arguments, CONTEXT)


POINTS = st.builds(Point, st.integers(), st.integers(), st.lists(st.text(max_size=5), max_size=3))
VALUES = st.fixed_dictionaries(
    {
        "text": st.text(),
        "number": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "choice": st.sampled_from(["a", "b", 3]),
        "colour": st.sampled_from(Colour),
        "maybe": st.none() | st.integers(),
        "names": st.lists(st.text()),
        "counts": st.dictionaries(st.text(), st.integers()),
        "place": st.fixed_dictionaries({"city": st.text()}, optional={"country": st.text()}),
        "point": POINTS,
        "box": st.none() | st.builds(Box, POINTS, st.sampled_from(Colour)),
        "shape": st.builds(Circle, st.floats(0, 1)) | st.builds(Square, st.floats(0, 1)),
        "day": st.dates(),
    },
    optional={"limit": st.integers(1, 9)},
)
EVERYTHING = read_function(everything)
AS_TOOL = Tool(name="everything", parameters=EVERYTHING.definition.parameters)


@given(VALUES)
def test_values_come_back_from_their_json(values: dict[str, Any]) -> None:
    text = msgspec.json.encode(values)
    assert validate(AS_TOOL, text.decode()) is None
    assert EVERYTHING.convert(msgspec.json.decode(text), CONTEXT) == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(VALUES, st.sampled_from(sorted(EVERYTHING.types)), JSON)
def test_any_argument_is_converted_or_a_tool_error(values: dict[str, Any], name: str, value: Any) -> None:
    arguments = {**msgspec.json.decode(msgspec.json.encode(values)), name: value}
    accepted = validate(AS_TOOL, json.dumps(arguments)) is None
    try:
        converted = EVERYTHING.convert(arguments, CONTEXT)
    except ToolError:
        # JSON schemas do not check the format of a date; Python's float has less range than JSON's numbers.
        assert not accepted or name in ("day", "ratio", "shape")
    else:
        assert set(converted) == set(arguments)
