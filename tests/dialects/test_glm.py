"""Calls in the forms of GLM 4.5 to 4.7."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, calls_of, scan, tool
from toolrelay.dialects.base import ToolResult

WEATHER = tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}})
LINES = """<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>北京</arg_value>
<arg_key>days</arg_key>
<arg_value>3</arg_value>
</tool_call>"""
MADE = call("get_weather", {"city": "北京", "days": 3})


@pytest.mark.parametrize("name", ["glm45", "glm47"])
@pytest.mark.parametrize("text", [LINES, LINES.replace("\n", ""), LINES.replace("\n", " "), LINES.replace("\n", "\n\n")])
def test_line_breaks_do_not_matter(name: str, text: str) -> None:
    assert calls_of(scan(name, text, [WEATHER])) == [("get_weather", {"city": "北京", "days": 3})]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>now</tool_call>", [ParsedCall("now", "{}")]),
        ("<tool_call>now\n</tool_call>.", [ParsedCall("now", "{}"), Text(".")]),
        ("<tool_call>a</tool_call><tool_call>b</tool_call>", [ParsedCall("a", "{}"), ParsedCall("b", "{}")]),
        ("<tool_call> is a tag", [Text("<tool_call> is a tag")]),
        ("<tool_call></tool_call>!", [Text("!")]),
        ("<tool_call>get_wea", [BrokenCall("cut", "<tool_call>get_wea")]),
        ("<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_", [ParsedCall("f", '{"k": ', "cut")]),
        ('<tool_call>{"name": "f"}</tool_call>', [Text('<tool_call>{"name": "f"}</tool_call>')]),
    ],
)
def test_typical_output_is_parsed(text: str, expected: list[object]) -> None:
    assert scan("glm45", text) == expected


def test_closing_tag_in_a_value_does_not_end_it() -> None:  # bug 17
    value = "</arg_value> and </tool_call> and <arg_key>"
    assert calls_of(scan("glm47", LINES.replace("北京", value), [WEATHER])) == [("get_weather", {"city": value, "days": 3})]


def test_calls_and_results_are_rendered_as_in_the_templates() -> None:
    assert DIALECTS["glm45"].render_calls([MADE]) == LINES
    assert DIALECTS["glm47"].render_calls([MADE]) == LINES.replace("\n", "")
    assert DIALECTS["glm45"].render_results([ToolResult(call=MADE, text="x")]) == "<tool_response>\nx\n</tool_response>"
