"""Contract of every dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

from tests.dialects.limits import can_express
from tests.dialects.scanning import (
    DIALECTS,
    BrokenCall,
    ParsedCall,
    Reasoning,
    Text,
    call,
    calls_of,
    fold,
    scan_chunks,
    text_of,
    tool,
)
from tests.examples import examples
from tests.strategies import json_values
from toolrelay.core.events import ArgumentsDelta, TextDelta
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.scanner import Scanner
from toolrelay.parsing.triggers import ScanOptions

every_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))
few = examples(16)

# Calls in these must be the whole answer, or start a line.
WHOLE_ANSWER = {"llama3_json", "xlam", "pythonic"}
AT_LINE = {"react", "gemma3"}
# These have marks around text, too, which are removed.
WRAPS_TEXT = {"harmony", "kimi_k3", "cohere", "command_r", "functionary32", "inkling", "muse_glimmer", "solar"}

SCAN_OPTIONS = [
    None,
    ScanOptions(reasoning=("<think>", "</think>")),
    ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True),
    ScanOptions(reasoning=("<think>", "</think>"), calls_in_reasoning=True, calls_in_fences=True),
]
TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    tool("search", {"query": {"type": "string"}}),
    tool("now"),
]
CALLS = [call("get_weather", {"city": "Paris", "days": 3}), call("now"), call("search", {"query": "a < b"})]


def typed(name: str, arguments: dict[str, Any]) -> Tool:
    """Return a tool whose schema has the types of the arguments."""
    types = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array", dict: "object"}
    return tool(name, {key: {"type": types[type(value)]} for key, value in arguments.items()})


def marks_of(dialect: Dialect) -> list[str]:
    """Return the marks of a dialect, and the parts of its calls."""
    written = dialect.render_calls(CALLS)
    parts = [part for part in re.split(r"([<>{}\[\]()\"':,\n ]|get_weather|now|search|Paris)", written) if part]
    return [
        *(marker.text for marker in dialect.start_markers),
        *dialect.end_markers,
        *sorted(set(parts)),
        dialect.render_calls(CALLS[:1]),
        written,
        written[: len(written) // 2],
    ]


def joined(pieces: Sequence[str], max_pieces: int) -> SearchStrategy[str]:
    """Return texts of at most that many pieces. Drawing them as bytes is many times as fast as drawing each piece."""
    assert len(pieces) <= 256
    return st.binary(max_size=max_pieces).map(lambda drawn: "".join(pieces[number % len(pieces)] for number in drawn))


ODD_CHARACTERS = [
    "a",
    "7",
    "é",
    "ß",
    "漢",
    "😀",
    "\u2028",
    "\x00",
    "\x1f",
    "\x7f",
    "\x85",
    "\ufeff",
    "｜",
    "▁",
    "İ",
    "\u0301",
    "\U0010ffff",
]


def fragments(dialect: Dialect) -> SearchStrategy[str]:
    """Return texts of calls, parts of calls, quotations and odd characters."""
    blocks = ["\n\n    ", "\n    ", "\n\t", "\n<pre>", "</pre>", "\n<!--", "-->", "\n1. "]
    fences = ["```", "\n```\n", "\n```json\n", "\n~~~\n", "\n> ```\n> ", "\n> ", "\n1. ```\n   ", "\n- ", ">"]
    quotations = [*blocks, *fences, "`", "``", "\n", "\n\n", " ", "<think>", "</think>"]
    calls = [dialect.render_calls([one]) for one in CALLS]
    bits = [
        "<",
        "{",
        '"',
        "\\",
        "\\u00e9",
        "\\ud83d",
        "\\ude00",
        "\\u",
        "d",
        "null",
        "[",
        "]",
        "}",
        ",",
        ":",
        "'",
        "=",
        "(",
        ")",
        "12",
        "True",
    ]
    return joined([*marks_of(dialect), *quotations * 3, *calls * 3, *bits, *ODD_CHARACTERS], 14)


FRAGMENTS = {name: fragments(dialect) for name, dialect in DIALECTS.items()}


def split(data: DataObject, text: str) -> list[str]:
    drawn = data.draw(st.binary(min_size=1, max_size=7))
    if drawn[0] < 128:
        size = drawn[0] % 5 + 1
        return [text[at : at + size] for at in range(0, len(text), size)]
    places = sorted(number * len(text) // 255 for number in drawn[1:])
    return [text[start:end] for start, end in pairwise([0, *places, len(text)])]


@every_dialect
@given(data=st.data())
@few
def test_any_chunking_gives_the_same_events(name: str, data: DataObject) -> None:  # bug 2, bug 3, bug 4
    dialect = DIALECTS[name]
    text, options = data.draw(FRAGMENTS[name]), data.draw(st.sampled_from(SCAN_OPTIONS))
    whole = fold(scan_chunks(dialect, [text], TOOLS, options))
    assert fold(scan_chunks(dialect, split(data, text), TOOLS, options)) == whole


@every_dialect
@given(data=st.data())
@few
def test_output_text_is_a_subsequence_of_the_input(name: str, data: DataObject) -> None:
    """Text and reasoning keep the order of the input; nothing is added."""
    dialect = DIALECTS[name]
    text = data.draw(FRAGMENTS[name])
    said = "".join(one.text for one in fold(scan_chunks(dialect, [text], TOOLS)) if not isinstance(one, ParsedCall))
    rest = iter(text)
    assert all(character in rest for character in said)


@every_dialect
@given(text=st.text(st.characters(codec="utf-16", categories=["L", "N", "P", "S", "Z", "Cc", "Cs"]), max_size=24))
@few
@example(text="\ud83d")
@example(text="\ude00\ud83d\ude00\ud83d")
def test_arbitrary_text_never_raises_and_lone_surrogates_are_replaced(name: str, text: str) -> None:  # bug 24
    found = fold(scan_chunks(DIALECTS[name], list(text), TOOLS))
    assert found == fold(scan_chunks(DIALECTS[name], [text], TOOLS))
    for one in found:
        str(one).encode()


@every_dialect
def test_surrogate_pair_in_two_chunks_is_one_character(name: str) -> None:  # bug 24
    assert fold(scan_chunks(DIALECTS[name], ["a\ud83d", "\ude00b"])) == [Text("a😀b")]


@every_dialect
@given(data=st.data())
@few
def test_text_without_calls_is_unchanged(name: str, data: DataObject) -> None:  # bug 11, bug 14
    dialect = DIALECTS[name]
    firsts = {marker.text[0] for marker in dialect.start_markers}
    pieces = ["```", "~~~\n", "`x`", "\n", "<", "[", "{", "A", "words", ", ", "(see)", '"', "\\", "  ", *ODD_CHARACTERS]
    text = data.draw(joined([piece for piece in pieces if not firsts & set(piece)], 20))
    assert text_of(fold(scan_chunks(dialect, split(data, text), TOOLS))) == text


@every_dialect
def test_start_marker_in_prose_is_text(name: str) -> None:  # bug 15
    dialect = DIALECTS[name]
    for marker in dialect.start_markers:
        said = fold(scan_chunks(dialect, [f"Models print {marker.text} before a call."], TOOLS))
        if name in WRAPS_TEXT and marker.position == "anywhere":
            assert text_of(said).replace(marker.text, "") == "Models print  before a call.", said
        else:
            assert said == [Text(f"Models print {marker.text} before a call.")]


@every_dialect
def test_plain_text_is_emitted_at_once(name: str) -> None:
    scanner = Scanner(DIALECTS[name], {one.name: one for one in TOOLS})
    for character in "Of course; here it is:\nline two, 3 > 2 (see above).":
        if character in {marker.text[0] for marker in DIALECTS[name].start_markers if marker.position == "anywhere"}:
            continue
        assert scanner.feed(character) == [TextDelta(character)]


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - WHOLE_ANSWER))
def test_string_in_arguments_is_emitted_as_it_arrives(name: str) -> None:
    """Each character of the string is emitted with the chunk that contains it, unless it may begin the end of the call."""
    firsts = {mark[0] for mark in DIALECTS[name].end_markers}
    text = "".join(character for character in "It is 3 o clock, über 漢字 {see} [above]." if character not in firsts)
    before, after = DIALECTS[name].render_calls([call("search", {"query": "QQ"})]).split("QQ")
    scanner = Scanner(DIALECTS[name], {one.name: one for one in TOOLS})
    for character in before + "W":
        scanner.feed(character)
    assert [scanner.feed(character) for character in text] == [[ArgumentsDelta(0, character)] for character in text]
    for character in after:
        scanner.feed(character)
    assert scanner.flush() == []


@every_dialect
@given(data=st.data())
@few
def test_text_is_held_only_while_it_may_begin_a_mark(name: str, data: DataObject) -> None:
    dialect = DIALECTS[name]
    tag = "<think>"
    strays = (*dialect.end_markers, *dialect.stray_marks, "</think>")
    starts = [marker.text for marker in dialect.start_markers if len(marker.text) > 1]
    marks = [*starts, *strays, tag, "```", "~~~", "<pre>", "<pre ", "<!--"]
    parts = sorted({mark[:end] for mark in marks for end in (1, 2, 3, len(mark) // 2, len(mark) - 1)} - {"", *marks})
    text = "x" + data.draw(joined([*parts, "a", "b", " ", "\n"], 12))
    assume(not any(mark in text for mark in marks))
    scanner = Scanner(dialect, {}, ScanOptions(reasoning=(tag, "</think>")))
    emitted = ""
    for end, character in enumerate(text, 1):
        emitted += "".join(event.text for event in scanner.feed(character) if isinstance(event, TextDelta))
        held = text[len(emitted) : end]
        assert text.startswith(emitted)
        assert not held or any(mark.startswith(held) for mark in marks), held


@every_dialect
@given(data=st.data())
@few
def test_truncated_call_is_not_finished_and_earlier_calls_are(name: str, data: DataObject) -> None:  # bug 5
    dialect = DIALECTS[name]
    calls = data.draw(st.permutations(CALLS))
    written = dialect.render_calls(calls)
    end = data.draw(st.integers(0, len(written)))
    made = calls_of(fold(scan_chunks(dialect, [written[:end]], TOOLS)))
    wanted = [(one.name, json.loads(one.arguments)) for one in calls]
    assert made == wanted[: len(made)]
    assert end < len(written) or made == wanted


def _tricky_texts(dialect: Dialect) -> SearchStrategy[str]:
    brackets = ["<", ">", "</", "{", "}", "{}", "[", "]", "(", ")", '"', "'", '"""', "=", ", ", ": ", "&amp;", " "]
    escapes = ["\\", "\\n", "\n", "\r\n", "\t", "\\u0041", "\\ud83d", "```", "null", "1", "Observation:"]
    return joined(
        [*brackets, *escapes, *ODD_CHARACTERS, *dialect.end_markers, *(marker.text for marker in dialect.start_markers)], 8
    )


def _calls(name: str) -> SearchStrategy[list[tuple[str, dict[str, Any]]]]:
    dialect = DIALECTS[name]
    texts = _tricky_texts(dialect)
    keys = joined("abcxyzABC_019", 8).map(lambda drawn: f"k{drawn}") | texts.filter(bool)
    values = texts | json_values() | st.lists(texts, max_size=2) | st.dictionaries(texts, texts, max_size=2)
    arguments = st.dictionaries(keys, values, max_size=3).filter(lambda drawn: can_express(name, drawn))
    names = joined("fgxyzFG_-019", 12).filter(bool)
    return st.lists(st.tuples(names, arguments), min_size=1, max_size=3, unique_by=lambda made: made[0])


CALL_STRATEGIES = {name: _calls(name) for name in DIALECTS}


@every_dialect
@given(data=st.data())
@examples(24)
def test_rendered_calls_are_parsed_back(name: str, data: DataObject) -> None:  # bug 6, bug 17, bug 19
    dialect = DIALECTS[name]
    made = data.draw(CALL_STRATEGIES[name])
    calls = [call(called, arguments, identifier=f"call_{n}") for n, (called, arguments) in enumerate(made)]
    written = dialect.render_calls(calls)
    found = fold(scan_chunks(dialect, split(data, written), [typed(called, arguments) for called, arguments in made]))
    assert [(one.name, _plain(one.value)) for one in found if isinstance(one, ParsedCall)] == [
        (one, _plain(two)) for one, two in made
    ]
    assert not text_of(found).strip()
    assert not any(isinstance(one, BrokenCall) or (isinstance(one, ParsedCall) and one.rule) for one in found)


def _plain(value: Any) -> str:
    """Return JSON, which distinguishes 1, 1.0 and true."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - WHOLE_ANSWER))
@given(data=st.data())
@examples(10)
def test_text_around_calls_is_unchanged(name: str, data: DataObject) -> None:  # bug 12, bug 13
    dialect = DIALECTS[name]
    words = st.sampled_from(["Sure.", "I look it up", "and then", "Done: 3 > 2.", "é 😀", "a `b` c"])
    before, between, after = data.draw(words), data.draw(words), data.draw(words)
    line = "\n" if name in AT_LINE else ""
    one, two = dialect.render_calls(CALLS[:1]), dialect.render_calls(CALLS[1:2])
    text = f"{before}{line}{one}{line}{between}{line}{two}{line}{after}"
    found = fold(scan_chunks(dialect, split(data, text), TOOLS))
    assert calls_of(found) == [(made.name, json.loads(made.arguments)) for made in CALLS[:2]]
    assert text_of(found) == f"{before}{line}{line}{between}{line}{line}{after}"


@every_dialect
def test_call_in_a_fence_is_text_unless_calls_in_fences(name: str) -> None:  # bug 15
    if name in WHOLE_ANSWER | {"gemma3"}:
        return  # their calls start the answer, or have a fence of their own
    dialect = DIALECTS[name]
    fenced = f"So:\n```xml\n{dialect.render_calls(CALLS)}\n```\nThat is all."
    found = fold(scan_chunks(dialect, [fenced], TOOLS))
    assert found == [Text(fenced)]
    found = fold(scan_chunks(dialect, [fenced], TOOLS, ScanOptions(calls_in_fences=True)))
    assert [one.name for one in found if isinstance(one, ParsedCall)] == [made.name for made in CALLS]


QUOTED = {
    "in a block quote": ("So:\n> ```xml\n> ", "\n> ", "\n> ```\n"),
    "in a numbered item": ("So:\n1. ```xml\n   ", "\n   ", "\n   ```\n"),
    "in an item": ("- ~~~\n  ", "\n  ", "\n  ~~~\n"),
    "in inline code": ("Write `", "\n", "` to call.\n"),
    "in indented code": ("So:\n\n    ", "\n    ", "\n\nThat is it.\n"),
    "in indented code after a tab": ("So:\n\n\tFirst\n\n\t", "\n\t", "\n\nThat is it.\n"),
    "in preformatted text": ("So:\n<pre>\n", "\n", "\n</pre>\n"),
    "in preformatted text with a class": ('<pre class="x">', "\n", "</pre>\n"),
    "in a comment": ("So:\n<!-- ", "\n", " -->\n"),
}


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - {"gemma3"}))
@pytest.mark.parametrize("place", QUOTED)
@given(data=st.data())
@examples(4)
def test_quoted_call_is_text_and_a_later_call_counts(name: str, place: str, data: DataObject) -> None:  # bug 15
    """Not for the fence of Gemma 3; and inline code cannot contain a fence."""
    dialect = DIALECTS[name]
    before, line_break, after = QUOTED[place]
    calls = CALLS[:1] if name in AT_LINE else CALLS
    written = dialect.render_calls(calls)
    if place == "in inline code" and "\n```" in written:
        return
    text = before + written.replace("\n", line_break) + after
    assert fold(scan_chunks(dialect, split(data, text), TOOLS)) == [Text(text)]
    if name in WHOLE_ANSWER:
        return
    found = fold(scan_chunks(dialect, split(data, f"{text}\n{written}"), TOOLS))
    assert calls_of(found) == [(made.name, json.loads(made.arguments)) for made in calls]
    assert text_of(found).startswith(text)


@every_dialect
def test_call_in_reasoning_is_reasoning_unless_calls_in_reasoning(name: str) -> None:  # bug 16
    dialect = DIALECTS[name]
    written = dialect.render_calls(CALLS)
    line = "\n" if name in AT_LINE else ""
    text = f"<think>{line}{written}{line}</think>Answer."
    tags = ("<think>", "</think>")
    assert fold(scan_chunks(dialect, [text], TOOLS, ScanOptions(reasoning=tags))) == [
        Reasoning(f"{line}{written}{line}"),
        Text("Answer."),
    ]
    if name not in WHOLE_ANSWER:
        found = fold(scan_chunks(dialect, [text], TOOLS, ScanOptions(reasoning=tags, calls_in_reasoning=True)))
        assert [one.name for one in found if isinstance(one, ParsedCall)] == [made.name for made in CALLS]


@every_dialect
def test_call_after_reasoning_counts(name: str) -> None:  # bug 16
    dialect = DIALECTS[name]
    options = ScanOptions(reasoning=("<think>", "</think>"), begins_in_reasoning=True)
    text = f"I must call.\n</think>\n\n{dialect.render_calls(CALLS)}"
    found = fold(scan_chunks(dialect, [text], TOOLS, options))
    assert found[0] == Reasoning("I must call.\n")
    assert calls_of(found) == [(made.name, json.loads(made.arguments)) for made in CALLS]


@every_dialect
@pytest.mark.parametrize("depth", [100, 20_000])
def test_deep_nesting_does_not_exhaust_the_stack(name: str, depth: int) -> None:
    dialect = DIALECTS[name]
    for opening in ("[", '{"a":', "(", "{"):
        for marker in dialect.start_markers:
            fold(scan_chunks(dialect, [f"{marker.text}{opening * depth}"], TOOLS))
        written = dialect.render_calls([call("search", {"query": "QQ"})]).replace('"QQ"', "QQ").replace("QQ", opening * depth)
        fold(scan_chunks(dialect, [written], TOOLS))


@every_dialect
def test_invalid_arguments_are_rendered(name: str) -> None:
    """Arguments in a history may be invalid or empty."""
    dialect = DIALECTS[name]
    deep = "[" * 3000
    for arguments in ("", "  ", "not json", '"text"', "[1]", '{"a": 1', deep, '{"a": ' + deep + "}"):
        made = Call(id="call_1", name="search", arguments=arguments)
        assert "search" in dialect.render_calls([made])
        assert "42" in dialect.render_results([ToolResult(call=made, text="42")])


@every_dialect
def test_rendered_tools_are_complete(name: str) -> None:
    render = DIALECTS[name].render_tools
    if render is None:
        return
    written = render([*TOOLS, Tool(name="bare", description="No parameters at all.")])
    for one in ("get_weather", "city", "days", "search", "query", "now", "bare", "No parameters at all."):
        assert one in written
    assert written == written.strip()


@every_dialect
def test_no_start_marker_is_a_prefix_of_another(name: str) -> None:
    texts = [marker.text for marker in DIALECTS[name].start_markers]
    assert not [(one, two) for one in texts for two in texts if one != two and two.startswith(one)]
