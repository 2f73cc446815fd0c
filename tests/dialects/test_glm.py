"""Calls in the forms of GLM 4.5 to 4.7."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, calls_of, scan, text_of, tool
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


HY = """<tool_calls:opensource>
<tool_call:opensource>get_weather<tool_sep:opensource>
<arg_key:opensource>city</arg_key:opensource>
<arg_value:opensource>Paris</arg_value:opensource>
</tool_call:opensource>
<tool_call:opensource>now<tool_sep:opensource>
</tool_call:opensource>
</tool_calls:opensource>"""
HY_CALLS = [("get_weather", {"city": "Paris"}), ("now", {})]


@pytest.mark.parametrize(
    "text",
    [
        HY,
        HY.replace(":opensource", ""),
        HY.replace("\n", ""),
        HY.replace("</tool_call:opensource>", ""),
        HY.replace("<tool_calls:opensource>", "").replace("</tool_calls:opensource>", ""),
    ],
    ids=["template", "no suffix", "one line", "no end of calls", "no outer tag"],
)
def test_calls_of_hy_are_parsed(text: str) -> None:
    found = scan("hy3", f"Checking.{text}", [tool("get_weather", {"city": {"type": "string"}}), tool("now")])
    assert text_of(found).strip() == "Checking."
    assert calls_of(found) == HY_CALLS


def test_hy_is_rendered_as_in_its_template() -> None:
    dialect = DIALECTS["hy3"]
    made = [call(name, arguments) for name, arguments in HY_CALLS]
    assert dialect.render_calls(made) == HY
    assert (
        dialect.render_results([ToolResult(call=one, text=one.name) for one in made])
        == """<tool_responses:opensource>
<tool_response:opensource>
get_weather
</tool_response:opensource>
<tool_response:opensource>
now
</tool_response:opensource>
</tool_responses:opensource>"""
    )


def test_tags_of_longcat_lite_have_a_prefix() -> None:
    text = """<longcat_tool_call>get_weather
<longcat_arg_key>city</longcat_arg_key>
<longcat_arg_value>Paris</longcat_arg_value>
</longcat_tool_call>"""
    assert scan("longcat_lite", text, [WEATHER]) == [ParsedCall("get_weather", '{"city": "Paris"}')]
    assert DIALECTS["longcat_lite"].render_calls([call("get_weather", {"city": "Paris"})]) == text
