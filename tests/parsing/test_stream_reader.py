"""Parser primitives."""

from __future__ import annotations

import re

import pytest

from tests.parsing.running import collected, run, same
from toolrelay.parsing.errors import MalformedCallError, NotACallError, TruncatedCallError
from toolrelay.parsing.stream_reader import BLANK_LIMIT, NAME_LIMIT, Reader


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>c", ("<b>", "c")),
        ("<bc", ("", "<bc")),
        ("<bx>d", ("<bx>", "d")),
        ("x", ("", "x")),
        ("", ("", "")),
        ("<b", ("", "<b")),
    ],
)
def test_accept_consumes_a_literal_that_comes_next(text: str, expected: tuple[str, str]) -> None:
    assert same(lambda reader: reader.accept("<b>", "<bx>"), text) == expected


def test_accept_consumes_the_longer_of_two_literals() -> None:
    assert same(lambda reader: reader.accept("a", "ab"), "abc") == ("ab", "c")
    assert same(lambda reader: reader.accept("a", "ab"), "ac") == ("a", "c")
    assert run(lambda reader: reader.accept("a", "ab"), ["a"]) == ("a", "", True)


def test_accept_waits_only_for_a_partial_literal() -> None:
    assert run(lambda reader: reader.accept("<b>"), ["<", "x"]) == ("", "<x", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab(", ("ab", "(")),
        ("abc!", ("abc", "!")),
        ("ab", ("ab", "")),
        ("abd", ("ab", "d")),
        ("a", (TruncatedCallError, "a")),
        ("", (TruncatedCallError, "")),
        ("ax", (NotACallError, "ax")),
    ],
)
def test_expect_name_requires_the_longest_known_name(text: str, expected: object) -> None:
    assert same(lambda reader: reader.expect_name({"ab": 1, "abc": 2}), text) == expected


def test_expect_name_without_names_is_not_a_call() -> None:
    assert run(lambda reader: reader.expect_name([]), ["a"]) == (NotACallError, "a", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ab", ("ab", "")), ("ax", (NotACallError, "ax")), ("a", (TruncatedCallError, "a")), ("", (TruncatedCallError, ""))],
)
def test_expect_requires_the_literal(text: str, expected: object) -> None:
    assert same(lambda reader: reader.expect("ab"), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" \n</a> b", ("</a>", " b")),
        ("</a>", ("</a>", "")),
        (" \nb", ("", " \nb")),
        (" \n</b>", ("", " \n</b>")),
        (" " * BLANK_LIMIT + "</a>", ("</a>", "")),
        (" " * (BLANK_LIMIT + 1) + "</a>", ("", " " * (BLANK_LIMIT + 1) + "</a>")),
        ("  ", ("", "  ")),
    ],
)
def test_accept_after_blanks_consumes_blanks_and_literal_or_nothing(text: str, expected: object) -> None:
    assert same(lambda reader: reader.accept_after_blanks("</a>"), text) == expected


def test_is_ahead_consumes_nothing() -> None:
    assert same(lambda reader: reader.is_ahead("</a>", "<b>"), " <b>") == (True, " <b>")
    assert same(lambda reader: reader.is_ahead("</a>", "<b>"), " <c>") == (False, " <c>")
    assert same(lambda reader: reader.is_ahead("</a>"), " </") == (False, " </")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc</x>d", (("abc", "</x>"), "d")),
        ("</x>", (("", "</x>"), "")),
        ("a<b</x</x>", (("a<b</x", "</x>"), "")),
        ("a</y>", (("a", "</y>"), "")),
        ("a</x", (TruncatedCallError, "")),
    ],
)
def test_read_until_emits_text_before_the_first_marker(text: str, expected: object) -> None:
    assert same(collected(lambda reader, emit: reader.read_until("</x>", "</y>", emit=emit)), text) == expected


def test_read_until_with_or_end_accepts_the_end() -> None:
    assert same(collected(lambda reader, emit: reader.read_until("</x>", emit=emit, or_end=True)), "a</x") == (("a</x", ""), "")


def test_text_before_a_marker_is_emitted_as_it_arrives() -> None:
    reader = Reader()
    pieces: list[str] = []
    parse = reader.read_until("</x>", emit=pieces.append)
    next(parse)
    for chunk in ("ab", "c<", "d</", "x", "y"):
        reader.feed(chunk)
        next(parse)
    assert pieces == ["ab", "c", "<d", "</xy"]


def test_read_until_is_limited_to_the_character() -> None:
    reading = collected(lambda reader, emit: reader.read_until(">", emit=emit, limit=3))
    assert same(reading, "abc>d") == (("abc", ">"), "d")
    assert run(reading, ["abcd>e"])[:2] == (MalformedCallError, "d>e")
    assert run(reading, list("abcd>e"))[:2] == (MalformedCallError, "d>e")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name>x", ("name", "x")),
        (">x", ("", "x")),
        ("two words>", (NotACallError, "two words>")),
        ("x" * NAME_LIMIT + ">", ("x" * NAME_LIMIT, "")),
        ("x" * (NAME_LIMIT + 1) + ">", (NotACallError, "x" * (NAME_LIMIT + 1) + ">")),
        ("x" * 2000, (NotACallError, "x" * 2000)),
        ("na", (TruncatedCallError, "na")),
    ],
)
def test_read_word_returns_short_complete_text(text: str, expected: object) -> None:
    assert same(lambda reader: reader.read_word(">", of=re.compile(r"\w*")), text) == expected


def test_read_word_fails_at_once_on_a_wrong_character() -> None:
    assert run(lambda reader: reader.read_word(">", of=re.compile(r"\w*")), ["ab ", "c>"]) == (NotACallError, "ab c>", False)


def test_read_match_ends_where_the_pattern_does() -> None:
    pattern = re.compile("[a-z]*")
    assert same(lambda reader: reader.read_match(pattern), "abc1") == ("abc", "1")
    assert same(lambda reader: reader.read_match(pattern), "1") == ("", "1")
    assert same(lambda reader: reader.read_match(pattern), "abc") == ("abc", "")
    assert same(lambda reader: reader.read_match(pattern, limit=2), "abc") == (NotACallError, "abc")
