"""Functionary 3.1 and 3.2."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, Output, ParsedCall, Text, call, scan, tool

TOOLS = [tool("get_weather", {"city": {"type": "string"}}), tool("now")]
PARIS = ParsedCall("get_weather", '{"city": "Paris"}')
NOW = ParsedCall("now", "{}")
WRITTEN = {
    "functionary31": '<function=get_weather>{"city": "Paris"}</function><function=now>{}</function>',
    "functionary32": '>>>get_weather\n{"city": "Paris"}>>>now\n{}',
}


@pytest.mark.parametrize("name", WRITTEN)
def test_calls_are_parsed_and_rendered(name: str) -> None:
    assert scan(name, WRITTEN[name], TOOLS) == [PARIS, NOW]
    assert DIALECTS[name].render_calls([call("get_weather", {"city": "Paris"}), call("now")]) == WRITTEN[name]


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("all\nHello.", [Text("Hello.")]),
        ('get_weather\n{"city": "Paris"}', [PARIS]),
        ('all\nI look.>>>get_weather\n{"city": "Paris"}>>>all\nDone.', [Text("I look."), PARIS, Text("Done.")]),
        ("now\n{}\n>>>now\n{}", [NOW, NOW]),
        ("now is the time", [Text("now is the time")]),
        ("now\nis the time", [Text("now\nis the time")]),
        ("all is well", [Text("all is well")]),
        ("get_rich\n{}", [Text("get_rich\n{}")]),
        (">>> print(1)\n1", [Text(">>> print(1)\n1")]),
        ("a >>> b", [Text("a >>> b")]),
        (">>>get_rich\n{}", [ParsedCall("get_rich", "{}")]),
    ],
)
def test_recipients_are_removed_and_calls_found(text: str, output: list[Output]) -> None:
    assert scan("functionary32", text, TOOLS) == output


def test_truncated_call_is_not_finished() -> None:
    assert scan("functionary32", 'get_weather\n{"city": "Pa', TOOLS) == [ParsedCall("get_weather", '{"city": "Pa', "cut")]
    assert scan("functionary31", '<function=get_weather>{"city": "Paris"}', TOOLS) == [
        ParsedCall("get_weather", '{"city": "Paris"}', "cut")
    ]
