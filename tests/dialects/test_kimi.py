"""Calls in the forms of Kimi K2 and K3."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, ParsedCall, Reasoning, Text, call, calls_of, scan, tool
from toolrelay.dialects.base import ToolResult
from toolrelay.parsing.triggers import ScanOptions

BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'{BEGIN}{CALL}functions.get_weather:0{ARGUMENTS}{{"city": "Paris"}}{CALL_END}{END}',
            [ParsedCall("get_weather", '{"city": "Paris"}')],
        ),
        (
            f"{BEGIN}{CALL}functions.a:0{ARGUMENTS}{{}}{CALL_END}{CALL}functions.b:1{ARGUMENTS}{{}}{CALL_END}{END}",
            [ParsedCall("a", "{}"), ParsedCall("b", "{}")],
        ),
        (f"{CALL}functions.a.b:12{ARGUMENTS}{{}}{CALL_END}", [ParsedCall("a.b", "{}")]),
        (f"{CALL} get_weather {ARGUMENTS} {{}} {CALL_END}", [ParsedCall("get_weather", "{}")]),
        (
            f"<|tool_call_section_begin|>{CALL}functions.a:0{ARGUMENTS}{{}}{CALL_END}<|tool_call_section_end|>",
            [ParsedCall("a", "{}")],
        ),
        (f"Sure.{BEGIN}{CALL}functions.a:0{ARGUMENTS}{CALL_END}{END}", [Text("Sure."), ParsedCall("a", "{}")]),
        (f'{CALL}f:0{ARGUMENTS}{{"a": "{CALL_END}{END}"}}{CALL_END}', [ParsedCall("f", f'{{"a": "{CALL_END}{END}"}}')]),
        (f"{CALL} is how a call begins", [Text(f"{CALL} is how a call begins")]),
        (f'{CALL}f:0{ARGUMENTS}{{"a', [ParsedCall("f", '{"a', "cut")]),
        (f"{CALL}f:0{ARGUMENTS}{{}}", [ParsedCall("f", "{}", "cut")]),
    ],
)
def test_k2_output_is_parsed(text: str, expected: list[object]) -> None:
    assert scan("kimi_k2", text) == expected


K3 = (
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>12<|close|>argument<|sep|>'
    '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
    '<|open|>argument key="a &quot;b&quot;" type="object"<|sep|>{"x": null}<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>"
)
K3_ARGUMENTS = {"city": "12", "days": 3, 'a "b"': {"x": None}}


def test_k3_type_attribute_types_each_argument() -> None:
    assert calls_of(scan("kimi_k3", K3)) == [("get_weather", K3_ARGUMENTS)]


def test_k3_response_section_is_text() -> None:
    text = (
        "Which city?<|close|>think<|sep|><|open|>response<|sep|>One <b>moment</b>.<|close|>response<|sep|>"
        f"{K3}<|close|>message<|sep|><|end_of_msg|>"
    )
    options = ScanOptions(reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>"), begins_in_reasoning=True)
    found = scan("kimi_k3", text, options=options)
    assert found[:2] == [Reasoning("Which city?"), Text("One <b>moment</b>.")]
    assert calls_of(found) == [("get_weather", K3_ARGUMENTS)]
    assert len(found) == 3


def test_k3_arguments_may_be_json() -> None:
    text = (
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>json type="object"<|sep|>{"a": 1}'
        "<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    )
    assert scan("kimi_k3", text) == [ParsedCall("f", '{"a": 1}')]


def test_calls_and_results_are_rendered_as_in_the_templates() -> None:
    made = [call("f", '{"a": 1}'), call("g")]
    assert DIALECTS["kimi_k2"].render_calls(made) == (
        f'{BEGIN}{CALL}functions.f:0{ARGUMENTS}{{"a": 1}}{CALL_END}{CALL}functions.g:1{ARGUMENTS}{{}}{CALL_END}{END}'
    )
    assert DIALECTS["kimi_k2"].render_results([ToolResult(call=made[0], text="x")]) == "## Return of functions.f:0\nx"
    assert DIALECTS["kimi_k3"].render_calls([call("get_weather", K3_ARGUMENTS)]) == K3


def test_words_between_section_and_call_are_no_text() -> None:
    written = DIALECTS["kimi_k2"].render_calls([call("get_weather", {"city": "Paris"})])
    noisy = written.replace("<|tool_call_begin|>", " noise <|tool_call_begin|>")
    assert scan("kimi_k2", f"Hm.{noisy}", []) == [Text("Hm."), *scan("kimi_k2", written, [])]


@pytest.mark.parametrize("blank", ["", " "])
def test_k3_call_outside_of_its_section_is_parsed(blank: str) -> None:
    text = f'<|open|>{blank}call tool="get_weather" index="1"{blank}<|sep|>'
    text += f'<|open|>{blank}argument key="city" type="string"{blank}<|sep|>'
    text += f"Paris<|close|>{blank}argument{blank}<|sep|><|close|>{blank}call{blank}<|sep|>"
    made = ParsedCall("get_weather", '{"city": "Paris"}')
    end = f"<|close|>{blank}message{blank}<|sep|><|end_of_msg|>"
    assert scan("kimi_k3", f"Looking.\n{text}{text}{end}", [tool("get_weather")]) == [Text("Looking.\n"), made, made]
    for other in (f"`{text}`", f"```\n{text}\n```", f"Models print {text}"):
        assert calls_of(scan("kimi_k3", other, [tool("get_weather")])) == []
    for other in (text.replace("get_weather", "other"), f'<|open|>{blank}call tool="…" begins a call.'):
        assert scan("kimi_k3", other, [tool("get_weather")]) == [Text(other)]
