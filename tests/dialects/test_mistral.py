"""Calls in the three forms of Mistral."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, ParsedCall, Text, call, scan, tool
from toolrelay.core.identity import shorten_id
from toolrelay.dialects.base import ToolResult

ADD = ParsedCall("add", '{"a": 3.5, "b": 4}')


@pytest.mark.parametrize("name", ["mistral", "mistral_v11", "mistral_v13"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[TOOL_CALLS][{"name": "add", "arguments":{"a": 3.5, "b": 4}}]', [ADD]),
        ('[TOOL_CALLS] [{"name": "add", "arguments": {"a": 3.5, "b": 4}, "id": "abc123XYZ"}]', [ADD]),
        ('[TOOL_CALLS] [{"arguments": {"name": "Ada"}, "name": "age"}]', [ParsedCall("age", '{"name": "Ada"}')]),
        (
            '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]',
            [ParsedCall("f", "{}"), ParsedCall("g", "{}")],
        ),
        ('[TOOL_CALLS]add{"a": 3.5, "b": 4}', [ADD]),
        ('[TOOL_CALLS]add[ARGS]{"a": 3.5, "b": 4}', [ADD]),
        ('[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{"a": 3.5, "b": 4}', [ADD]),
        ('[TOOL_CALLS]add{"a": 3.5, "b": 4}[TOOL_CALLS]mul{"a": 3}', [ADD, ParsedCall("mul", '{"a": 3}')]),
        ('Hello[TOOL_CALLS] [{"name": "f", "arguments": {}}]\nbye', [Text("Hello"), ParsedCall("f", "{}"), Text("\nbye")]),
        ("[TOOL_CALLS] not json at all", [Text("[TOOL_CALLS] not json at all")]),
        ("[TOOL_CALLS]", []),  # row A7
        ('[TOOL_CALLS]add{"a": "[TOOL_CALLS]x{}"}', [ParsedCall("add", '{"a": "[TOOL_CALLS]x{}"}')]),
        ('[TOOL_CALLS]add[ARGS]{"a": ', [ParsedCall("add", '{"a": ', "cut")]),
    ],
)
def test_every_form_is_parsed(name: str, text: str, expected: list[object]) -> None:
    assert scan(name, text) == expected


LISTED = '[{"name": "add", "arguments": {"a": 3.5, "b": 4}}]'


@pytest.mark.parametrize("name", ["mistral", "mistral_v11", "mistral_v13"])
def test_list_without_its_mark_is_a_call_if_it_is_the_whole_answer(name: str) -> None:
    for text in (LISTED, f" {LISTED}\n", f"\n  {LISTED[:1]}\n{LISTED[1:]}</s>"):
        assert [one for one in scan(name, text, [tool("add")]) if one != Text(text[: text.index("[")])] == [ADD], text
    for text in (f"Hi. {LISTED}", f"{LISTED} is a call.", "[1, 2]", LISTED[1:-1], LISTED[:-1] + ", 5]"):  # bug 15
        assert scan(name, text, [tool("add")]) == [Text(text)], text
    assert scan(name, LISTED, [tool("mul")]) == [Text(LISTED)]


def test_calls_and_results_are_rendered_as_in_each_version() -> None:
    made = call("add", '{"a": 1}', identifier="call_abcdefghijklmnopqrstuvwx")
    result = ToolResult(call=made, text="2")
    short = shorten_id(made.id)
    assert (
        DIALECTS["mistral"].render_calls([made]) == f'[TOOL_CALLS][{{"name": "add", "arguments": {{"a": 1}}, "id": "{short}"}}]'
    )
    assert (
        DIALECTS["mistral"].render_results([result]) == f'[TOOL_RESULTS]{{"content": "2", "call_id": "{short}"}}[/TOOL_RESULTS]'
    )
    assert DIALECTS["mistral_v11"].render_calls([made]) == f'[TOOL_CALLS]add[CALL_ID]{short}[ARGS]{{"a": 1}}'
    assert DIALECTS["mistral_v11"].render_results([result]) == f"[TOOL_RESULTS]{short}[TOOL_CONTENT]2[/TOOL_RESULTS]"
    assert DIALECTS["mistral_v13"].render_calls([made]) == '[TOOL_CALLS]add[ARGS]{"a": 1}'
