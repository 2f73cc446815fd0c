"""Encodings, frontmatter, tags and first lines."""

from __future__ import annotations

import codecs
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.toolsets.vault.markdown import (
    MAX_FRONTMATTER,
    decode_note,
    first_line,
    read_possible_tags,
    read_tags,
    split_frontmatter,
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"plain", "plain"),
        ("Grüße".encode(), "Grüße"),
        (codecs.BOM_UTF8 + "é".encode(), "é"),
        (codecs.BOM_UTF16_LE + "é東".encode("utf-16-le"), "é東"),
        (codecs.BOM_UTF16_BE + "é東".encode("utf-16-be"), "é東"),
        ("é".encode("latin-1"), "\ufffd"),
        (b"a\0b", None),
        ("ab".encode("utf-16-le"), None),
        (b"", ""),
    ],
)
def test_note_is_decoded_as_its_mark_says_or_as_utf_8(content: bytes, text: str | None) -> None:
    assert decode_note(content) == text


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("---\ntags: [Work, a/b]\n---\n", {"work", "a", "a/b"}),
        ("---\ntags:\n  - one\n  - '#two'\n---\n", {"one", "two"}),
        ("---\ntag: one, two three\n---\n", {"one", "two", "three"}),
        ("---\nTags: One\nother: {tags: no}\n---\n", {"one"}),
        ("---\r\ntags: [a]\r\n---\r\ntext", {"a"}),
        ("---\ntags: é\n---\n", {"e"}),
        ("---\ntags: [2024]\n---\n", set()),
        ("---\ntags: null\n", set()),
        ("text\n---\ntags: [a]\n---\n", set()),
        ("a #tag, (#other) and #nested/deep.", {"tag", "other", "nested", "nested/deep"}),
        ("# Heading\n#2024 a#b https://x.example/#c &#39; [[#d]] [e](#f) ##g", set()),
        ("#東京/区 #😀", {"東京", "東京/区", "😀"}),
        ("`#a` ``b `#c` `` #d", {"d"}),
        ("`open #a\n\nnext ` #b", {"a", "b"}),
        ("```\n#a\n```\n#b", {"b"}),
        ("~~~py\n#a\n```\n~~~\n#b", {"b"}),
        ("```one line``` #a\n#b", {"a", "b"}),
        ("````\n```\n#a\n````\n#b", {"b"}),
        ("```\n#a", set()),
    ],
)
def test_tags_are_read_from_frontmatter_and_text_but_not_from_code(text: str, tags: set[str]) -> None:
    assert read_tags(text) == tags


@pytest.mark.parametrize(
    "frontmatter",
    [
        "title: a: b: c\ntags: [private]\n",
        "tags: [private\nother: }\n",
        "\ttags: x\ntags:\n- private\n",
        "x: &a [1]\ny: *a\ntags: private\n",
        "key: '\ntags: private\n",
        "? [a]\n: b\ntags: private\n",
        "{a: 1}: b\ntags: private\n",
        "x: [\ntags:\n\n- private\n",
        f"tags: private\nlong: {'x' * MAX_FRONTMATTER}\n",
        "a: " + "[" * 20_000 + "\ntags: private\n",
        "a: " + "{a: " * 5_000 + "\ntags: private\n",
        'a: "\\UFFFFFFFF"\ntags: private\n',
        "%YAML 9.9\ntags: private\n",
        "\x01\ntags: private\n",
    ],
)
def test_frontmatter_that_is_no_yaml_keeps_its_tags(frontmatter: str) -> None:
    assert "private" in read_tags(f"---\n{frontmatter}---\ntext")


@pytest.mark.parametrize(
    "text",
    [
        "- press ` #private\n- press ` again",
        "# a ` b\n#private\n# c ` d",
        "| a ` | #private |\n|---|---|\n| b ` | c |",
        "> ```\n> code\n\ntext #private",
        "- item\n  ```\n  code\n\ntext #private",
        "    ```\n\n#private",
        "---\na: 1\n...\ntags: [private]\n---\n",
        "---\rtags: private\r---\r",
        "\n---\ntags: private\n---\n",
        "---\nx: [\ntags: [a,\nprivate]\n---\n",
    ],
)
def test_tag_that_readers_may_see_is_possible(text: str) -> None:
    """Which text is code or frontmatter, readers decide in different ways: for rules about private notes the tag counts."""
    assert "private" in read_possible_tags(text)


def test_words_are_no_possible_tags() -> None:
    assert read_possible_tags("---\ntags: [a]\ntitle: private\n---\nprivate\ntags: private\n") == {"a"}
    assert read_possible_tags("tags: private\na#private") == set()


def test_aliases_are_not_expanded() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert read_tags("---\n" + "\n".join(lines) + "\ntags: t\n---\n") == {"t"}


@pytest.mark.parametrize("unit", ["`", "``a", "```\n", "#", "#a/", "> ", "~~~", "\n \n", "[[#", "`` ` "])
def test_repeated_marks_take_linear_time(unit: str) -> None:
    read_tags(unit * 100_000)  # quadratic code would run into the time-out of the test


@given(st.text(alphabet="#`~-:[]{}&*!|>'\"\n ab/é東\\0", max_size=200))
def test_any_text_has_tags(text: str) -> None:
    assert all(tag and not tag.startswith("/") for tag in read_tags(text))
    assert all(isinstance(tag, str) for tag in read_tags(f"---\n{text}\n---\n{text}"))


@given(st.binary(max_size=200))
def test_any_bytes_can_be_decoded(content: bytes) -> None:
    text = decode_note(content)
    assert text is None or text.encode().decode() == text


def test_first_line_is_the_first_that_is_not_blank_after_the_frontmatter() -> None:
    assert first_line("---\ntitle: x\n---\n\n  \n  # A   title \nmore", 120) == "# A title"
    assert first_line("x" * 500, 120) == "x" * 120
    assert first_line("\n\n", 120) == ""


def test_frontmatter_must_begin_the_note_and_end() -> None:
    assert split_frontmatter("---\na: b\n---\nc") == ("a: b\n", "c")
    assert split_frontmatter("---\n---\nc") == ("", "c")
    assert split_frontmatter("---\na: b\n") == ("", "---\na: b\n")
    assert split_frontmatter("x\n---\n---\n") == ("", "x\n---\n---\n")


def test_random_bytes_as_frontmatter_do_no_harm() -> None:
    rng = random.Random(1)
    for _ in range(200):
        read_tags(f"---\ntags: {rng.randbytes(60).decode('latin-1')}\n---\n")
