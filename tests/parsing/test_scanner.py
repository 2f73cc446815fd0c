"""Calls in text: fences, reasoning, marker positions, limits, surrogates."""

from __future__ import annotations

import pytest

from tests.dialects.scanning import DIALECTS, BrokenCall, ParsedCall, Reasoning, Text, fold, scan, scan_chunks, tool
from toolrelay.core.events import ArgumentsDelta, CallFinished, CallStarted, ReasoningDelta, TextDelta
from toolrelay.core.messages import Call
from toolrelay.dialects.base import Dialect
from toolrelay.parsing import call_parser
from toolrelay.parsing.events import CallBroken
from toolrelay.parsing.grammar import CallSink, MarkerPosition, StartMarker
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.stream_reader import Parse, Reader
from toolrelay.parsing.triggers import ScanOptions

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
MADE = ParsedCall("f", "{}")
THINKS = ScanOptions(reasoning=("<think>", "</think>"))
THINKING = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)


def quoted(text: str) -> list[object]:
    return list(scan("hermes", text))


# Fences


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{CALL}\n```",
        f"~~~\n{CALL}\n~~~",
        f"```xml\n{CALL}\n```\n",
        f"  ```\n{CALL}\n  ```",
        f"````\n```\n{CALL}\n```\n````",
        f"```\n{CALL}\n~~~\n{CALL}\n```",
        f"```\n```json\n{CALL}\n```",
        f"```{CALL}```",
        f"```\n{CALL}",
        f"a\n```\n{CALL}\n``\n{CALL}\n```",
        f"> ```\n> {CALL}\n> ```\n",
        f">~~~\n>{CALL}\n>~~~\n",
        f"> > ```\n> > {CALL}\n>> ```\n",
        f"> ```\n> > ```\n> {CALL}\n> ```\n",
        f"1. ```\n   {CALL}\n   ```\n",
        f"a\n- ```xml\n  {CALL}\n  ```\n",
        f"* 12) ```\n{CALL}\n```\n",
        f"> - ```\n>   {CALL}\n>   ```\n",
        f"- > ```\n  > {CALL}\n  > ```\n",
        f"> {CALL}\n",
        f"a\n> see {CALL}\n",
        f"- > {CALL}\n",
    ],
)
def test_call_in_a_fence_or_block_quote_is_text(text: str) -> None:  # bug 15
    assert quoted(text) == [Text(text)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("```\ncode\n```\n", ""),
        ("```\ncode\n```  \n", ""),
        ("```\ncode\n`````\n", ""),
        ("text ``` text\n", ""),
        ("``\n", ""),
        ("```inline``` ", ""),
        ("~~strike~~ ", ""),
        ("```\n```\n", "\n```\n"),
        ("> ```\n> code\n> ```\n", ""),
        ("> ```\n> code\n", ""),
        ("> ```\n> code\n\n  ", ""),
        ("> > ```\n> ", "\n"),
        ("1. ```\n   code\n   ```\n", ""),
        ("-```\n", ""),
        ("1.```\n", ""),
        ("1234567890. ```\n", ""),
        ("> " * 40 + "```\n", ""),
    ],
)
def test_call_beside_a_fence_is_a_call(before: str, after: str) -> None:
    assert quoted(before + CALL + after) == [Text(before), MADE, *([Text(after)] if after else [])]


def test_fence_ends_only_with_its_line() -> None:
    text = f"```\ncode\n``` not yet\n{CALL}\n```\n"
    assert quoted(text + CALL) == [Text(text), MADE]


# Inline code


@pytest.mark.parametrize(
    "text",
    [
        f"Write `{CALL}` to call.",
        f"`{CALL}`",
        f"``{CALL}``",
        f"`` `a` `{CALL}` ``",
        f"``` `{CALL}` ``",
        f"`a` (`{CALL}`) `b`",
        f"a `{CALL}\n{CALL}` b",
        f"a `{CALL}``{CALL}` b",
        f"a `{CALL} b",
        f"使用`{CALL}`格式",
    ],
)
def test_call_in_inline_code_is_text(text: str) -> None:  # bug 15
    assert quoted(text) == [Text(text)]
    assert quoted(f"{text}\n\n{CALL}") == [Text(f"{text}\n\n"), MADE]


@pytest.mark.parametrize(
    "before",
    [
        "`a`",
        "`a` ",
        "a ` b ",
        "`a\n",
        "``a``",
        f"`{CALL}`",
        f"`{CALL}` ",
        f"`{CALL}\n \n",
        f"`{CALL}\n```\ncode\n```\n",
        f"```{CALL}``` ",
    ],
)
def test_call_beside_inline_code_is_a_call(before: str) -> None:
    assert quoted(before + CALL) == [Text(before), MADE]


def test_reasoning_tag_in_inline_code_is_text() -> None:
    assert scan("hermes", f"`<think>` it.{CALL}", options=THINKS) == [Text("`<think>` it."), MADE]


def test_inline_code_does_not_hide_the_end_of_reasoning() -> None:
    assert scan("hermes", f"<think>`</think>{CALL}", options=THINKS) == [Reasoning("`"), MADE]


def test_quoted_text_is_emitted_at_once() -> None:
    scanner = Scanner(DIALECTS["hermes"], {})
    found = [scanner.feed(chunk) for chunk in ("a `", "<tool", "_call>", "{", "<", "b", "`")]
    given = [[TextDelta(text)] if text else [] for text in ("a `", "", "<tool_call>", "{", "", "<b", "`")]
    assert found == given


# Reasoning


def test_reasoning_tags_are_removed() -> None:
    assert scan("hermes", f"a<think>b</think>c{CALL}<think>d</think>", options=THINKS) == [
        Text("a"),
        Reasoning("b"),
        Text("c"),
        MADE,
        Reasoning("d"),
    ]


def test_unclosed_reasoning_lasts_to_the_end() -> None:  # bug 16
    assert scan("hermes", f"<think>b {CALL}", options=THINKS) == [Reasoning(f"b {CALL}")]


def test_tag_in_a_fence_is_text_and_fence_in_reasoning_is_ignored() -> None:
    assert scan("hermes", "```\n<think>\n```\n", options=THINKS) == [Text("```\n<think>\n```\n")]
    assert scan("hermes", f"<think>```\n</think>{CALL}", options=THINKS) == [Reasoning("```\n"), MADE]


def test_answer_may_begin_in_reasoning() -> None:
    assert scan("hermes", f"b</think>{CALL}", options=THINKING) == [Reasoning("b"), MADE]
    scanner = Scanner(DIALECTS["hermes"], {}, THINKING)
    assert scanner.feed("b") == [ReasoningDelta("b")]


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("<think>", ""),
        ("<think>b", "b"),
        ("\n <think>\nb", "\n \nb"),
        ("<thin", "<thin"),
        ("<thing>b", "<thing>b"),
        ("b <think> c", "b <think> c"),
        ("<think><think>b", "<think>b"),
        ("<think>\nb `c\nd", "\nb `c\nd"),
        (" \n", " \n"),
    ],
)
def test_start_tag_is_removed_if_the_answer_begins_in_reasoning(text: str, reasoning: str) -> None:
    expected = [Reasoning(reasoning)] if reasoning else []
    assert scan("hermes", text, options=THINKING) == expected
    for at in range(len(text)):
        chunks = [text[:at], text[at:], f"</think>{CALL}"]
        assert scan("hermes", chunks, options=THINKING) == [*expected, MADE]


def test_reasoning_is_assumed_until_a_tag_confirms_it() -> None:
    def assumes_reasoning(said: str) -> bool:
        scanner = Scanner(DIALECTS["hermes"], {}, THINKING)
        scanner.feed(said)
        scanner.flush()
        return scanner.assumes_reasoning

    assert assumes_reasoning("b <think> c")
    assert not assumes_reasoning("<think>b")
    assert not assumes_reasoning("b</think>")
    assert not Scanner(DIALECTS["hermes"], {}, THINKS).assumes_reasoning


def test_reasoning_tags_are_text_if_the_model_has_none() -> None:
    assert scan("hermes", "<think>b</think>") == [Text("<think>b</think>")]


# Positions


def _marked(position: MarkerPosition) -> Dialect:
    def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
        name = yield from reader.read_word(";")
        sink.start(name)
        sink.finish()

    return Dialect(
        name="marked",
        start_markers=(StartMarker("CALL ", position),),
        grammar=grammar,
        render_calls=lambda calls: "".join(f"CALL {call.name};" for call in calls),
        render_results=lambda results: "".join(result.text for result in results),
    )


@pytest.mark.parametrize(
    ("position", "text", "expected"),
    [
        ("anywhere", "x CALL f; y", [Text("x "), MADE, Text(" y")]),
        ("line", "x CALL f;\n CALL f;", [Text("x CALL f;\n "), MADE]),
        ("line", "CALL f;CALL f;", [MADE, Text("CALL f;")]),
        ("start", "\n CALL f;\nCALL f;", [Text("\n "), MADE, Text("\nCALL f;")]),
        ("start", "x\nCALL f;", [Text("x\nCALL f;")]),
    ],
)
def test_start_marker_counts_only_in_its_position(position: MarkerPosition, text: str, expected: list[object]) -> None:
    assert scan(_marked(position), text) == expected


def test_start_position_is_also_after_reasoning() -> None:
    assert scan(_marked("start"), "<think>b</think>\nCALL f;", options=THINKS) == [Reasoning("b"), Text("\n"), MADE]


# What a grammar may emit


def test_grammar_may_emit_text_and_reasoning() -> None:
    def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
        yield from reader.read_until(".", emit=sink.reasoning)
        sink.text("said")

    dialect = Dialect(
        name="speaking",
        start_markers=(StartMarker("@"),),
        grammar=grammar,
        render_calls=lambda _calls: "",
        render_results=lambda _results: "",
    )
    assert scan(dialect, "a@b.c") == [Text("a"), Reasoning("b"), Text("saidc")]
    assert scan(dialect, "a@b") == [Text("a"), Reasoning("b"), BrokenCall("cut", "")]


def test_arguments_of_one_chunk_are_one_event() -> None:
    found = Scanner(DIALECTS["qwen3_coder"], {}).feed(
        "<tool_call><function=f><parameter=a>1</parameter><parameter=b>2</parameter></function>"
    )
    assert found == [CallStarted(0, "f"), ArgumentsDelta(0, '{"a": 1, "b": 2}'), CallFinished(0)]


def test_call_without_arguments_has_empty_ones() -> None:  # bug 22
    assert scan(_marked("anywhere"), "CALL f;") == [ParsedCall("f", "{}")]


# Limits


def test_text_from_a_grammar_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_parser, "HELD_LIMIT", 50)
    monkeypatch.setattr(call_parser, "CALL_LIMIT", 60)
    assert scan("harmony", "<|channel|>final<|message|>" + "x" * 500 + "<|return|>") == [Text("x" * 500)]


def test_malformed_call_skips_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_parser, "HELD_LIMIT", 50)
    text = '<tool_call>{"name": "f", "arguments": {' + "<" + "x" * 200
    for size in (1, 7, 1000):
        found = fold(scan_chunks(DIALECTS["hermes"], [text[at : at + size] for at in range(0, len(text), size)]))
        assert found == [ParsedCall("f", "{", "invalid_json"), Text("x" * 151)]


def test_held_text_is_limited_to_the_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_parser, "HELD_LIMIT", 50)
    text = '<tool_call>{"arguments": {"text": "' + "x" * 100 + '"}, "name": "f"}</tool_call>'
    broken = BrokenCall("held_too_long", text[: len("<tool_call>") + 50])
    for size in (1, 3, 50, 1000):
        found = fold(scan_chunks(DIALECTS["hermes"], [text[at : at + size] for at in range(0, len(text), size)]))
        assert found == [broken, Text(text[len("<tool_call>") + 50 :])]


def test_incomplete_word_at_the_limit_is_text_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_parser, "HELD_LIMIT", 10)
    for size in (1, 3, 8, 1000):
        text = "[f(n=12345678)] x"
        found = fold(scan_chunks(DIALECTS["pythonic"], [text[at : at + size] for at in range(0, len(text), size)], [tool("f")]))
        assert found == [BrokenCall("held_too_long", "[f(n="), Text("12345678)] x")]


def test_emitted_call_may_be_longer_up_to_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_parser, "HELD_LIMIT", 50)
    monkeypatch.setattr(call_parser, "CALL_LIMIT", 200)
    head = '{"name": "f", "arguments": {"text": "'
    for size in (1, 7, 1000):
        text = f"<tool_call>{head}" + "x" * 300
        found = fold(scan_chunks(DIALECTS["hermes"], [text[at : at + size] for at in range(0, len(text), size)]))
        assert found == [ParsedCall("f", '{"text": "' + "x" * (200 - len(head)), "too_long"), Text("x" * (100 + len(head)))]


def test_call_within_the_limit_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_parser, "HELD_LIMIT", 60)
    text = '<tool_call>{"arguments": {"text": "' + "x" * 10 + '"}, "name": "f"}</tool_call>'
    assert scan("hermes", text) == [ParsedCall("f", '{"text": "' + "x" * 10 + '"}')]


def test_megabyte_of_arguments_in_one_chunk_is_complete() -> None:  # bug 25
    arguments = '{"text": "' + "x" * 1_100_000 + '"}'
    found = fold(scan_chunks(DIALECTS["hermes"], [f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>']))
    assert found == [ParsedCall("f", arguments)]


# What was printed


def test_broken_call_has_its_own_text_and_none_of_the_calls_before() -> None:
    found = scan_chunks(DIALECTS["hermes"], list(f'{CALL}<tool_call>[{{"name": "g"}}, {{"name": "h", "arguments": {{<'))
    [broken] = [event for event in found if isinstance(event, CallBroken)]
    assert (broken.rule, broken.index) == ("invalid_json", 2)
    assert broken.text == ', {"name": "h", "arguments": {<'


def test_surrogates_are_joined_or_replaced() -> None:  # bug 24
    scanner = Scanner(DIALECTS["hermes"], {})
    assert scanner.feed("a\ud83d") == [TextDelta("a")]
    assert scanner.feed("\ude00") == [TextDelta("😀")]
    assert scanner.feed("\ud83dx\ude00") == [TextDelta("\ufffdx\ufffd")]
    assert scanner.feed("\ud83d") == []
    assert scanner.flush() == [TextDelta("\ufffd")]


def test_empty_text_emits_nothing() -> None:
    scanner = Scanner(DIALECTS["hermes"], {})
    assert scanner.feed("") == []
    assert scanner.flush() == []


def test_rendered_call_is_parsed_back() -> None:
    written = DIALECTS["hermes"].render_calls([Call(id="call_1", name="f", arguments="{}")])
    assert scan("hermes", written) == [MADE]


# Indented code (row B8)


@pytest.mark.parametrize(
    "text",
    [
        "    ",  # at the beginning
        "So:\n    ",  # in a paragraph
        "So:\n\n   ",  # three blanks
        "- one\n\n    ",  # in a list item
        "1. one\n2. two\n\n    and\n\n    ",
        "- one\ntwo\n\n    ",
        "So:\n\n    code\nend\n    ",
    ],
)
def test_b8_indented_call_that_is_no_code_is_a_call(text: str) -> None:
    assert scan("hermes", text + CALL) == [Text(text), MADE]


@pytest.mark.parametrize(
    "text",
    [
        "So:\n\n    ",
        "So:\n \n\t",
        "So:\n\n    one\n    ",
        "So:\n\n    one\n\n    two ",
        "- one\n\nSo:\n\n    ",
        "So:\n\n    - ",
        "```\nx\n```\nSo:\n\n      ",
    ],
)
def test_b8_call_in_indented_code_is_text(text: str) -> None:
    assert scan("hermes", text + CALL) == [Text(text + CALL)]


def test_b8_indented_call_after_a_call_or_reasoning_is_a_call() -> None:
    assert scan("hermes", f"So: {CALL}\n\n    {CALL}") == [Text("So: "), MADE, Text("\n\n    "), MADE]
    assert scan("hermes", f"a<think>b</think>\n\n    {CALL}", options=THINKS) == [
        Text("a"),
        Reasoning("b"),
        Text("\n\n    "),
        MADE,
    ]


@pytest.mark.parametrize("text", ["Use <pre> and ", "So <!-- ", "<pre>x</pre>", "<!-- x -->", "<prefix>\n", "<!- "])
def test_b8_call_outside_of_html_blocks_is_a_call(text: str) -> None:
    assert scan("hermes", text + CALL) == [Text(text), MADE]
