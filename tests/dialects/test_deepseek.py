"""Calls in the forms of DeepSeek V3 and V3.1."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, scan
from toolrelay.dialects.base import ToolResult

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
PARIS = ParsedCall("get_weather", '{"city": "Paris"}')


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v31"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{BEGIN}{CALL}function{SEPARATOR}get_weather\n```json\n{{"city": "Paris"}}\n```{CALL_END}{END}', [PARIS]),
        (f'{BEGIN}{CALL}get_weather{SEPARATOR}{{"city": "Paris"}}{CALL_END}{END}', [PARIS]),
        (f'{CALL}get_weather{SEPARATOR}{{"city": "Paris"}}{CALL_END}', [PARIS]),
        (
            f'a{BEGIN}{CALL}get_weather{SEPARATOR}{{"city": "Paris"}}{CALL_END}{CALL}now{SEPARATOR}{{}}{CALL_END}{END}b',
            [Text("a"), PARIS, ParsedCall("now", "{}"), Text("b")],
        ),
        (f"{BEGIN}{CALL}now{SEPARATOR}{CALL_END}{END}", [ParsedCall("now", "{}")]),
        (f"{BEGIN}{CALL}function{SEPARATOR}{{}}{CALL_END}{END}", [ParsedCall("function", "{}")]),
        (f'{BEGIN}{CALL}f{SEPARATOR}{{"a": "{CALL_END}"}}{CALL_END}{END}', [ParsedCall("f", f'{{"a": "{CALL_END}"}}')]),
        (f"{BEGIN} is what it begins with", [Text(f"{BEGIN} is what it begins with")]),
        (f"{CALL}a b{SEPARATOR}{{}}{CALL_END}", [Text(f"{CALL}a b{SEPARATOR}{{}}{CALL_END}")]),
        (f"{BEGIN}{CALL}f{SEPARATOR}{{}} junk {CALL_END}.", [ParsedCall("f", "{}", "malformed"), Text(".")]),
        (f'{BEGIN}{CALL}f{SEPARATOR}{{"a"', [ParsedCall("f", '{"a"', "cut")]),
        (f"{BEGIN}{CALL}f", [BrokenCall("cut", f"{BEGIN}{CALL}f")]),
    ],
)
def test_both_forms_are_parsed(name: str, text: str, expected: list[object]) -> None:
    assert scan(name, text) == expected


def test_calls_and_results_are_rendered_as_in_the_templates() -> None:
    made = [call("f", '{"a": 1}'), call("g")]
    assert DIALECTS["deepseek_v3"].render_calls(made) == (
        f'{BEGIN}{CALL}function{SEPARATOR}f\n```json\n{{"a": 1}}\n```{CALL_END}\n'
        f"{CALL}function{SEPARATOR}g\n```json\n{{}}\n```{CALL_END}{END}"
    )
    assert DIALECTS["deepseek_v31"].render_calls(made) == (
        f'{BEGIN}{CALL}f{SEPARATOR}{{"a": 1}}{CALL_END}{CALL}g{SEPARATOR}{{}}{CALL_END}{END}'
    )
    results = [ToolResult(call=made[0], text="1"), ToolResult(call=made[1], text="2")]
    assert DIALECTS["deepseek_v3"].render_results(results) == (
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>1<｜tool▁output▁end｜>\n"
        "<｜tool▁output▁begin｜>2<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    )
    assert DIALECTS["deepseek_v31"].render_results(results) == (
        "<｜tool▁output▁begin｜>1<｜tool▁output▁end｜><｜tool▁output▁begin｜>2<｜tool▁output▁end｜>"
    )
