"""Output schemas as strict mode has them (E6), and the memory of those that a provider refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.codex.harness import CodexHarness, error_of, fold, request, text
from tests.backends.codex.upstream import refuses, says
from toolrelay.backends.codex.input_checks import is_closed
from toolrelay.backends.codex.refused_schemas import MAX_SCHEMAS, RefusedSchemas
from toolrelay.backends.codex.request import TurnPlan, plan_turn
from toolrelay.backends.codex.strict_schema import NotStrictError, StrictSchema
from toolrelay.core.events import AnswerFailed, Noticed
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import OutputFormat, Tool, ToolChoice
from toolrelay.errors import BackendError, ClientError
from toolrelay.toolcalls.constraint import build_call_schema

PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "unit": {"enum": ["c", "f"], "default": "c"},
        "place": {"$ref": "#/$defs/Place", "description": "Where"},
        "days": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Place"}]}},
    },
    "required": ["city"],
    "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": ["number", "null"]}}}},
}
WEATHER = Tool(name="get_weather", parameters=PARAMETERS)
FREE = Tool(name="save", parameters={"type": "object", "properties": {"data": {"type": "object"}}, "required": ["data"]})
REFUSAL = refuses(400, "Invalid schema for response_format: 'additionalProperties' is required.", "invalid_json_schema")
REQUIRED = ToolChoice(mode="required")


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodexHarness]:
    harness = CodexHarness(Path(tmp_path_factory.mktemp("codex")))
    yield harness
    harness.close()


def calls_of(events: Any) -> list[tuple[str, Any]]:
    return [(item.name, json.loads(item.arguments)) for item in fold(events).items if isinstance(item, Call)]


# The schema


@pytest.mark.parametrize("tools", [[WEATHER], [WEATHER, Tool(name="get_time")]])
def test_e6_schema_of_calls_is_strict(tools: list[Tool]) -> None:
    schema = StrictSchema(build_call_schema(tools)).schema
    assert is_closed(schema)
    assert schema["type"] == "object"
    assert not {"default", "minLength", "oneOf", "const"} & set(keywords(schema))


def keywords(schema: Json) -> Iterator[str]:
    for each in schema if isinstance(schema, list) else []:
        yield from keywords(each)
    if isinstance(schema, dict):
        for name, value in schema.items():
            yield name
            yield from keywords(value)


def test_e6_nulls_of_optional_properties_are_dropped() -> None:
    strict = StrictSchema(PARAMETERS)
    value = {"city": "Oslo", "unit": None, "place": {"x": None, "y": 1}, "days": [1, {"x": None, "y": None}]}
    assert jsonschema_rs.is_valid(strict.schema, value)
    assert json.loads(strict.restore(json.dumps(value))) == {"city": "Oslo", "place": {"y": 1}, "days": [1, {}]}


def test_e6_null_of_a_required_property_is_kept() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    strict = StrictSchema(schema)
    assert not strict.is_changed
    assert strict.restore('{"a":null}') == '{"a":null}'


def test_e6_closed_schema_is_unchanged() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"a": {"type": "string", "format": "date"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    strict = StrictSchema(schema)
    assert strict.schema == schema
    assert not strict.is_changed


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"type": 5}}},
        {"type": "object", "properties": {}, "patternProperties": {"x": {"type": "string"}}},
        {"type": "object", "properties": {}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"allOf": [{"type": "object", "properties": {}}, {"type": "object", "properties": {}}]},
        {"enum": [[1]]},
        {"enum": []},
    ],
)
def test_e6_what_strict_mode_cannot_express_is_refused(schema: JsonObject) -> None:
    with pytest.raises(NotStrictError):
        StrictSchema(schema)


_scalars: st.SearchStrategy[Any] = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"enum": ["a", "b"]}, {"const": "k"}, {"type": ["boolean", "null"]}]
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from("abc")
    made = st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": sorted(required & properties.keys()),
        },
        st.dictionaries(names, inner, max_size=3),
        st.sets(names),
    )
    return (
        made | inner.map(lambda items: {"type": "array", "items": items}) | st.lists(inner, min_size=1, max_size=3).map(_choice)
    )


def _choice(choices: list[Any]) -> Any:
    return {"anyOf": choices}


@given(st.recursive(_scalars, _objects, max_leaves=8), st.data())
def test_e6_restored_value_fits_the_original_schema(schema: JsonObject, data: st.DataObject) -> None:
    strict = StrictSchema(schema)
    assert is_closed(strict.schema)
    value = data.draw(values(strict.schema))
    assert jsonschema_rs.is_valid(strict.schema, value)
    assert jsonschema_rs.is_valid(schema, json.loads(strict.restore(json.dumps(value))))


def values(schema: Any) -> st.SearchStrategy[Any]:
    if "anyOf" in schema:
        return st.one_of([values(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_values_of(kind, schema) for kind in kinds])


def _values_of(kind: str, schema: Any) -> st.SearchStrategy[Any]:
    match kind:
        case "object":
            return st.fixed_dictionaries({name: values(each) for name, each in schema["properties"].items()})
        case "array":
            return st.lists(values(schema["items"]), max_size=2)
        case _:
            simple: dict[str, st.SearchStrategy[Any]] = {
                "string": st.text(max_size=3), "integer": st.integers(0, 9), "boolean": st.booleans(), "null": st.none()
            }  # fmt: skip
            return simple[kind]


@pytest.mark.parametrize("printed", ["", "{", "[]", "5", '{"value": 1, "more": 2}', "[" * 5000])
def test_e6_other_output_is_passed_on(printed: str) -> None:
    assert StrictSchema(build_call_schema([WEATHER, FREE_OF_ARGUMENTS])).restore(printed) == printed


FREE_OF_ARGUMENTS = Tool(name="get_time")


# Through Codex


@pytest.mark.parametrize("tools", [(WEATHER,), (WEATHER, FREE_OF_ARGUMENTS)])
def test_e6_required_call_has_a_strict_schema_and_no_nulls(codex: CodexHarness, tools: tuple[Tool, ...]) -> None:
    call: Any = {"name": "get_weather", "arguments": {"city": "Oslo", "unit": None, "place": None, "days": None}}
    printed = json.dumps(call if len(tools) == 1 else {"value": call})
    asked = request(tools=tools, tool_choice=REQUIRED)
    events = codex.ask(asked, says(printed[:20], printed[20:]), backend=codex.layered())
    assert calls_of(events) == [("get_weather", {"city": "Oslo"})]
    sent = codex.requests[0]["text"]["format"]
    assert sent["strict"] is True
    assert is_closed(sent["schema"])
    assert jsonschema_rs.is_valid(sent["schema"], json.loads(printed))


def test_e6_refusal_is_remembered_for_the_schema(codex: CodexHarness) -> None:
    backend = codex.with_dialect("native")
    other = Tool(name="other", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
    asked = request(tools=(other,), tool_choice=REQUIRED)
    for expected in ([True, False], [False]):
        events = codex.ask(asked, *([REFUSAL] if expected[0] else []), says("no call"), says("no call"), backend=backend)
        assert "constraint_refused" in [event.rule for event in events if isinstance(event, Noticed)]
        assert [is_constrained(sent) for sent in codex.requests][: len(expected)] == expected
    fresh = request(tools=(WEATHER,), tool_choice=REQUIRED)
    codex.ask(fresh, says('{"name": "get_weather", "arguments": {"city": "Oslo"}}'), backend=backend)
    assert is_constrained(codex.requests[0])


def is_constrained(sent: dict[str, Any]) -> bool:
    return "format" in sent.get("text", {})


def test_e6_free_form_map_falls_back_without_a_request_to_openai() -> None:
    form = OutputFormat(type="json_schema", name="call", schema=build_call_schema([FREE]), strict=True)
    with pytest.raises(ClientError) as caught:
        plan_turn(request(output=form))
    assert (caught.value.status, caught.value.code) == (400, "invalid_json_schema")
    assert plan_turn(request(output=form), is_other_provider=True).turn["outputSchema"] == form.schema


def test_e6_other_errors_are_not_remembered(codex: CodexHarness) -> None:
    schema: JsonObject = {"type": "object", "properties": {"other": {"type": "string"}}, "required": ["other"]}
    asked = request(output=OutputFormat(type="json_schema", name="it", schema=schema, strict=True))
    assert error_of(codex.ask(asked, refuses(400, "The context is too long."))).status == 400
    assert text(codex.ask(asked, says('{"other":"x"}'))) == '{"other":"x"}'


def test_e6_number_of_remembered_schemas_is_bounded() -> None:
    refused = RefusedSchemas()
    error = BackendError("Invalid schema", status=400)
    plans = [
        TurnPlan(thread={}, items=[], turn={"outputSchema": {"title": str(number)}}, offered={})
        for number in range(MAX_SCHEMAS + 1)
    ]
    for plan in plans:
        refused.add(plan, [AnswerFailed(error)])
    refused.check(plans[0])
    with pytest.raises(BackendError, match="Invalid schema"):
        refused.check(plans[-1])
