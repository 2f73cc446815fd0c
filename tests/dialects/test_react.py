"""Calls in the form of ReAct prompts."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, scan, tool
from toolrelay.core.events import TextDelta
from toolrelay.dialects.base import ToolResult
from toolrelay.parsing.scanner import Scanner

WEATHER = tool("get_weather", {"city": {"type": "string"}})
PAIR = tool("pair", {"a": {}, "b": {}})
PARIS = ParsedCall("get_weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Action: get_weather\nAction Input: {"city": "Paris"}', [PARIS]),
        (
            'Thought: I look.\nAction: get_weather\nAction Input: {"city": "Paris"}\nObservation: sun',
            [Text("Thought: I look.\n"), PARIS, Text("\nObservation: sun")],
        ),
        ('Action:   get_weather  \n\nAction Input:{"city": "Paris"}', [PARIS]),
        ('Action: `get_weather`\nAction Input: ```json\n{"city": "Paris"}\n```', [PARIS]),
        ("Action: get_weather\nAction Input: Paris\n", [PARIS, Text("\n")]),
        ("Action: get_weather\nAction Input: Paris \nObservation:", [PARIS, Text("\nObservation:")]),
        ("Action: now\nAction Input: none\nOb", [ParsedCall("now", "{}"), Text("\nOb")]),
    ],
)
def test_typical_output_is_parsed(text: str, expected: list[object]) -> None:
    assert scan("react", text, [WEATHER, tool("now")]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Action: none of these\nAction Input: {}",
        "Action: get_weather\nthen I wait",
        "The Action: get_weather\nAction Input: {}",
        "Action: pair\nAction Input: not json",
        "Actions speak louder.",
        "Action",
        "Action: ",
        "Notes:\nAction: Bob sends the report.",
        "Action: get_weather_later",
        "Action: get weather",
        "Action: pair with Bob",
        "Action: `get_weather` it is",
    ],
)
def test_other_lines_are_text(text: str) -> None:  # bug 15
    assert scan("react", text, [WEATHER, PAIR]) == [Text(text)]


def test_truncated_call_is_not_finished() -> None:  # bug 5
    assert scan("react", 'Action: get_weather\nAction Input: {"ci', [WEATHER]) == [ParsedCall("get_weather", '{"ci', "cut")]
    for text in ("Action: get_weather\nAction", "Action: get_weather\nAction Input: ", "Action: get_weather\nAction Input: Par"):
        assert scan("react", text, [WEATHER]) == [BrokenCall("cut", text)]


def test_unknown_name_is_emitted_as_text_at_once() -> None:
    scanner = Scanner(DIALECTS["react"], {"get_weather": WEATHER})
    assert scanner.feed("Action: ge") == []
    assert scanner.feed("o") == [TextDelta("Action:"), TextDelta(" geo")]
    assert scan("react", "Action: now\n", []) == [Text("Action: now\n")]


def test_truncated_name_is_a_cut_call() -> None:  # bug 5
    assert scan("react", "So:\nAction: get_we", [WEATHER]) == [Text("So:\n"), BrokenCall("cut", "Action: get_we")]


def test_longest_matching_name_counts() -> None:
    text = "Action: get_weather_now\nAction Input: {}"
    assert scan("react", text, [WEATHER, tool("get_weather_now")]) == [ParsedCall("get_weather_now", "{}")]


def test_observation_is_a_stop_sequence() -> None:
    assert DIALECTS["react"].stops == ("\nObservation:",)


def test_calls_and_results_are_rendered_as_in_the_prompt() -> None:
    made = call("get_weather", {"city": "Paris"})
    assert DIALECTS["react"].render_calls([made]) == 'Action: get_weather\nAction Input: {"city": "Paris"}'
    assert DIALECTS["react"].render_results([ToolResult(call=made, text="sun")]) == "Observation: sun"
