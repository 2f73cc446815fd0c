"""Streamed Markdown split into blocks, and how it is rendered."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from toolrelay.cli.chat.blocks import MAX_BLOCK, Block, MarkdownSplitter
from toolrelay.cli.chat.markdown import SafeMarkdown

LINES = st.sampled_from(
    ["", "text", "# title", "- item", "  more", "1. one", "```py", "```", "~~~", "| a | b |", "|---|---|", "> q"]
)
TEXTS = st.one_of(st.lists(LINES, max_size=30).map("\n".join), st.text(max_size=200))


def split(text: str, size: int) -> list[Block]:
    splitter = MarkdownSplitter()
    blocks: list[Block] = []
    for start in range(0, len(text), size):
        blocks += splitter.feed(text[start : start + size])
    return blocks + splitter.finish()


def render(text: str, width: int = 60) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(SafeMarkdown(text))
    return out.getvalue()


@given(TEXTS, st.integers(1, 50))
def test_blocks_are_the_same_however_the_text_arrives(text: str, size: int) -> None:
    assert split(text, size) == split(text, max(1, len(text)))


@given(TEXTS)
def test_no_line_is_lost(text: str) -> None:
    lines = [line for block in split(text, 7) for line in block.text.split("\n")]
    assert [line.rstrip() for line in lines if line.strip()] == [line.rstrip() for line in text.split("\n") if line.strip()]


@given(TEXTS)
def test_open_block_and_finished_blocks_are_all_of_the_text(text: str) -> None:
    splitter = MarkdownSplitter()
    blocks = [*splitter.feed(text), splitter.open_block]
    shown = "".join("".join(block.text.split()) for block in blocks)
    assert shown == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\n\ntwo", ["one", "two"]),
        ("- a\n\n- b\n\n  more\n\nend", ["- a\n\n- b\n\n  more", "end"]),
        ("before\n```py\nx\n\ny\n```\nafter", ["before", "```py\nx\n\ny\n```", "after"]),
        ("````\n```\n````\nend", ["````\n```\n````", "end"]),
        ("1. a\n   ```\n   x\n\n   ```\n2. b", ["1. a\n   ```\n   x\n\n   ```\n2. b"]),
    ],
)
def test_blocks_end_where_markdown_says(text: str, expected: list[str]) -> None:
    assert [block.text for block in split(text, 1)] == expected


def test_long_fence_is_split_into_fences() -> None:
    blocks = split("```py\n" + "x = 1\n" * 2000 + "```\n", 1000)
    assert len(blocks) > 2
    assert all(block.text.startswith("```py\n") and block.text.endswith("\n```") for block in blocks)
    assert [block.is_continued for block in blocks] == [False, *[True] * (len(blocks) - 1)]
    assert sum(block.text.count("x = 1") for block in blocks) == 2000


def test_long_table_repeats_its_heading() -> None:
    head = "| a | b |\n|---|---|\n"
    blocks = split(head + "".join(f"| {number} | x |\n" for number in range(1000)), 1000)
    assert len(blocks) > 1
    assert all(block.text.startswith(head) for block in blocks)


def test_line_without_an_end_is_split_between_words() -> None:
    blocks = split("word " * 10_000, 777)
    assert all(len(block.text) <= MAX_BLOCK for block in blocks)
    assert "".join(block.text for block in blocks).split() == ["word"] * 10_000


@given(TEXTS)
def test_rendered_text_has_no_control_characters(text: str) -> None:
    shown = set(render(text + "&#27;&#x202e;")) - set("\n\u200c\u200d")
    assert [each for each in shown if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")] == []


def test_html_images_references_and_links_stay_visible() -> None:
    shown = render("<b>html</b> ![image](http://i) [link](http://l)\n[ref]: http://r\n\n<div>\nblock\n</div>", width=200)
    for text in ("<b>html</b>", "image", "http://i", "http://l", "[ref]: http://r", "<div>", "block"):
        assert text in shown
