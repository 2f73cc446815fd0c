"""Variants of dialects that models print and other servers' parsers accept; one row for each cause."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.scanning import DIALECTS, call, calls_of, scan, text_of, tool
from toolrelay.core.request import Tool
from toolrelay.dialects.families import family_of
from toolrelay.dialects.kimi import K3Form
from toolrelay.dialects.parameter_types import Parameters

WEATHER = tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}})
PARIS = [("get_weather", {"city": "Paris"})]


def spaced(text: str) -> str:
    """Put blanks around the names of Kimi K3's marks, as servers do that decode each token by itself."""
    return text.replace("<|open|>", "<|open|> ").replace("<|close|>", "<|close|> ").replace("<|sep|>", " <|sep|>")


K3_TEXT = "<|open|>response<|sep|>Hi.<|close|>response<|sep|>"
K3_CALL = DIALECTS["kimi_k3"].render_calls([call("get_weather", {"city": "Paris"})])
ROWS: dict[str, tuple[str, str, str]] = {
    "Gemma 4 with parentheses": ("gemma4", '<|tool_call>call:get_weather(city:<|"|>Paris<|"|>)<tool_call|>Hi.', "Hi."),
    "bare word in parentheses": ("gemma4", "<|tool_call>call:get_weather(city:Paris)<tool_call|>", ""),
    "Gemma 4's mark of results": ("gemma4", '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|><|tool_response>', ""),
    "LFM2 without its tags": ("lfm2", '[get_weather(city="Paris")]', ""),
    "LFM2.5 without its tags": ("lfm25", "[get_weather(city='Paris')]\n", ""),
    "name under the key function": (
        "hermes",
        '<tool_call>{"function": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
        "",
    ),
    "Granite's tags around text": (
        "granite",
        '<response>Hi.</response><|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        "Hi.",
    ),
    "Kimi K3 with blanks in marks": ("kimi_k3", spaced(K3_TEXT + K3_CALL), "Hi."),
}


@pytest.mark.parametrize("row", ROWS)
def test_variant_is_a_call(row: str) -> None:
    dialect, printed, text = ROWS[row]
    found = scan(dialect, printed, [WEATHER])
    assert (calls_of(found), text_of(found).strip()) == (PARIS, text)


def test_malformed_call_does_not_hide_the_next() -> None:
    good = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'
    assert calls_of(scan("gemma4", "<|tool_call>call:get_weather{city:Rome]<tool_call|>" + good, [WEATHER])) == PARIS


@pytest.mark.parametrize("text", ["[1] A note.", '[get_weather(city="Paris")] is a call.', "[other()]", "[get_weather"])
def test_other_lists_of_lfm2_are_text(text: str) -> None:
    assert calls_of(scan("lfm2", text, [WEATHER])) == []


def test_marks_of_made_up_results_are_not_text() -> None:
    text = "It is <｜tool▁output▁begin｜>18 degrees<｜tool▁output▁end｜>, I think."
    assert text_of(scan("deepseek_v31", text, [WEATHER])) == "It is 18 degrees, I think."


def test_marks_of_kimi_k3_are_equal_but_for_blanks() -> None:
    plain, other = K3Form(), K3Form(blank=" ")
    assert tuple(map(spaced, (*plain.marks, *plain.ends))) == (*other.marks, *other.ends)


def test_mimo_values_are_verbatim() -> None:
    printed = "<tool_call><function=get_weather><parameter=city>\nParis\n</parameter></function></tool_call>"
    assert calls_of(scan("mimo", printed, [WEATHER])) == [("get_weather", {"city": "\nParis\n"})]
    assert calls_of(scan("qwen3_coder", printed, [WEATHER])) == PARIS
    written = DIALECTS["mimo"].render_calls([call("get_weather", {"city": "\nParis\n"})])
    assert written == printed


def test_granite_32_thinks_in_words() -> None:
    family = family_of("granite-3.2-8b-instruct")
    assert family is not None
    assert family.reasoning == ("Here is my thought process:", "Here is my response:")


# Schemas in parts

STRINGS: Any = {"type": "array", "items": {"type": "string"}}
DEFINED: Any = {
    "Place": {"type": "object", "properties": {"zip": {"type": "string"}, "tags": {"anyOf": [STRINGS, {"type": "null"}]}}}
}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_parameters_may_be_declared_in_parts(keyword: str) -> None:
    parts: Any = [
        {"properties": {"zip": {"type": "string"}}},
        {"$ref": "#/$defs/Place"},
        {"properties": {"n": {"type": "integer"}}},
    ]
    parameters = Parameters(Tool(name="f", parameters={keyword: parts, "$defs": DEFINED}))
    assert parameters.names == ["zip", "n", "tags"]
    assert [parameters.types(name) for name in ("zip", "n")] == [{"string"}, {"integer"}]
    value = "<tool_call><function=f><parameter=zip>007</parameter><parameter=n>007</parameter></function></tool_call>"
    found = scan("qwen3_coder", value, [Tool(name="f", parameters={keyword: parts, "$defs": DEFINED})])
    assert calls_of(found) == [("f", {"zip": "007", "n": 7})]


@pytest.mark.parametrize("place", [{"$ref": "#/$defs/Place"}, {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]}])
def test_nested_parameters_may_be_declared_elsewhere(place: Any) -> None:
    mark = "]<]minimax[>["
    value = "<place><zip>75001</zip><tags><item>1</item><item>2</item></tags></place>"
    printed = f'<tool_call><invoke name="f">{value}</invoke></tool_call>'.replace("<", f"{mark}<")
    found = scan("minimax_m3", printed, [Tool(name="f", parameters={"properties": {"place": place}, "$defs": DEFINED})])
    assert calls_of(found) == [("f", {"place": {"zip": "75001", "tags": ["1", "2"]}})]


def test_schema_that_refers_to_itself_has_its_properties_once() -> None:
    root: Any = {"properties": {"a": {"type": "string"}}, "allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}]}
    assert Parameters(Tool(name="f", parameters=root)).names == ["a"]
