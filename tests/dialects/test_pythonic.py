"""Calls as Python: Llama 4, Olmo 3, LFM 2."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, calls_of, scan, tool
from toolrelay.core.events import TextDelta
from toolrelay.dialects.base import ToolResult
from toolrelay.parsing.scanner import Scanner

WEATHER = tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}})
NOW = tool("now")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[get_weather(city='Paris', days=3)]", [("get_weather", {"city": "Paris", "days": 3})]),
        ('[get_weather(city="Paris"), now()]', [("get_weather", {"city": "Paris"}), ("now", {})]),
        ("[now()]\n", [("now", {})]),
        ('[get_weather("Paris", 3)]', [("get_weather", {"city": "Paris", "days": 3})]),
        ("[get_weather(city='Paris',)]", [("get_weather", {"city": "Paris"})]),
    ],
)
def test_list_that_is_the_whole_answer_is_parsed(text: str, expected: object) -> None:
    assert calls_of(scan("pythonic", text, [WEATHER, NOW])) == expected


@pytest.mark.parametrize(
    "text", ["[now()] is a call", "[later()]", "[1, 2]", "[x] done", "now()", "Sure: [now()]", "[", "[now", "[now() for x in y]"]
)
def test_other_lists_are_text(text: str) -> None:  # bug 15
    found = scan("pythonic", text, [WEATHER, NOW])
    assert "".join(one.text for one in found if isinstance(one, Text | BrokenCall)) == text


def test_list_without_calls_is_emitted_at_once() -> None:  # bug 14
    scanner = Scanner(DIALECTS["pythonic"], {"now": NOW})
    assert scanner.feed("[1]") == [TextDelta("["), TextDelta("1]")]


def test_olmo_call_per_line_is_parsed() -> None:
    text = "Sure.\n<function_calls>\nget_weather(city='New York', days=2)\nnow()\n</function_calls>\nDone."
    assert scan("olmo3", text) == [
        Text("Sure.\n"),
        ParsedCall("get_weather", '{"city": "New York", "days": 2}'),
        ParsedCall("now", "{}"),
        Text("\nDone."),
    ]


@pytest.mark.parametrize(
    "inner",
    ['[get_weather(city="Paris")]', '[{"name": "get_weather", "arguments": {"city": "Paris"}}]', 'get_weather(city="Paris")'],
)
def test_lfm_python_or_json_is_parsed(inner: str) -> None:
    found = scan("lfm2", f"<|tool_call_start|>{inner}<|tool_call_end|>Checking.")
    assert found == [ParsedCall("get_weather", '{"city": "Paris"}'), Text("Checking.")]


def test_closing_tag_in_a_string_does_not_end_the_call() -> None:  # bug 17
    text = '<function_calls>\nnow(a="</function_calls> )], b")\n</function_calls>'
    assert calls_of(scan("olmo3", text)) == [("now", {"a": "</function_calls> )], b"})]


def test_code_is_never_evaluated() -> None:
    found = scan("olmo3", "<function_calls>now(a=__import__('os').getcwd())</function_calls>.")
    assert found == [ParsedCall("now", '{"a": ', "malformed"), Text(".")]


def test_truncated_call_is_not_finished() -> None:  # bug 5
    assert scan("olmo3", "<function_calls>\nnow(a='x") == [ParsedCall("now", '{"a": "x', "cut")]
    assert scan("olmo3", "<function_calls>\nno") == [BrokenCall("cut", "<function_calls>\nno")]


def test_calls_and_results_are_rendered_as_in_the_templates() -> None:
    made = [call("get_weather", {"city": "New York", "on": True, "x": None}), call("now")]
    results = [ToolResult(call=made[1], text="noon")]
    assert DIALECTS["pythonic"].render_calls(made) == '[get_weather(city="New York", on=True, x=None), now()]'
    assert DIALECTS["olmo3"].render_calls(made) == (
        "<function_calls>\nget_weather(city='New York', on=true, x=null)\nnow()\n</function_calls>"
    )
    assert DIALECTS["lfm2"].render_calls(made) == (
        "<|tool_call_start|>[get_weather(city='New York', on=True, x=None), now()]<|tool_call_end|>"
    )
    assert DIALECTS["pythonic"].render_results(results) == '"noon"'
    assert DIALECTS["olmo3"].render_results(results) == "Function now returned:\nnoon"
    assert DIALECTS["lfm2"].render_results(results) == "<|tool_response_start|>noon<|tool_response_end|>"
