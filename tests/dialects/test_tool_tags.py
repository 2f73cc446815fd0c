"""Tags named after tools, with tags, YAML or JSON inside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Text, call, calls_of, scan, text_of, tool
from toolrelay.dialects.yaml_body import yaml_to_json

TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}}),
    tool("write_file", {"path": {"type": "string"}, "contents": {"type": "string"}, "options": {"type": "object"}}),
    tool("now"),
]


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("<get_weather><city>Paris</city><days>3</days></get_weather>", "get_weather", {"city": "Paris", "days": 3}),
        ("<get_weather>\n  <city>San Jose</city>\n</get_weather>", "get_weather", {"city": "San Jose"}),
        ("<get_weather><tags><item>a</item><item>b</item></tags></get_weather>", "get_weather", {"tags": ["a", "b"]}),
        ("<write_file><options><mode>rw</mode></options></write_file>", "write_file", {"options": {"mode": "rw"}}),
        ("<write_file><contents>if a < b: <b>x</b></contents></write_file>", "write_file", {"contents": "if a < b: <b>x</b>"}),
        ('<get_weather>{"city": "Paris"}</get_weather>', "get_weather", {"city": "Paris"}),
        ("<now/>", "now", {}),
        ("<now></now>", "now", {}),
        ("<now>\n</now>", "now", {}),
        ("<get_weather>\ncity: Paris\ndays: 3\n</get_weather>", "get_weather", {"city": "Paris", "days": 3}),
        (
            "<get_weather>\n  city: 'San Jose' \n  tags:\n    - a\n    - 2\n</get_weather>",
            "get_weather",
            {"city": "San Jose", "tags": ["a", 2]},
        ),
        ('<get_weather>\ntags: [a, b]\ncity: "x: y"\n</get_weather>', "get_weather", {"tags": "[a, b]", "city": "x: y"}),
        (
            "<write_file>\npath: /tmp/a.py\ncontents: |\n  def f():\n    return 1\n\n  f()\n</write_file>",
            "write_file",
            {"path": "/tmp/a.py", "contents": "def f():\n  return 1\n\nf()\n"},
        ),
    ],
)
def test_calls_are_parsed(text: str, name: str, arguments: Any) -> None:
    found = scan("tool_tags", f"Sure. {text} Done.", TOOLS)
    assert calls_of(found) == [(name, arguments)]
    assert text_of(found) == "Sure.  Done."


@pytest.mark.parametrize(
    "text",
    [
        "<b>bold</b> and 1 < 2",
        "<get_weather> is a tool",
        "<get_weather><b>x</b></get_weather>",
        "<get_weather>text: not declared</get_weather>",
        "<get_weathers><city>Paris</city></get_weathers>",
        "The tag <now",
    ],
)
def test_other_tags_are_text(text: str) -> None:
    assert scan("tool_tags", text, TOOLS) in ([Text(text)], [Text("The tag "), BrokenCall("cut", "<now")])


def test_truncated_and_invalid_bodies_are_broken() -> None:
    assert scan("tool_tags", "<get_weather>\n<city>Par", TOOLS) == [ParsedCall("get_weather", '{"city": "Par', "cut")]
    assert scan("tool_tags", "<get_weather>\ncity: Par", TOOLS) == [BrokenCall("cut", "<get_weather>\ncity: Par")]
    found = scan("tool_tags", "<get_weather>\ncity: Paris\n  - what\n</get_weather>", TOOLS)
    assert [one.rule for one in found if isinstance(one, BrokenCall)] == ["invalid_yaml"]


def test_texts_are_rendered() -> None:
    made = call("get_weather", {"city": "Paris", "tags": ["a", "b"]})
    assert DIALECTS["tool_tags"].render_calls([made]) == (
        "<get_weather>\n<city>Paris</city>\n<tags><item>a</item><item>b</item></tags>\n</get_weather>"
    )


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", "{}"),
        ("# nothing\n", "{}"),
        ("a: 1 # one\nb: true\nc: null\nd:", '{"a": 1, "b": true, "c": null, "d": null}'),
        ("a:\n  b:\n    c: x\n  d: y", '{"a": {"b": {"c": "x"}, "d": "y"}}'),
        ("a:\n- x: 1\n  y: 2\n- x: 3", '{"a": [{"x": 1, "y": 2}, {"x": 3}]}'),
        ('a: {"b": [1]}\nc: [1, 2]', '{"a": {"b": [1]}, "c": [1, 2]}'),
        ("a: >-\n  one\n  two\n\n  three\nb: |-\n  x", '{"a": "one two\\n\\nthree", "b": "x"}'),
        ("url: https://example.org/a#b", '{"url": "https://example.org/a#b"}'),
        ("a: 1\r\nb: 2\r\n", '{"a": 1, "b": 2}'),
        ("just text", None),
        ("- a\n- b", None),
        ("a: 1\n   b: 2", None),
        ("a: &x 1\n*x", None),
        ("\n".join("  " * depth + "a:" for depth in range(200)), None),
    ],
)
def test_yaml_becomes_json(text: str, parsed: str | None) -> None:
    assert yaml_to_json(text, {}) == parsed
