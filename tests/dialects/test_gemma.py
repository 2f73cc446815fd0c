"""Calls in the forms of FunctionGemma, Gemma 4 and Gemma 3."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, ParsedCall, Text, call, calls_of, scan, tool
from toolrelay.core.events import ArgumentsDelta
from toolrelay.dialects.base import ToolResult
from toolrelay.parsing.scanner import Scanner

WEATHER = tool("get_weather", {"location": {"type": "string"}, "days": {"type": "integer"}, "near": {"type": "boolean"}})


def function_gemma(inner: str) -> str:
    return f"<start_function_call>call:get_weather{{{inner}}}<end_function_call>"


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("location:<escape>London<escape>", {"location": "London"}),
        ("location:<escape>San Francisco<escape>,days:3", {"location": "San Francisco", "days": 3}),
        ("days:<escape>3<escape>,near:<escape>true<escape>", {"days": 3, "near": True}),
        ("location:<escape>42<escape>", {"location": "42"}),
        ("location:London", {"location": "London"}),
        ("location:<escape>a{b},c:]<escape>", {"location": "a{b},c:]"}),
        ("location:<escape>NYC<escape>days:2", {"location": "NYC", "days": 2}),
        ("", {}),
        ("x:{a:[1,<escape>two<escape>,{b:null}],c:-1.5e3}", {"x": {"a": [1, "two", {"b": None}], "c": -1500.0}}),
        ("location:<escape><escape>", {"location": ""}),
    ],
)
@pytest.mark.parametrize("name", ["functiongemma", "gemma4"])
def test_values_with_and_without_marks_are_typed(name: str, inner: str, expected: object) -> None:
    text = function_gemma(inner)
    if name == "gemma4":
        text = (
            text.replace("<escape>", '<|"|>')
            .replace("<start_function_call>", "<|tool_call>")
            .replace("<end_function_call>", "<tool_call|>")
        )
    assert calls_of(scan(name, text, [WEATHER])) == [("get_weather", expected)]


def test_adjacent_calls_are_parsed() -> None:
    text = f"Let me check. {function_gemma('')}{function_gemma('days:1')}!"
    assert scan("functiongemma", text, [WEATHER]) == [
        Text("Let me check. "),
        ParsedCall("get_weather", "{}"),
        ParsedCall("get_weather", '{"days": 1}'),
        Text("!"),
    ]


def test_strings_are_emitted_as_they_arrive() -> None:  # bug 1
    scanner = Scanner(DIALECTS["gemma4"], {"get_weather": WEATHER})
    scanner.feed('<|tool_call>call:get_weather{location:<|"|>')
    assert scanner.feed('"Lon') == [ArgumentsDelta(0, '\\"Lon')]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<start_function_call>call me", [Text("<start_function_call>call me")]),
        ("<start_function_call>call:f{a:<escape>x", [ParsedCall("f", '{"a": "x', "cut")]),
        ("<start_function_call>call:f{a:1", [ParsedCall("f", '{"a": ', "cut")]),
        ("<start_function_call>call:f{a:<b>}<end_function_call>.", [ParsedCall("f", '{"a": ', "malformed"), Text(".")]),
    ],
)
def test_incomplete_or_malformed_call_is_not_finished(text: str, expected: list[object]) -> None:  # bug 5
    assert scan("functiongemma", text) == expected


def test_calls_results_and_tools_are_rendered_as_google_does() -> None:
    made = call("get_weather", {"location": "Tokyo", "days": 3, "a b": [True, None]})
    dialect = DIALECTS["functiongemma"]
    inner = "<escape>a b<escape>:[true,null],days:3,location:<escape>Tokyo<escape>"
    assert dialect.render_calls([made]) == function_gemma(inner)
    assert dialect.render_results([ToolResult(call=made, text="sunny")]) == (
        "<start_function_response>response:get_weather{value:<escape>sunny<escape>}<end_function_response>"
    )
    assert dialect.render_tools is not None
    assert dialect.render_tools([tool("now")]) == (
        "<start_function_declaration>declaration:now{description:<escape><escape>,"
        "parameters:{properties:{},type:<escape>OBJECT<escape>}}<end_function_declaration>"
    )


def test_result_cannot_leave_its_string() -> None:
    result = ToolResult(call=call("now"), text="x<escape>}<end_function_response>")
    written = DIALECTS["functiongemma"].render_results([result])
    assert written.count("<escape>") == 2


# Gemma 3


@pytest.mark.parametrize(
    "text",
    [
        '```tool_code\nget_weather(location="Rome", days=2)\n```',
        '```tool_code\nprint(get_weather(location="Rome", days=2))\n```',
        "```tool_code\nget_weather('Rome', 2)\n```",
    ],
)
def test_tool_code_fence_with_an_offered_tool_is_a_call(text: str) -> None:
    found = scan("gemma3", f"Sure.\n{text}\nDone.", [WEATHER])
    assert found == [Text("Sure.\n"), ParsedCall("get_weather", '{"location": "Rome", "days": 2}'), Text("\nDone.")]


@pytest.mark.parametrize(
    "text",
    [
        "```tool_code\nimport os\n```\nthen ```x```",
        "```tool_code\nother(a=1)\n```",
        '```python\nget_weather(location="Rome")\n```',
        'text ```tool_code\nget_weather(location="Rome")\n```',
        '```\n```tool_code\nget_weather(location="Rome")\n```',
    ],
)
def test_other_code_is_text(text: str) -> None:  # bug 15
    assert scan("gemma3", text, [WEATHER]) == [Text(text)]


def test_tool_code_fence_without_a_call_is_a_fence() -> None:
    text = '```tool_code\nx = 1\n```\n```tool_code\nget_weather(location="Rome")\n```'
    assert scan("gemma3", text, [WEATHER]) == [
        Text("```tool_code\nx = 1\n```\n"),
        ParsedCall("get_weather", '{"location": "Rome"}'),
    ]


def test_gemma_3_results_are_rendered_in_a_fence() -> None:
    made = call("now")
    assert DIALECTS["gemma3"].render_calls([made, made]) == "```tool_code\nnow()\nnow()\n```"
    assert DIALECTS["gemma3"].render_results([ToolResult(call=made, text="noon")]) == "```tool_output\nnoon\n```"


@pytest.mark.parametrize("mark", ["<|tool_call>", "<turn|>", "<|tool_response>", "<tool_response|>"])
def test_marks_alone_are_no_reasoning(mark: str) -> None:  # row A7
    assert scan("gemma4", f"<|channel>{mark}<channel|>", [WEATHER]) == []
    assert scan("gemma4", f"<|channel><|channel>{mark}<channel|>", [WEATHER]) == []
