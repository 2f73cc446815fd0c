"""Slips of models that an outside examination found: each test names the row of its table.

Every text is scanned whole, in single characters and in drawn chunks.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.dialects.scanning import DIALECTS, Reasoning, Text, calls_of, fold, scan, scan_chunks, text_of, tool
from tests.dialects.test_every_dialect import split

TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    tool("get_time", {"zone": {"type": "string"}}),
    tool("submit"),
]
PARIS: list[tuple[str, Any]] = [("get_weather", {"city": "Paris"})]
BOTH: list[tuple[str, Any]] = [*PARIS, ("get_time", {"zone": "CET"})]
TWO_KEYS: list[tuple[str, Any]] = [("get_weather", {"city": "Paris", "days": 2})]


def qwen(inner: str) -> str:
    return f"<tool_call>\n<function=get_weather>\n{inner}"


def dsml(inner: str) -> str:
    return f"<｜DSML｜tool_calls>\n{inner}\n</｜DSML｜tool_calls>"


def minimax(inner: str) -> str:
    return f"<minimax:tool_call>\n{inner}\n</minimax:tool_call>"


def k2(*calls: str) -> str:
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


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
B9 = {
    "blanks around the name": ("hermes", '<tool_call>{"name": " submit ", "arguments": {}}</tool_call>', [("submit", {})]),
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


@pytest.mark.parametrize(
    "arguments", ['{"content": "He said "}" there"}', '{"content": "He said "}}" there"}', '{"content": "a "}"}']
)
def test_a8_wrong_json_is_not_cut_into_a_valid_call(arguments: str) -> None:
    text = f'<tool_call>{{"name": "get_weather", "arguments": {arguments}}}</tool_call>!'
    found = scan("hermes", text, TOOLS)
    assert calls_of(found) == []
    assert text_of(found) == "!"


def test_b5_members_beside_arguments_are_ignored_as_before() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}, "thought": "hm"}</tool_call>'
    assert calls_of(scan("hermes", text, TOOLS)) == PARIS
