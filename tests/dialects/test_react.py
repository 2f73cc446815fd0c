"""Calls in the manner of ReAct."""

from __future__ import annotations

import pytest

from tests.dialects.hearing import DIALECTS, Broken, Heard, Text, call, hear, tool
from toolrelay.dialects.base import Outcome

WEATHER = tool("get_weather", {"city": {"type": "string"}})
PAIR = tool("pair", {"a": {}, "b": {}})
PARIS = Heard("get_weather", '{"city": "Paris"}')


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
        ("Action: now\nAction Input: none\nOb", [Heard("now", "{}"), Text("\nOb")]),
    ],
)
def test_real_outputs(text: str, expected: list[object]) -> None:
    assert hear("react", text, [WEATHER, tool("now")]) == expected


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
    ],
)
def test_other_lines_are_text(text: str) -> None:  # bug 15
    assert hear("react", text, [WEATHER, PAIR]) == [Text(text)]


def test_a_call_cut_short_is_not_a_call() -> None:  # bug 5
    assert hear("react", 'Action: get_weather\nAction Input: {"ci', [WEATHER]) == [Heard("get_weather", '{"ci', "cut")]
    for text in ("Action: get_weather\nAction", "Action: get_weather\nAction Input: ", "Action: get_weather\nAction Input: Par"):
        assert hear("react", text, [WEATHER]) == [Broken("cut", text)]


def test_the_model_is_stopped_before_it_makes_up_a_result() -> None:
    assert DIALECTS["react"].stops == ("\nObservation:",)


def test_calls_and_results_stand_in_the_history_as_the_prompt_has_them() -> None:
    made = call("get_weather", {"city": "Paris"})
    assert DIALECTS["react"].render_calls([made]) == 'Action: get_weather\nAction Input: {"city": "Paris"}'
    assert DIALECTS["react"].render_outcomes([Outcome(call=made, text="sun")]) == "Observation: sun"
