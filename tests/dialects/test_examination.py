"""Slips of models that an outside examination found: each test names the row of its table.

Every text is scanned whole, in single characters and in drawn chunks.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.dialects.scanning import DIALECTS, Reasoning, Text, call, calls_of, fold, scan, scan_chunks, text_of, tool
from tests.dialects.test_every_dialect import split

TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    tool("get_time", {"zone": {"type": "string"}}),
    tool("submit"),
    tool("label", {"tags": {"type": "array"}}),
]
PARIS: list[tuple[str, Any]] = [("get_weather", {"city": "Paris"})]
BOTH: list[tuple[str, Any]] = [*PARIS, ("get_time", {"zone": "CET"})]
SUBMIT: list[tuple[str, Any]] = [("submit", {})]
TWO_KEYS: list[tuple[str, Any]] = [("get_weather", {"city": "Paris", "days": 2})]


def qwen(inner: str) -> str:
    return f"<tool_call>\n<function=get_weather>\n{inner}"


def dsml(inner: str) -> str:
    return f"<｜DSML｜tool_calls>\n{inner}\n</｜DSML｜tool_calls>"


def minimax(inner: str) -> str:
    return f"<minimax:tool_call>\n{inner}\n</minimax:tool_call>"


def k2(*calls: str) -> str:
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


def lfm2(inner: str) -> str:
    return f"<|tool_call_start|>[{inner}]<|tool_call_end|>"


K2_PARIS = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}'
K2_TIME = '<|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{"zone": "CET"}'
K3_CALL = '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
K3_TIME = '<|open|>call tool="get_time" index="2"<|sep|><|open|>argument key="zone" type="string"<|sep|>CET'
END = "</function>\n</tool_call>"
JSON_MESSAGE = '<|constrain|>json<|message|>{"city": "Paris"}<|call|>'
TIME = "<function=get_time>\n<parameter=zone>\nCET\n</parameter>\n</function>\n</tool_call>"
CITY = "<parameter=city>\nParis\n</parameter>\n"
MINIMAX_CITY = '<invoke name="get_weather">\n<parameter name="city">Paris'
MINIMAX_TIME = '<invoke name="get_time">\n<parameter name="zone">CET</parameter>\n</invoke>'

A1 = {
    "no end of the call": ("qwen3_coder", qwen(f"{CITY}</tool_call>"), PARIS),
    "next parameter in a value": (
        "qwen3_coder",
        qwen(f"<parameter=city>\nParis\n<parameter=days>\n2\n</parameter>\n{END}"),
        TWO_KEYS,
    ),
    "next parameter in the first line": (
        "qwen3_coder",
        qwen("<parameter=city>Paris<parameter=days>2</parameter></function></tool_call>"),
        TWO_KEYS,
    ),
    "next parameter in a number": ("qwen3_coder", qwen(f"<parameter=days>\n2\n{CITY}{END}"), TWO_KEYS),
    "next call after a parameter": ("qwen3_coder", qwen(f"{CITY}{TIME}"), BOTH),
    "next block after a parameter": ("qwen3_coder", qwen(f"{CITY}<tool_call>\n{TIME}"), BOTH),
    "next call in a value": ("qwen3_coder", qwen(f"<parameter=city>\nParis\n{TIME}"), BOTH),
    "next block in a value": ("qwen3_coder", qwen(f"<parameter=city>\nParis\n<tool_call>\n{TIME}"), BOTH),
    "block ended in a value, next block": (
        "qwen3_coder",
        qwen(f"<parameter=city>\nParis\n</tool_call>\n<tool_call>\n{TIME}"),
        BOTH,
    ),
    "call ended in a value": ("qwen3_coder", qwen("<parameter=city>\nParis\n</function>\n</tool_call>"), PARIS),
    "call and answer ended in a value": ("qwen3_coder", qwen("<parameter=city>\nParis\n</function>"), PARIS),
    "block ended in a value": ("qwen3_coder", qwen("<parameter=city>\nParis\n</tool_call>"), PARIS),
    "block ended without parameters": ("qwen3_coder", "<tool_call>\n<function=submit>\n</tool_call>", [("submit", {})]),
    "line breaks of Windows": ("qwen3_coder", qwen(f"{CITY}</function>\n</tool_call>").replace("\n", "\r\n"), PARIS),
    "seed_oss: no end of the call": (
        "seed_oss",
        "<seed:tool_call><function=get_weather><parameter=city>Paris</parameter></seed:tool_call>",
        PARIS,
    ),
    "seed_oss: next parameter in a value": (
        "seed_oss",
        (
            "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris\n"
            "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>"
        ),
        TWO_KEYS,
    ),
    "glm45: next argument in a value": (
        "glm45",
        (
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n"
            "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
        ),
        TWO_KEYS,
    ),
    "glm47: next argument in a value": (
        "glm47",
        (
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris"
            "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>"
        ),
        TWO_KEYS,
    ),
    "glm45: call ended in a value": (
        "glm45",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n</tool_call>",
        PARIS,
    ),
    "glm45: next call in a value": (
        "glm45",
        (
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n"
            "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>CET</arg_value>\n</tool_call>"
        ),
        BOTH,
    ),
    "glm45: next call after an argument": (
        "glm45",
        (
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
            "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>CET</arg_value>\n</tool_call>"
        ),
        BOTH,
    ),
    "minimax_m2: no end of the call": ("minimax_m2", minimax(f"{MINIMAX_CITY}</parameter>"), PARIS),
    "minimax_m2: next call after a parameter": ("minimax_m2", minimax(f"{MINIMAX_CITY}</parameter>\n{MINIMAX_TIME}"), BOTH),
    "minimax_m2: next call in a value": ("minimax_m2", minimax(f"{MINIMAX_CITY}\n{MINIMAX_TIME}"), BOTH),
    "minimax_m2: call ended in a value": ("minimax_m2", minimax(f"{MINIMAX_CITY}\n</invoke>"), PARIS),
    "minimax_m2: next parameter in a value": (
        "minimax_m2",
        minimax(f'{MINIMAX_CITY}\n<parameter name="days">2</parameter>\n</invoke>'),
        TWO_KEYS,
    ),
    "kimi_k3: no end of the call": (
        "kimi_k3",
        f"<|open|>tools<|sep|>{K3_CALL}<|close|>argument<|sep|><|close|>tools<|sep|>",
        PARIS,
    ),
    "kimi_k3: next call after an argument": (
        "kimi_k3",
        (
            f"<|open|>tools<|sep|>{K3_CALL}<|close|>argument<|sep|>{K3_TIME}"
            "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
        ),
        BOTH,
    ),
}
A2 = {
    "call without a body": ("deepseek_v4", dsml('<｜DSML｜invoke name="submit"/>'), [("submit", {})]),
    "call without a body, then another": (
        "minimax_m2",
        minimax(f'<invoke name="submit" />\n{MINIMAX_TIME}'),
        [("submit", {}), BOTH[1]],
    ),
    "JSON as the body": ("deepseek_v4", dsml('<｜DSML｜invoke name="get_weather">\n{"city": "Paris"}\n</｜DSML｜invoke>'), PARIS),
    "JSON as the body of a function": ("qwen3_coder", qwen('{"city": "Paris"}\n</function>\n</tool_call>'), PARIS),
    **{
        f"all arguments in {key}": (
            "deepseek_v4",
            dsml(
                f'<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="{key}" string="false">{{"city": "Paris"}}'
                "</｜DSML｜parameter>\n</｜DSML｜invoke>"
            ),
            PARIS,
        )
        for key in ("arguments", "input")
    },
    "string attribute of an integer": (
        "deepseek_v4",
        dsml(
            '<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="days" string="true">42</｜DSML｜parameter>\n'
            "</｜DSML｜invoke>"
        ),
        [("get_weather", {"days": 42})],
    ),
    "no end of the call": (
        "deepseek_v4",
        dsml('<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>'),
        PARIS,
    ),
}
A4 = {
    "two calls without an end": ("kimi_k2", k2(K2_PARIS, K2_TIME), BOTH),
    "deepseek_v31": (
        "deepseek_v31",
        (
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}'
            '<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{"zone": "CET"}<｜tool▁calls▁end｜>'
        ),
        BOTH,
    ),
}
A7 = {
    "step3: half of a mark": (
        "step3",
        (
            '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="get_weather"><steptml:parameter name="city">Paris'
            "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>"
        ),
        PARIS,
    ),
}
A9 = {
    "JSON in the block": (
        "qwen3_coder",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        PARIS,
    ),
    "quotes around the name": ("qwen3_coder", f'<tool_call>\n<function="get_weather">\n{CITY}</function>\n</tool_call>', PARIS),
    "function without a body": ("qwen3_coder", "<tool_call>\n<function=submit/>\n</tool_call>", [("submit", {})]),
}
A5 = {
    "response left open": (
        "kimi_k3",
        f"<|open|>response<|sep|>\n<|open|>tools<|sep|>{K3_CALL}<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        PARIS,
    ),
}
A6 = {
    "recipient before the channel": ("harmony", f"to=functions.get_weather<|channel|>commentary {JSON_MESSAGE}", PARIS),
    "two channels": (
        "harmony",
        f"<|channel|>commentary to=functions.get_weather<|channel|>commentary {JSON_MESSAGE}",
        PARIS,
    ),
}
A8 = {
    "keys without quotes": (
        "hermes",
        '<tool_call>\n{name: "get_weather", arguments: {"city": "Paris"}}\n</tool_call>',
        PARIS,
    ),
}
B5 = {
    "arguments beside the name": ("hermes", '<tool_call>{"name": "get_weather", "city": "Paris"}</tool_call>', PARIS),
    "arguments before the name": ("hermes", '<tool_call>{"city": "Paris", "name": "get_weather"}</tool_call>', PARIS),
    "a list": ("granite", '<|tool_call|>[{"name": "get_weather", "city": "Paris", "days": 2}]', TWO_KEYS),
}
A3 = {
    "Llama 4 with marks": ("pythonic", '<|python_start|>[get_weather(city="Paris")]<|python_end|>', PARIS),
}
A9 |= {
    "a blank after the mark": (
        "granite",
        '<tool_call> [{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_call>',
        PARIS,
    ),
    "a name alone": ("mistral_v13", "[TOOL_CALLS]submit", [("submit", {})]),
}
GLM_ARRAY = "<tool_call>label\n<arg_key>tags</arg_key>\n<arg_value>…</arg_value>\n</tool_call>"
TAGS: list[tuple[str, Any]] = [("label", {"tags": ["a", {"b": "c"}]})]
A9 |= {
    "glm45: an array escaped once too often": ("glm45", GLM_ARRAY.replace("…", '[\\"a\\", {\\"b\\": \\"c\\"}]'), TAGS),
    "glm45: an array in a string": ("glm45", GLM_ARRAY.replace("…", '"[\\"a\\", {\\"b\\": \\"c\\"}]"'), TAGS),
    "lfm2: a set": ("lfm2", lfm2("label(tags={'urgent', 'bug'})"), [("label", {"tags": ["urgent", "bug"]})]),
    "lfm2: a set of numbers": (
        "lfm2",
        lfm2("label(tags=[{1, 2.5}, {True,}, {}])"),
        [("label", {"tags": [[1, 2.5], [True], {}]})],
    ),
    "lfm2: inner quotes": (
        "lfm2",
        lfm2("get_weather(city='sed -n '360,450p' /testbed/common.py', days=2)"),
        [("get_weather", {"city": "sed -n '360,450p' /testbed/common.py", "days": 2})],
    ),
    "lfm2: quotes in quotes": (
        "lfm2",
        lfm2("get_weather(city='python3 -c \"from sympy import latex\nprint(latex(3*x, mul_symbol='\\,'))\"')"),
        [("get_weather", {"city": "python3 -c \"from sympy import latex\nprint(latex(3*x, mul_symbol='\\,'))\""})],
    ),
    "lfm2: apostrophe": ("lfm2", lfm2("get_weather(city='Land's End')"), [("get_weather", {"city": "Land's End"})]),
    "lfm2: leading zeros": ("lfm2", lfm2("get_weather(days=07)"), [("get_weather", {"days": 7})]),
    "kimi_k2: a bracket too many": ("kimi_k2", k2(K2_PARIS + "}<|tool_call_end|>"), PARIS),
}
B9 = {
    "blanks around the name": ("hermes", '<tool_call>{"name": " submit ", "arguments": {}}</tool_call>', [("submit", {})]),
    **{
        f"a blank in the tag: {name}": (
            name,
            DIALECTS[name].render_calls([call("submit")]).replace("<tool_call>", "<tool_call >"),
            SUBMIT,
        )
        for name in ("hermes", "qwen3_coder", "glm45", "glm47")
    },
    "JSON in a fence": (
        "llama3_json",
        '```json\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n```\n',
        PARIS,
    ),
    "two calls in a fence": (
        "xlam",
        (
            '```json\n[{"name": "get_weather", "arguments": {"city": "Paris"}},\n'
            '{"name": "get_time", "arguments": {"zone": "CET"}}]\n```'
        ),
        BOTH,
    ),
    "end of the turn": ("llama3_json", '{"name": "get_weather", "parameters": {"city": "Paris"}}<|eot_id|>', PARIS),
}
ROWS = {
    f"{row}: {case}": vector
    for row, cases in {
        "A1": A1,
        "A2": A2,
        "A4": A4,
        "A5": A5,
        "A6": A6,
        "A7": A7,
        "A8": A8,
        "A9": A9,
        "B5": B5,
        "A3": A3,
        "B9": B9,
    }.items()
    for case, vector in cases.items()
}


@pytest.mark.parametrize("row", ROWS)
@given(data=st.data())
@settings(max_examples=10)
def test_calls_of_the_row_are_found(row: str, data: DataObject) -> None:
    name, text, expected = ROWS[row]
    found = scan(name, text, TOOLS)
    assert calls_of(found) == expected
    assert not text_of(found).strip()
    assert fold(scan_chunks(DIALECTS[name], split(data, text), TOOLS)) == found


def test_a1_text_around_two_calls_without_an_end_is_kept() -> None:
    text = f"Sure.\n{qwen(CITY)}</tool_call>\nAnd the time.\n<tool_call>\n{TIME.replace('</function>', '')}\nDone."
    found = scan("qwen3_coder", text, TOOLS)
    assert calls_of(found) == BOTH
    assert text_of(found) == "Sure.\n\nAnd the time.\n\nDone."


UNCLOSED = {
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</tool_call>",
    "qwen3_coder, the call": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</function>",
    "glm45": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris\n</invoke>',
}


@pytest.mark.parametrize("case", UNCLOSED)
def test_a1_unclosed_value_ends_before_prose_if_its_closing_tag_never_comes(case: str) -> None:
    name = case.partition(",")[0]
    prose = "\nNow I wait for the weather."
    found = scan(name, UNCLOSED[case] + prose, TOOLS)
    assert calls_of(found) == PARIS
    assert text_of(found) == prose
    assert calls_of(scan(name, UNCLOSED[case] + " word" * 1000, TOOLS)) == [], "more than 4 KiB may be a value"


@pytest.mark.parametrize(
    "quoted",
    [
        "a <parameter=zone> b",
        "line\nsee <parameter=days> there",
        "line\n<parameter=zone>\nx",
        "line\n</tool_call>\nmore",
        "line\n</function>\nmore",
        "line\n<function=unknown>\nmore",
        "line\nsee <function=get_time> there",
        "line\n<tool_call>\nmore",
    ],
)
def test_a1_quoted_marks_stay_in_a_value(quoted: str) -> None:
    """The parameter is not declared, the mark is inside a line, or what follows it does not fit."""
    text = qwen(f"<parameter=city>\n{quoted}\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>")
    assert calls_of(scan("qwen3_coder", text, TOOLS)) == [("get_weather", {"city": quoted, "days": 2})]


def test_a2_declared_parameter_named_input_is_not_unwrapped() -> None:
    wraps = tool("run", {"input": {"type": "object"}})
    text = minimax('<invoke name="run">\n<parameter name="input">{"a": 1}</parameter>\n</invoke>')
    assert calls_of(scan("minimax_m2", text, [wraps])) == [("run", {"input": {"a": 1}})]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call></tool_call>Content"),
        ("hermes", "<tool_call>\n\n</tool_call>Content"),
        ("qwen3_coder", "<tool_call>\n</tool_call>Content"),
        ("seed_oss", "<seed:tool_call></seed:tool_call>Content"),
        ("glm45", "<tool_call></tool_call>Content"),
        ("minimax_m2", "<minimax:tool_call></minimax:tool_call>Content"),
        ("deepseek_v4", "<｜DSML｜tool_calls></｜DSML｜tool_calls>Content"),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>Content"),
        ("lfm2", "<|tool_call_start|><|tool_call_end|>Content"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>Content"),
        ("cohere", "<|START_RESPONSE|><co>Content</co: 0:[1]><|END_RESPONSE|>"),
    ],
)
def test_a7_empty_block_and_citation_marks_are_dropped(name: str, text: str) -> None:
    assert scan(name, text, TOOLS) == [Text("Content")]


def test_a6_recipient_assistant_is_no_call_and_leaves_no_header() -> None:
    text = "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Hi."
    assert scan("harmony", text, TOOLS) == [Reasoning("Hm."), Text("Hi.")]


# JSON in the frames of dialects that have nothing else in common: `…` stands for the arguments.
FRAMES = {
    "hermes": '<tool_call>{"name": "get_weather", "arguments": …}</tool_call>',
    "kimi_k2": k2("<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>…<|tool_call_end|>"),
    "deepseek_v31": "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>…<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜>",
    "harmony": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>…<|call|>",
    "apertus": '<|tools_prefix|>[{"get_weather": …}]<|tools_suffix|>',
    "nemotron": '<TOOLCALL>[{"name": "get_weather", "arguments": …}]</TOOLCALL>',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n…\n</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": …}]',
    "mistral_v13": "[TOOL_CALLS]get_weather[ARGS]…",
    "llama3_json": '{"name": "get_weather", "parameters": …}',
}
MENDED: dict[str, tuple[str, Any]] = {
    "B1: comma at the end": ('{"city": "Paris",}', {"city": "Paris"}),
    "B1: commas at all ends": ('{"city": ["a", {"b": 1,},],\n}', {"city": ["a", {"b": 1}]}),
    "B1: constants of Python": ('{"a": True, "b": [None, False]}', {"a": True, "b": [None, False]}),
    "B1: single quotes": ("{'city': 'a \"b\" \\'c\\''}", {"city": "a \"b\" 'c'"}),
    "B1: no comma before a key": ('{"a": "b" "c": {"d": 1} "e": 2}', {"a": "b", "c": {"d": 1}, "e": 2}),
    "B1: no comma between objects": ('{"a": [{"b": 1} {"c": 2}]}', {"a": [{"b": 1}, {"c": 2}]}),
    "B1: wrong bracket": ('{"a": [1, 2}', {"a": [1, 2]}),
    "B1: backslashes": ('{"a": "\\d+\\.x C:\\users"}', {"a": "\\d+\\.x C:\\users"}),
    "B1: arguments in a string": ('"{\\"city\\": \\"Paris\\", \\"ok\\": True,}"', {"city": "Paris", "ok": True}),
    "B1: arguments in a string, a brace missing": ('"{\\"a\\": {\\"b\\": 1}"', {"a": {"b": 1}}),
    "A8: arguments in a string that is not escaped": ('"{"city": "Paris"}"', {"city": "Paris"}),
    "A8: keys without quotes": ('{city: "Paris", the_days: 2}', {"city": "Paris", "the_days": 2}),
    "A8: quotation": ('{"a": "He said "hello" to me"}', {"a": 'He said "hello" to me'}),
    "A8: quotation at the end": ('{"a": "He said "hello"", "b": 1}', {"a": 'He said "hello"', "b": 1}),
    "A8: quotation at the beginning": ('{"a": ""Hello," she said."}', {"a": '"Hello," she said.'}),
    "A8: two quotations": ('{"a": "a "b" c "d", e"}', {"a": 'a "b" c "d", e'}),
    "A8: quoted bracket": ('{"content": "He said "}" there"}', {"content": 'He said "}" there'}),
    "A8: quoted brackets": ('{"content": "He said "}}" there"}', {"content": 'He said "}}" there'}),
    "A8: markup": ('{"html": "<a href="/x">y</a>"}', {"html": '<a href="/x">y</a>'}),
    "A8: JSON in a string": ('{"a": "{"b": "c", "d": [1, "e"]}"}', {"a": '{"b": "c", "d": [1, "e"]}'}),
    "A8: apostrophe": ("{'a': 'it's here'}", {"a": "it's here"}),
}
BROKEN = {
    "A8: quoted bracket without an end": '{"content": "a "}"}',
    "A8: one quotation mark": '{"a": "say "hi"}',
    "A8: a string without an end": '{"a": "say "hi", "b": "c"}',
    "A8: all of it is quoted": '{"a": ""b""}',
    "A8: inches": '{"a": "5" wide"}',
    "A8: sum of strings": '{"a": "b" + "c"}',
    "B1: no value": '{"city": }',
    "B1: two commas": '{"a": [1,,2]}',
    "B1: unknown word": '{"a": undefined}',
    "B1: two kinds of backslashes": '{"a": "C:\\dir\\new"}',
    "B1: strings without a comma": '{"a": ["b" "c"]}',
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("row", MENDED)
@given(data=st.data())
@settings(max_examples=5)
def test_slip_in_json_is_repaired_in_every_frame_and_chunking(name: str, row: str, data: DataObject) -> None:
    written, expected = MENDED[row]
    text = FRAMES[name].replace("…", written)
    if name == "qwen3_coder" and not written.startswith("{"):
        return  # only an object may stand in the place of its parameters
    found = scan(name, text, TOOLS)
    assert calls_of(found) == [("get_weather", expected)]
    assert not text_of(found)
    assert fold(scan_chunks(DIALECTS[name], split(data, text), TOOLS)) == found


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("row", BROKEN)
@given(data=st.data())
@settings(max_examples=5)
def test_ambiguous_slip_in_json_is_never_a_call(name: str, row: str, data: DataObject) -> None:
    text = FRAMES[name].replace("…", BROKEN[row])
    found = scan(name, text, TOOLS)
    assert calls_of(found) == []
    assert fold(scan_chunks(DIALECTS[name], split(data, text), TOOLS)) == found


@pytest.mark.parametrize("name", sorted(set(FRAMES) - {"mistral", "mistral_v13", "llama3_json"}))
@pytest.mark.parametrize("written", ['{"a": {"b": 1}', '{"a": [1, {"b": "x"', '{"a": "x", "c": [{"b": 1, "d": 2}],'])
def test_b1_missing_brackets_are_closed_at_the_end_mark(name: str, written: str) -> None:
    missing = {'{"a": {"b": 1}': "}", '{"a": [1, {"b": "x"': "}]}"}.get(written, "}")
    found = scan(name, FRAMES[name].replace("…}]", "…").replace("…}", "…").replace("…", written), TOOLS)
    assert calls_of(found) == [("get_weather", json.loads(written.removesuffix(",") + missing))]
    assert not text_of(found)


def test_b1_inner_object_with_several_members_is_not_closed() -> None:
    """Its last member may belong to the outer object."""
    assert calls_of(scan("kimi_k2", FRAMES["kimi_k2"].replace("…", '{"a": {"b": 1, "c": 2}'), TOOLS)) == []


def test_b5_members_beside_arguments_are_ignored_as_before() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}, "thought": "hm"}</tool_call>'
    assert calls_of(scan("hermes", text, TOOLS)) == PARIS


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n```\nThat is a call.',
        '```json\n{"name": "other", "parameters": {}}\n```',
        '```json\n{"city": "Paris"}\n```',
        'So:\n```json\n{"name": "submit", "parameters": {}}\n```',
        "```json\n",
    ],
)
def test_b9_fenced_json_that_is_not_the_whole_answer_or_no_call_is_text(text: str) -> None:
    assert scan("llama3_json", text, TOOLS) == [Text(text)]
