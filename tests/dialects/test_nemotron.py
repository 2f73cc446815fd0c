"""Calls as Nemotron Nano 2 prints them."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, ParsedCall, Text, call, scan
from toolrelay.dialects.base import ToolResult

PARIS = ParsedCall("get_weather", '{"city": "Paris"}')
OBJECT = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<TOOLCALL>[{OBJECT}]</TOOLCALL>", [PARIS]),
        (f"Sure.\n<TOOLCALL>[{OBJECT}, {OBJECT}]</TOOLCALL>\n", [Text("Sure.\n"), PARIS, PARIS, Text("\n")]),
        ('<TOOLCALL>[{"name": "now"}]</TOOLCALL>', [ParsedCall("now", "{}")]),
        ('<TOOLCALL>[{"name": "f", "arguments": "{\\"a\\": 1}"}]</TOOLCALL>', [ParsedCall("f", '{"a": 1}')]),
        ('<TOOLCALL>[{"name": "f", "arguments": {"a": "</TOOLCALL>"}}]</TOOLCALL>', [ParsedCall("f", '{"a": "</TOOLCALL>"}')]),
        ("<TOOLCALL> is a tag", [Text("<TOOLCALL> is a tag")]),
        ('<TOOLCALL>[{"name": "f", "arguments": {"a', [ParsedCall("f", '{"a', "cut")]),
    ],
)
def test_real_outputs(text: str, expected: list[object]) -> None:
    assert scan("nemotron", text) == expected


def test_calls_and_results_stand_in_the_history_as_the_template_has_them() -> None:
    made = call("get_weather", {"city": "Paris"})
    assert DIALECTS["nemotron"].render_calls([made, made]) == f"<TOOLCALL>[{OBJECT}, {OBJECT}]</TOOLCALL>"
    assert DIALECTS["nemotron"].render_results([ToolResult(call=made, text="sun")]) == "<TOOL_RESPONSE>[sun]</TOOL_RESPONSE>"
