"""Marks without a call (row A7): a dialect's own marks, alone, doubled, empty or in wrong order, are no text."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.dialects.scanning import DIALECTS, Reasoning, Text, calls_of, fold, scan, scan_chunks, text_of
from tests.dialects.test_every_dialect import CALLS, TOOLS, WHOLE_ANSWER, split
from tests.examples import examples
from toolrelay.dialects.base import Dialect
from toolrelay.parsing.grammar import END_OF_TURN
from toolrelay.parsing.triggers import ScanOptions


def whole_marks(dialect: Dialect) -> tuple[list[str], list[str]]:
    """Return the marks that begin something, and the others. A mark that a name follows is only a part of one."""
    starts = [marker.text for marker in dialect.start_markers if marker.position == "anywhere"]
    ends = [mark for mark in (*dialect.end_markers, *dialect.stray_marks) if mark[0] not in "\n`"]  # a fence is Markdown's
    return [mark for mark in starts if mark[-1] in ">]" and mark[0] in "<["], ends


MARKED = sorted(name for name, dialect in DIALECTS.items() if any(whole_marks(dialect)))


@pytest.mark.parametrize("name", MARKED)
@given(data=st.data())
@examples(20)
def test_a7_marks_at_the_end_of_an_answer_are_no_text(name: str, data: DataObject) -> None:
    starts, ends = whole_marks(DIALECTS[name])
    marks = data.draw(st.lists(st.sampled_from(starts + ends), min_size=1, max_size=4))
    text = "Hi.\n" + data.draw(st.sampled_from(["", "\n", " "])).join(marks)
    found = fold(scan_chunks(DIALECTS[name], split(data, text), TOOLS))
    assert [type(one) for one in found] == [Text], found
    assert text_of(found).strip() == "Hi."


@pytest.mark.parametrize("name", MARKED)
def test_a7_empty_blocks_before_text_are_no_text(name: str) -> None:
    starts, marks = whole_marks(DIALECTS[name])
    ends = [mark for mark in marks if mark in DIALECTS[name].end_markers]
    for between, start, end in product(("", "\n\n"), starts, ends):
        for block in (start + between + end, start + start + between + end + end, end + start + end):
            assert text_of(scan(DIALECTS[name], f"Hi.\n{block}\nBye.", TOOLS)).split() == ["Hi.", "Bye."], block


@pytest.mark.parametrize("name", sorted(set(MARKED) - WHOLE_ANSWER))
def test_a7_doubled_end_of_a_call_is_no_text(name: str) -> None:
    dialect = DIALECTS[name]
    written = dialect.render_calls(CALLS[:1])
    for end in whole_marks(dialect)[1]:
        found = scan(dialect, f"{written}{end}\n{end}Bye.", TOOLS)
        assert len(calls_of(found)) == 1
        assert text_of(found).strip() == "Bye."


@pytest.mark.parametrize("name", MARKED)
def test_a7_quoted_marks_are_text(name: str) -> None:
    starts, ends = whole_marks(DIALECTS[name])
    for mark in starts + ends:
        for quoted in (f"Write `{mark}` there.", f"So:\n```\n{mark}\n```\n", f"> {mark}\n"):
            assert scan(DIALECTS[name], quoted, TOOLS) == [Text(quoted)]


def test_a7_end_tag_inside_a_line_of_text_is_text() -> None:
    assert scan("hermes", "Then </tool_call> follows.", TOOLS) == [Text("Then </tool_call> follows.")]
    assert scan("kimi_k2", "Done.<|tool_calls_section_end|>", TOOLS) == [Text("Done.")]


def test_a7_block_that_is_no_call_is_text_with_its_end() -> None:
    text = "<tool_call>\nnothing\n</tool_call>\nMore."
    assert scan("hermes", text, TOOLS) == [Text(text)]
    nameless = "<tool_call>\n<function=>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    assert scan("qwen3_coder", nameless, TOOLS) == [Text(nameless)]


def test_a7_doubled_channel_of_gemma_is_no_text() -> None:
    options = ScanOptions(reasoning=("<|channel>thought", "<channel|>"))
    found = scan("gemma4", "<|channel><|channel>thought\nHm.<channel|><channel|>Hi.<|channel>", TOOLS, options)
    assert found == [Reasoning("Hm."), Text("Hi.")]


@pytest.mark.parametrize("begins", ["<|channel>", "<|channel>thought\n", "thought\n"])
def test_a7_reasoning_of_gemma_without_its_whole_beginning_is_reasoning(begins: str) -> None:
    assert scan("gemma4", f"{begins}thousand reasons<channel|>Hi.", TOOLS) == [Reasoning("thousand reasons"), Text("Hi.")]
    assert scan("gemma4", "thought\nprovokes.", TOOLS) == [Text("thought\nprovokes.")]
    assert scan("gemma4", "<|channel>No end.", TOOLS) == [Text("No end.")]


@pytest.mark.parametrize("mark", END_OF_TURN)
@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a7_end_of_turn_after_a_call_is_no_text(name: str, mark: str) -> None:
    found = scan(DIALECTS[name], f"{DIALECTS[name].render_calls(CALLS[:1])}\n{mark}", TOOLS)
    assert len(calls_of(found)) == 1
    assert not text_of(found).strip()


def test_a7_html_after_text_is_text() -> None:
    assert scan("gigachat3", "It is <s>cold</s> warm.", TOOLS) == [Text("It is <s>cold</s> warm.")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gemma4", "Hi.<turn|>"),
        ("glm47", "Hi.<|role_end|>"),
        ("deepseek_v31", "Hi.<｜end▁of▁sentence｜>"),
        ("deepseek_v4", "Hi.<｜end▁of▁sentence｜>"),
        ("hunyuan", "<answer>Hi.</answer>"),
        ("llama3_json", "Hi.<|eot_id|>"),
        ("hermes", "Hi.<|im_end|>"),
        ("qwen3_coder", "Hi.<|im_end|>"),
        ("step3", "<｜tool_call_begin｜>function<｜tool_sep｜>Hi.<｜tool_call_end｜>"),
    ],
)
def test_a7_marks_around_text_are_no_text(name: str, text: str) -> None:
    assert scan(name, text, TOOLS) == [Text("Hi.")]


@pytest.mark.parametrize("text", ["</think>Hi.", "\n</think>\n\nHi.", "Hi.</think>", "<think>b</think></think>Hi."])
def test_b6_end_tag_without_reasoning_is_no_text(text: str) -> None:
    options = ScanOptions(reasoning=("<think>", "</think>"))
    assert text_of(scan("hermes", text, TOOLS, options)).strip() == "Hi."
    assert text_of(scan("hermes", "Write `</think>`.", TOOLS, options)) == "Write `</think>`."
