"""Calls in the form of Hermes and Qwen, with regression tests for the bugs of an earlier proxy."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import (
    DIALECTS,
    BrokenCall,
    ParsedCall,
    Reasoning,
    Text,
    call,
    calls_of,
    fold,
    scan,
    scan_chunks,
    tool,
)
from toolrelay.core.events import ArgumentsDelta, CallStarted
from toolrelay.dialects.base import ToolResult
from toolrelay.parsing.events import CallBroken
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.triggers import ScanOptions

PARIS = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
PARIS_CALL = ParsedCall("get_weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"<tool_call>\n{PARIS}\n</tool_call>", [PARIS_CALL], id="as the template has it"),
        pytest.param(f"<tool_call>{PARIS}</tool_call>", [PARIS_CALL], id="on one line"),
        pytest.param(
            f"<tool_call>\n{PARIS}\n</tool_call>\n<tool_call>\n{PARIS}\n</tool_call>",
            [PARIS_CALL, Text("\n"), PARIS_CALL],
            id="two calls",
        ),
        pytest.param(
            f"I look.\n<tool_call>{PARIS}</tool_call>\nDone.", [Text("I look.\n"), PARIS_CALL, Text("\nDone.")], id="text around"
        ),
        pytest.param(
            '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>',
            [ParsedCall("f", '{"a": 1}')],
            id="arguments before the name",
        ),
        pytest.param(
            '<tool_call>{"name": "nobody_knows", "arguments": {}}</tool_call>',
            [ParsedCall("nobody_knows", "{}")],
            id="unknown name",
        ),
        pytest.param('<tool_call>{"name": "f", "arguments": null}</tool_call>', [ParsedCall("f", "{}")], id="null arguments"),
        pytest.param(
            '<tool_call>{"type": "function", "id": 1, "function": {"name": "f", "arguments": {"a": 1}}}</tool_call>',
            [ParsedCall("f", '{"a": 1}')],
            id="OpenAI's own nesting",
        ),
        pytest.param(
            '<tool_call>{"tool_name": "f", "parameters": {"a": 1}}</tool_call>', [ParsedCall("f", '{"a": 1}')], id="other keys"
        ),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"a": 1},}</tool_call>', [ParsedCall("f", '{"a": 1}')], id="a comma too many"
        ),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>.',
            [ParsedCall("f", '{"a": 1}'), Text(".")],
            id="a brace short",
        ),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {}}}\n</tool_call>.', [ParsedCall("f", "{}"), Text(".")], id="a brace too many"
        ),
        pytest.param(f"<tool_call>{PARIS}", [PARIS_CALL], id="never closed"),
        pytest.param(f"<tool_call>{PARIS} and so on", [PARIS_CALL, Text(" and so on")], id="not closed, text after"),
        pytest.param(f"<tool_call>{PARIS}\n{PARIS}</tool_call>", [PARIS_CALL, PARIS_CALL], id="two objects in one tag"),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"q": "a\nb\tc"}}</tool_call>',
            [ParsedCall("f", '{"q": "a\\nb\\tc"}')],
            id="line breaks in a string that ought to have been escaped",
        ),
        pytest.param(
            '<tool_call>{"name": "f", "arguments": {"q": "\\ud83d\\ude00 \\ud83d"}}</tool_call>',
            [ParsedCall("f", '{"q": "\\ud83d\\ude00 \\ufffd"}')],
            id="half an escaped character",
        ),
        pytest.param(
            "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Paris'}}</tool_call>",
            [PARIS_CALL],
            id="a dict of Python's",
        ),
        pytest.param(
            "<tool_call>[{'type': 'function', 'function': {'arguments': {'a': True, 'b': \"it's\"}, 'name': 'f'}}]</tool_call>",
            [ParsedCall("f", '{"a": true, "b": "it\'s"}')],
            id="Python's words, and arguments before the name",
        ),
        pytest.param("<tool_call>{'name': 'f', 'arguments': None}</tool_call>", [ParsedCall("f", "{}")], id="None for arguments"),
        pytest.param(
            "<tool_call>{'name': 'f', 'arguments': '{\"a\": \"it\\'s\"}'}</tool_call>",
            [ParsedCall("f", '{"a": "it\'s"}')],
            id="arguments in a string in single quotes",
        ),
    ],
)
def test_typical_output_is_parsed(text: str, expected: list[object]) -> None:
    assert scan("hermes", text) == expected


def test_text_of_arguments_is_unchanged() -> None:  # bug 19, bug 20
    arguments = '{ "a" :1.50,  "b": "\\u00e9\\/",\n"c":[ ]}'
    assert scan("hermes", f'<tool_call>{{"name":"f","arguments":{arguments}}}</tool_call>') == [ParsedCall("f", arguments)]


def test_arguments_are_emitted_as_they_arrive() -> None:  # bug 1, bug 9
    scanner = Scanner(DIALECTS["hermes"], {})
    assert scanner.feed('<tool_call>{"name": "f", ') == [CallStarted(0, "f")]
    assert scanner.feed('"arguments": {"a"') == [ArgumentsDelta(0, '{"a"')]
    assert scanner.feed(": [1, ") == [ArgumentsDelta(0, ": [1")]  # a comma is held until the next item
    assert scanner.feed('"x') == [ArgumentsDelta(0, ', "x')]


def test_calls_are_numbered_throughout_the_answer() -> None:  # bug 7, bug 8
    found = scan_chunks(DIALECTS["hermes"], [f"<tool_call>[{PARIS}, {PARIS}]</tool_call> <tool_call>{PARIS}</tool_call>"])
    assert [event.index for event in found if isinstance(event, CallStarted)] == [0, 1, 2]


# Bugs of an earlier proxy's parser


def test_missing_arguments_are_an_empty_object() -> None:  # bug 22
    assert scan("hermes", '<tool_call>{"name": "now"}</tool_call>') == [ParsedCall("now", "{}")]


@pytest.mark.parametrize("written", ['""', '"{}"', "{}", "null"])
def test_empty_arguments_are_an_empty_object(written: str) -> None:  # bug 21, bug 22
    assert scan("hermes", f'<tool_call>{{"name": "now", "arguments": {written}}}</tool_call>') == [ParsedCall("now", "{}")]


def test_closing_tag_in_a_string_does_not_end_the_call() -> None:  # bug 17
    arguments = '{"text": "say </tool_call> and <tool_call> \\"twice\\""}'
    assert scan("hermes", f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>!') == [
        ParsedCall("f", arguments),
        Text("!"),
    ]


def test_list_in_one_tag_is_several_calls() -> None:  # bug 11
    assert scan("hermes", f"<tool_call>[{PARIS},\n {PARIS}]</tool_call>") == [PARIS_CALL, PARIS_CALL]


def test_fence_inside_the_tag_is_removed() -> None:  # bug 11
    assert scan("hermes", f"<tool_call>\n```json\n{PARIS}\n```\n</tool_call>") == [PARIS_CALL]


def test_repeated_start_tag_is_removed() -> None:  # bug 11
    assert scan("hermes", f"<tool_call>\n<tool_call>\n{PARIS}\n</tool_call>") == [PARIS_CALL]


def test_call_in_a_markdown_fence_is_text() -> None:  # bug 15
    text = f"Like this:\n```\n<tool_call>{PARIS}</tool_call>\n```\n"
    assert scan("hermes", text) == [Text(text)]


def test_tag_in_prose_is_text() -> None:  # bug 14, bug 15
    text = "Models print <tool_call> when they call. That is all there is to say."
    assert scan("hermes", text) == [Text(text)]
    assert scan("hermes", "The last word is <tool_call>") == [Text("The last word is <tool_call>")]


def test_form_quoted_from_the_prompt_is_text() -> None:  # bug 15
    text = 'Write <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>.'
    assert scan("hermes", text) == [Text(text)]


def test_arguments_inside_a_string_are_decoded() -> None:  # bug 20, bug 21
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"x\\\\n\\u00e9\\"}"}</tool_call>'
    assert scan("hermes", text) == [ParsedCall("f", '{"a": "x\\né"}')]


def test_invalid_arguments_are_repaired_or_broken() -> None:  # bug 18, bug 19
    for arguments in ('"not json"', "invalid", "[1]", "12"):
        [broken] = scan("hermes", f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>')
        assert broken == ParsedCall("f", "", "invalid_json")
    assert scan("hermes", '<tool_call>{"name": "f", "arguments": {\'a\': \'it}s\', b: None}}</tool_call>.') == [
        ParsedCall("f", '{"a": "it}s", "b": null}'),
        Text("."),
    ]


def test_deltas_never_repeat_earlier_text() -> None:  # bug 9
    text = '<tool_call>{"name": "f", "arguments": {"text": "abcdefghij"}}</tool_call>'
    found = scan_chunks(DIALECTS["hermes"], list(text))
    assert "".join(event.text for event in found if isinstance(event, ArgumentsDelta)) == '{"text": "abcdefghij"}'


def test_held_text_has_a_limit() -> None:
    scanner = Scanner(DIALECTS["hermes"], {})
    found = scanner.feed('<tool_call>{"arguments": {"a": "')
    for _ in range(300):
        found += scanner.feed("x" * 4096)
    broken = [event for event in found if isinstance(event, CallBroken)]
    assert [(event.rule, event.index) for event in broken] == [("held_too_long", None)]
    assert len(broken[0].text) == len("<tool_call>") + 1024 * 1024
    assert scanner.feed(f"and\n<tool_call>{PARIS}</tool_call>")[-3:][0] == CallStarted(0, "get_weather")


# Truncated and broken calls


@pytest.mark.parametrize("length", range(len(f"<tool_call>\n{PARIS}") - 1))
def test_call_truncated_anywhere_is_not_finished(length: int) -> None:  # bug 5
    found = scan("hermes", f"<tool_call>\n{PARIS}"[:length])
    assert not [one for one in found if isinstance(one, ParsedCall) and not one.rule]


def test_call_truncated_in_its_arguments_is_cut() -> None:  # bug 5
    assert scan("hermes", '<tool_call>{"name": "f", "arguments": {"a": "b') == [ParsedCall("f", '{"a": "b', "cut")]


def test_call_truncated_before_its_name_is_not_text() -> None:  # bug 5, bug 11
    assert scan("hermes", 'So: <tool_call>\n{"na') == [Text("So: "), BrokenCall("cut", '<tool_call>\n{"na')]


def test_broken_call_skips_text_up_to_its_closing_tag() -> None:  # bug 11
    text = f'a<tool_call>{{"name": "f", "arguments": {{"a": <b>}}}}</tool_call> c <tool_call>{PARIS}</tool_call>'
    found = scan_chunks(DIALECTS["hermes"], [text])
    assert fold(found) == [Text("a"), ParsedCall("f", '{"a": ', "invalid_json"), Text(" c "), PARIS_CALL]
    [broken] = [event for event in found if isinstance(event, CallBroken)]
    assert broken.text == '<tool_call>{"name": "f", "arguments": {"a": <b>}}</tool_call>'


def test_object_without_a_name_is_a_broken_call() -> None:
    text = '<tool_call>{"arguments": {"a": 1}}</tool_call>'
    assert scan("hermes", text) == [BrokenCall("no_name", text)]


@pytest.mark.parametrize("inner", ["{'city': 5' wide}", "{'city': f(x)}", "{'city': 'a' + 'b'}"])
def test_invalid_python_dict_is_a_broken_call(inner: str) -> None:
    [parsed, after] = scan("hermes", f"<tool_call>{{'name': 'f', 'arguments': {inner}}}</tool_call>.")
    assert isinstance(parsed, ParsedCall)
    assert (parsed.rule, after) == ("malformed", Text("."))


def test_python_dict_without_a_name_is_a_broken_call() -> None:
    text = "<tool_call>{'city': 'Paris'}</tool_call>"
    assert scan("hermes", text) == [BrokenCall("no_name", text)]


# Reasoning and chunks


def test_answer_in_any_two_chunks_is_the_same() -> None:  # bug 3
    text = f"<think>\nWhich city?\n</think>\n\nOne moment.\n<tool_call>\n{PARIS}\n</tool_call>"
    options = ScanOptions(reasoning=("<think>", "</think>"))
    expected = [Reasoning("\nWhich city?\n"), Text("\n\nOne moment.\n"), PARIS_CALL]
    for at in range(len(text)):
        assert scan("hermes", [text[:at], text[at:]], options=options) == expected


def test_call_in_reasoning_counts_if_calls_in_reasoning() -> None:  # bug 16
    text = f"<think>Let me see. <tool_call>{PARIS}</tool_call> Good.</think>Sunny."
    options = ScanOptions(reasoning=("<think>", "</think>"), calls_in_reasoning=True)
    assert scan("hermes", text, options=options) == [Reasoning("Let me see. "), PARIS_CALL, Reasoning(" Good."), Text("Sunny.")]


def test_another_tag_gives_another_dialect() -> None:
    found = scan("longcat", f"<longcat_tool_call>{PARIS}</longcat_tool_call><tool_call>{PARIS}</tool_call>")
    assert found == [PARIS_CALL, Text(f"<tool_call>{PARIS}</tool_call>")]


# Rendering


def test_calls_and_results_are_rendered_as_in_qwens_template() -> None:
    dialect = DIALECTS["hermes"]
    made = call("get_weather", '{"city":"Paris"}')
    assert dialect.render_calls([made, made]) == "\n".join(
        ['<tool_call>\n{"name": "get_weather", "arguments": {"city":"Paris"}}\n</tool_call>'] * 2
    )
    result = ToolResult(call=made, text="Sunny")
    assert dialect.render_results([result, result]) == "\n".join(["<tool_response>\nSunny\n</tool_response>"] * 2)


def test_tools_are_rendered_as_in_qwens_template() -> None:
    offered = DIALECTS["hermes"].render_tools
    assert offered is not None
    line = '{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"é": {}}}}}'
    assert f"\n<tools>\n{line}\n</tools>\n" in offered([tool("f", {"é": {}})])


def test_call_with_a_tag_for_each_parameter_is_read() -> None:
    written = DIALECTS["qwen3_coder"].render_calls([call("get_weather", {"city": "Paris"})])
    assert calls_of(scan("hermes", f"Hm.\n{written}\n", [])) == [("get_weather", {"city": "Paris"})]
