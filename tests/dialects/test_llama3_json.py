"""Calls in the forms of Llama 3 and xLAM."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, scan, tool
from toolrelay.core.events import TextDelta
from toolrelay.dialects.base import ToolResult
from toolrelay.parsing.scanner import Scanner

WEATHER = tool("get_weather", {"city": {"type": "string"}})
PARIS = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
PARIS_CALL = ParsedCall("get_weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    "text",
    [
        PARIS,
        f"\n\n{PARIS}\n",
        f"<|python_tag|>{PARIS}",
        f"<|python_tag|>{PARIS}<|eom_id|>",
        '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
        '{"function": {"name": "get_weather", "parameters": {"city": "Paris"}}}',
        f"[{PARIS}]",
        '{"parameters": {"city": "Paris"}, "name": "get_weather"}',
    ],
)
def test_one_call_is_parsed(text: str) -> None:
    assert [one for one in scan("llama3_json", text, [WEATHER]) if one != Text("\n\n")] == [PARIS_CALL]


@pytest.mark.parametrize(
    "text", [f"{PARIS}; {PARIS}", f"<|python_tag|>{PARIS};{PARIS}", f"{PARIS}\n{PARIS}", f"[{PARIS}, {PARIS}]"]
)
def test_two_calls_are_parsed(text: str) -> None:
    assert scan("llama3_json", text, [WEATHER]) == [PARIS_CALL, PARIS_CALL]


@pytest.mark.parametrize(
    "text",
    [
        f"{PARIS} is how one calls it.",
        f"Here: {PARIS}",
        '{"name": "Ada", "parameters": {"born": 1815}}',
        '{"city": "Paris", "name": "get_weather"}',
        "[1, 2, 3]",
        "{not json}",
        "[1] First note.",
        '{"name": "get_weather"',
        "{",
        "[",
    ],
)
def test_json_that_is_not_the_whole_answer_or_an_offered_tool_is_text(text: str) -> None:  # bug 15
    found = scan("llama3_json", text, [WEATHER])
    assert found in ([Text(text)], [BrokenCall("cut", text)])
    assert found == [Text(text)] or text == '{"name": "get_weather"'


def test_json_with_an_unknown_key_is_emitted_at_once() -> None:  # bug 14
    scanner = Scanner(DIALECTS["llama3_json"], {"get_weather": WEATHER})
    assert scanner.feed('{"summary": ') == [TextDelta("{"), TextDelta('"summary": ')]
    assert scanner.feed("12") == [TextDelta("12")]


def test_json_with_an_unknown_name_is_emitted_at_once() -> None:
    scanner = Scanner(DIALECTS["llama3_json"], {"get_weather": WEATHER})
    assert scanner.feed('{"name": "Ada"') == [TextDelta("{"), TextDelta('"name": "Ada"')]


def test_truncated_call_without_a_tag_is_not_finished() -> None:  # bug 5
    assert scan("llama3_json", PARIS[:-10], [WEATHER]) == [BrokenCall("cut", PARIS[:-10])]


def test_xlam_list_is_parsed() -> None:
    text = '[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_weather", "arguments": {}}]'
    assert scan("xlam", text, [WEATHER]) == [PARIS_CALL, ParsedCall("get_weather", "{}")]


def test_calls_and_results_are_rendered_as_in_the_templates() -> None:
    made = call("get_weather", {"city": "Paris"})
    assert DIALECTS["llama3_json"].render_calls([made]) == PARIS
    assert DIALECTS["llama3_json"].render_results([ToolResult(call=made, text='"sunny"')]).endswith('\n\n"\\"sunny\\""')
    assert DIALECTS["xlam"].render_calls([made]) == '[{"name": "get_weather", "arguments": {"city": "Paris"}}]'
