"""Odd and missing tags that other parsers accept: each text is scanned whole, in single characters and in drawn chunks.

`ENDED` are answers that the model itself ended before the end of the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.dialects.scanning import DIALECTS, Output, Text, calls_of, fold, scan, text_of, tool
from tests.dialects.test_every_dialect import split
from toolrelay.parsing.scanner import Scanner

TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}, required=["city"]),
    tool("get_time", {"zone": {"type": "string"}}),
    tool("submit"),
]
PARIS: list[tuple[str, Any]] = [("get_weather", {"city": "Paris"})]
TWO_KEYS: list[tuple[str, Any]] = [("get_weather", {"city": "Paris", "days": 2})]
BOTH: list[tuple[str, Any]] = [*PARIS, ("get_time", {"zone": "CET"})]
SUBMIT: list[tuple[str, Any]] = [("submit", {})]

GLM = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
MINIMAX = '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
K2 = '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}'

ENDED = {
    "glm45": ("glm45", GLM, PARIS),
    "glm47": ("glm47", GLM.replace("\n", ""), PARIS),
    "glm45: the second call": ("glm45", f"{GLM}</tool_call>\n<tool_call>submit\n", [*PARIS, *SUBMIT]),
    "glm45: no arguments": ("glm45", "<tool_call>submit", SUBMIT),
    "minimax_m2": ("minimax_m2", MINIMAX, PARIS),
    "minimax_m2: no parameters": ("minimax_m2", '<minimax:tool_call>\n<invoke name="submit">\n', SUBMIT),
    "deepseek_v4": (
        "deepseek_v4",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="submit">\n',
        SUBMIT,
    ),
    "qwen3_coder": ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n", PARIS),
    "seed_oss": ("seed_oss", "<seed:tool_call><function=get_weather><parameter=city>Paris</parameter>", PARIS),
    "kimi_k2": ("kimi_k2", K2, PARIS),
    "kimi_k3": (
        "kimi_k3",
        (
            '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
            '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        ),
        PARIS,
    ),
    "deepseek_v31": (
        "deepseek_v31",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}',
        PARIS,
    ),
}


def scan_ended(name: str, chunks: Iterable[str]) -> list[Output]:
    scanner = Scanner(DIALECTS[name], {one.name: one for one in TOOLS})
    return fold([*(event for chunk in chunks for event in scanner.feed(chunk)), *scanner.flush(complete=True)])


@pytest.mark.parametrize("case", ENDED)
@given(data=st.data())
@settings(max_examples=10)
def test_model_that_ends_its_answer_after_a_parameter_has_made_the_call(case: str, data: DataObject) -> None:
    name, text, expected = ENDED[case]
    found = scan_ended(name, [text])
    assert calls_of(found) == expected
    assert not text_of(found).strip()
    assert scan_ended(name, text) == found
    assert scan_ended(name, split(data, text)) == found


@pytest.mark.parametrize("case", ENDED)
def test_answer_that_was_cut_there_has_not(case: str) -> None:
    name, text, expected = ENDED[case]
    assert len(calls_of(scan(name, text, TOOLS))) == len(expected) - 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par"),
        ("glm45", "<tool_call>get_weather\n<arg_key>city"),
        ("glm45", "<tool_call>something"),
        ("minimax_m2", '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Par'),
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</para"),
        ("kimi_k2", '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city'),
    ],
)
def test_model_that_ends_its_answer_inside_a_value_has_not(name: str, text: str) -> None:
    assert calls_of(scan_ended(name, [text])) == []


@pytest.mark.parametrize(("required", "made"), [(None, []), (["city", "days"], []), (["city"], PARIS)])
def test_call_without_its_end_needs_the_required_parameters_or_all(
    required: list[str] | None, made: list[tuple[str, Any]]
) -> None:
    schema = {} if required is None else {"required": required}
    weather = tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}, **schema)
    scanner = Scanner(DIALECTS["glm45"], {weather.name: weather})
    assert calls_of(fold([*scanner.feed(GLM), *scanner.flush(complete=True)])) == made


ROWS = {
    "glm45: key without its end": (
        "glm45",
        "<tool_call>get_weather\n<arg_key>city\n<arg_value>Paris</arg_value>\n<arg_key>days\n<arg_value>2</arg_value>\n</tool_call>",
        TWO_KEYS,
    ),
    "single quotes around attributes": (
        "minimax_m2",
        "<minimax:tool_call><invoke name='get_weather'><parameter name='city'>Paris</parameter></invoke></minimax:tool_call>",
        PARIS,
    ),
    "no quotes around attributes": (
        "minimax_m2",
        "<minimax:tool_call><invoke name=get_weather><parameter name=city>Paris</parameter></invoke></minimax:tool_call>",
        PARIS,
    ),
    "DSML with single quotes": (
        "deepseek_v4",
        (
            "<｜DSML｜tool_calls><｜DSML｜invoke name='get_weather'><｜DSML｜parameter name='days' string='false'>2"
            "</｜DSML｜parameter><｜DSML｜parameter name=city string=true>Paris</｜DSML｜parameter>"
            "</｜DSML｜invoke></｜DSML｜tool_calls>"
        ),
        [("get_weather", {"days": 2, "city": "Paris"})],
    ),
    "no quotes, next call in a value": (
        "minimax_m2",
        (
            "<minimax:tool_call><invoke name=get_weather><parameter name=city>Paris\n<invoke name='get_time'>"
            "<parameter name='zone'>CET</parameter></invoke></minimax:tool_call>"
        ),
        BOTH,
    ),
    "no quotes, no body": ("minimax_m2", "<minimax:tool_call><invoke name=submit/></minimax:tool_call>", SUBMIT),
    "DSML with another outer tag": (
        "deepseek_v4",
        '<｜DSML｜toolcalls>\n<｜DSML｜invoke name="submit">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        SUBMIT,
    ),
    "DSML of V4.1": (
        "deepseek_v4",
        (
            '<｜DSML｜ calls>\n<｜DSML｜ invoke name="get_weather">\n<｜DSML｜ parameter name="city" string="true">Paris'
            "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
        ),
        PARIS,
    ),
    "DSML of V4.1 without its outer tag": (
        "deepseek_v4",
        '<｜DSML｜ invoke name="submit">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
        SUBMIT,
    ),
    "DSML with the outer tag of V3.2": (
        "deepseek_v4",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="submit">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        SUBMIT,
    ),
    "a blank between the marks": (
        "internlm",
        '<|action_start|> <|plugin|>\n{"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>',
        PARIS,
    ),
    "half of a mark": ("gemma4", '<|tool_call>:get_weather{city:<|"|>Paris<|"|>}<tool_call|>', PARIS),
    "function tag left open": ("qwen3_coder", "<tool_call>\n<function=submit\n</function>\n</tool_call>", SUBMIT),
    "function tag left open, parameters": (
        "qwen3_coder",
        "<tool_call>\n<function=get_weather\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        PARIS,
    ),
}


@pytest.mark.parametrize("row", ROWS)
@given(data=st.data())
@settings(max_examples=10)
def test_calls_with_odd_tags_are_found(row: str, data: DataObject) -> None:
    name, text, expected = ROWS[row]
    found = scan(name, text, TOOLS)
    assert calls_of(found) == expected
    assert not text_of(found).strip()
    scanner = Scanner(DIALECTS[name], {one.name: one for one in TOOLS})
    chunked = [event for chunk in split(data, text) for event in scanner.feed(chunk)]
    assert fold([*chunked, *scanner.flush()]) == found


def test_arguments_with_undeclared_keys_only_are_not_unwrapped() -> None:
    text = '<invoke name="get_weather"><parameter name="arguments">{"x": 1}</parameter></invoke>'
    assert calls_of(scan("minimax_m2", text, TOOLS)) == [("get_weather", {"arguments": {"x": 1}})]


def test_outer_tag_of_dsml_in_prose_is_text() -> None:
    text = "It begins with <｜DSML｜toolcalls> and ends with </｜DSML｜tool_calls>."
    assert scan("deepseek_v4", text, TOOLS) == [Text(text)]
