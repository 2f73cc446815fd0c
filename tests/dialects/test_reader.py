"""The primitives that grammars read with: what they take, what they wait for, where they stop."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.dialects._faults import BrokenError, CutError, NotACallError, ReadingError
from toolrelay.dialects._reader import BLANK_LIMIT, NAME_LIMIT, Reader, Reading, read_whole
from toolrelay.dialects._steps import Step

T = TypeVar("T")


def read(reading: Callable[[Reader], Reading[T]], chunks: Sequence[str]) -> tuple[T | type[ReadingError], str, bool]:
    """What is read from the chunks or why not, what is left, and whether the end was needed to tell."""
    reader = Reader("")
    going = reading(reader)
    waiting = list(chunks)
    step: Step | None = None
    while True:
        try:
            if step is not None and (piece := step.step("")) is not None:
                step.take(piece)
            else:
                step = next(going)
        except StopIteration as stop:
            return stop.value, reader.text[reader.at :] + "".join(waiting), reader.closed
        except ReadingError as error:
            return type(error), reader.text[reader.at :] + "".join(waiting), reader.closed
        if waiting:
            reader.feed(waiting.pop(0))
        else:
            assert not reader.closed, "it waits after the end"
            reader.closed = True


def same(reading: Callable[[Reader], Reading[Any]], text: str) -> tuple[Any, str]:
    """Whole and character by character it must be the same."""
    whole = read(reading, [text])
    assert read(reading, list(text))[:2] == whole[:2]
    return whole[:2]


def collected(reading: Callable[[Reader, Callable[[str], None]], Reading[Any]]) -> Callable[[Reader], Reading[Any]]:
    """A reading that hands over pieces, as one that returns them together with its result."""

    def inner(reader: Reader) -> Reading[Any]:
        pieces: list[str] = []
        result = yield from reading(reader, pieces.append)
        return "".join(pieces) if result is None else ("".join(pieces), result)

    return inner


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
def test_an_option_is_taken_if_it_comes(text: str, expected: tuple[str, str]) -> None:
    assert same(lambda reader: reader.option("<b>", "<bx>"), text) == expected


def test_of_two_options_the_longer_one_is_taken() -> None:
    assert same(lambda reader: reader.option("a", "ab"), "abc") == ("ab", "c")
    assert same(lambda reader: reader.option("a", "ab"), "ac") == ("a", "c")
    assert read(lambda reader: reader.option("a", "ab"), ["a"]) == ("a", "", True)


def test_an_option_waits_only_while_it_may_come() -> None:
    assert read(lambda reader: reader.option("<b>"), ["<", "x"]) == ("", "<x", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab(", ("ab", "(")),
        ("abc!", ("abc", "!")),
        ("ab", ("ab", "")),
        ("abd", ("ab", "d")),
        ("a", (CutError, "a")),
        ("", (CutError, "")),
        ("ax", (NotACallError, "ax")),
    ],
)
def test_the_longest_known_name_must_come(text: str, expected: object) -> None:
    assert same(lambda reader: reader.known({"ab": 1, "abc": 2}), text) == expected


def test_where_no_name_is_known_none_can_come() -> None:
    assert read(lambda reader: reader.known([]), ["a"]) == (NotACallError, "a", False)


@pytest.mark.parametrize(
    ("text", "expected"), [("ab", ("ab", "")), ("ax", (NotACallError, "ax")), ("a", (CutError, "a")), ("", (CutError, ""))]
)
def test_a_literal_must_come(text: str, expected: object) -> None:
    assert same(lambda reader: reader.literal("ab"), text) == expected


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
def test_a_closing_mark_is_passed_with_the_blanks_before_it_or_not_at_all(text: str, expected: object) -> None:
    assert same(lambda reader: reader.closing("</a>"), text) == expected


def test_looking_ahead_passes_nothing() -> None:
    assert same(lambda reader: reader.ahead("</a>", "<b>"), " <b>") == (True, " <b>")
    assert same(lambda reader: reader.ahead("</a>", "<b>"), " <c>") == (False, " <c>")
    assert same(lambda reader: reader.ahead("</a>"), " </") == (False, " </")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc</x>d", (("abc", "</x>"), "d")),
        ("</x>", (("", "</x>"), "")),
        ("a<b</x</x>", (("a<b</x", "</x>"), "")),
        ("a</y>", (("a", "</y>"), "")),
        ("a</x", (CutError, "")),
    ],
)
def test_reading_until_a_marker(text: str, expected: object) -> None:
    assert same(collected(lambda reader, take: reader.until("</x>", "</y>", take=take)), text) == expected


def test_reading_until_a_marker_or_the_end() -> None:
    assert same(collected(lambda reader, take: reader.until("</x>", take=take, or_end=True)), "a</x") == (("a</x", ""), "")


def test_what_precedes_a_marker_is_handed_over_as_it_comes() -> None:
    reader = Reader("")
    pieces: list[str] = []
    step = next(reader.until("</x>", take=pieces.append))
    for chunk in ("ab", "c<", "d</", "x", "y"):
        assert step is not None
        pieces.append(step.step(chunk) or "")
    assert pieces == ["ab", "c", "<d", "", "</xy"]


def test_what_is_held_has_a_limit_to_the_character() -> None:
    reading = collected(lambda reader, take: reader.until(">", take=take, limit=3))
    assert same(reading, "abc>d") == (("abc", ">"), "d")
    assert read(reading, ["abcd>e"])[:2] == (BrokenError, "d>e")
    assert read(reading, list("abcd>e"))[:2] == (BrokenError, "d>e")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name>x", ("name", "x")),
        (">x", ("", "x")),
        ("two words>", (NotACallError, "two words>")),
        ("x" * NAME_LIMIT + ">", ("x" * NAME_LIMIT, "")),
        ("x" * (NAME_LIMIT + 1) + ">", (NotACallError, "x" * (NAME_LIMIT + 1) + ">")),
        ("x" * 2000, (NotACallError, "x" * 2000)),
        ("na", (CutError, "na")),
    ],
)
def test_a_word_is_whole_and_short(text: str, expected: object) -> None:
    assert same(lambda reader: reader.word(">", of=re.compile(r"\w*")), text) == expected


def test_a_word_that_cannot_be_is_noticed_at_once() -> None:
    assert read(lambda reader: reader.word(">", of=re.compile(r"\w*")), ["ab ", "c>"]) == (NotACallError, "ab c>", False)


def test_a_run_ends_where_the_pattern_does() -> None:
    pattern = re.compile("[a-z]*")
    assert same(lambda reader: reader.run(pattern), "abc1") == ("abc", "1")
    assert same(lambda reader: reader.run(pattern), "1") == ("", "1")
    assert same(lambda reader: reader.run(pattern), "abc") == ("abc", "")
    assert same(lambda reader: reader.run(pattern, limit=2), "abc") == (NotACallError, "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a b" c', ("a b", " c")),
        ('"\\"\\\\\\/\\n\\u00e9"', ('"\\/\né', "")),
        ('"\\ud83d\\ude00"', ("😀", "")),
        ('"\\ud83d"', ("\ufffd", "")),
        ('"\\ude00x"', ("\ufffdx", "")),
        ('"\\q"', ("q", "")),
        ("'a \"b\"' c", ('a "b"', " c")),
        ("'it\\'s'", ("it's", "")),
        ("''", ("", "")),
        ("'a\"", (CutError, "'a\"")),
        ("a", (NotACallError, "a")),
        ('"ab', (CutError, '"ab')),
        ('"' + "x" * (NAME_LIMIT + 1) + '"', (NotACallError, '"' + "x" * (NAME_LIMIT + 1) + '"')),
    ],
)
def test_a_short_string_is_read_whole(text: str, expected: object) -> None:
    assert same(lambda reader: reader.short_string(), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a\\nb" c', ("a\nb", " c")),
        ('"{\\"a\\": \\"\\\\n\\"}"', ('{"a": "\\n"}', "")),
        ('"\\ud83d\\ude00\\ud83d\\u0041"', ("😀\ufffdA", "")),
        ('"line\nbreak"', ("line\nbreak", "")),
        ('"\\u12"', ("u12", "")),
        ('"abc', (CutError, "")),
        ('"abc\\u12', (CutError, "")),
    ],
)
def test_a_string_is_handed_over_as_what_it_means(text: str, expected: object) -> None:
    found = same(collected(lambda reader, take: reader.string(take)), text)
    assert found == expected or (found[0] is CutError and expected == (CutError, ""))


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ('{"a": [1, {"b": "}]"}]} x', '{"a": [1, {"b": "}]"}]}', " x"),
        ("12, 3", "12", ", 3"),
        ("true}", "true", "}"),
        ("null", "null", ""),
        ('"a\\"b" c', '"a\\"b"', " c"),
        ('{"a": "x\ny\x01"}', '{"a": "x\\ny\\u0001"}', ""),
        ('{"a": "\\ud83d\\ude00"}', '{"a": "\\ud83d\\ude00"}', ""),
        ('{"a": "\\ud83d."}', '{"a": "\\ufffd."}', ""),
        ("{'a': 'x}', b: None,}z", "{'a': 'x}', b: None,}", "z"),
        ("{}", "{}", ""),
        ("[]]", "[]", "]"),
    ],
)
def test_a_value_ends_where_its_brackets_do(text: str, value: str, rest: str) -> None:
    assert same(collected(lambda reader, take: reader.value(take)), text) == (value, rest)


@pytest.mark.parametrize(
    ("text", "error", "rest"),
    [
        ('{"a": 1</x>', BrokenError, "</x>"),
        ("{`", BrokenError, "`"),
        ("<", NotACallError, "<"),
        (",", NotACallError, ","),
        ('{"a": ', CutError, ""),
        ('{"a": "\\', CutError, ""),
        ("", CutError, ""),
        ("9" * 300, NotACallError, "9" * 300),
    ],
)
def test_what_no_value_has_ends_the_reading(text: str, error: type[ReadingError], rest: str) -> None:
    assert same(collected(lambda reader, take: reader.value(take)), text) == (error, rest)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_valid_json_is_never_changed(value: Any) -> None:  # bug 19
    import json  # noqa: PLC0415 -- only here

    text = json.dumps(value)
    found = same(collected(lambda reader, take: reader.value(take)), text + " rest")
    assert json.loads(found[0]) == value
    assert found[1] == " rest"


def test_reading_from_a_whole_text() -> None:
    pieces: list[str] = []
    assert read_whole('{"a": 1} b', lambda reader: reader.value(pieces.append)) == " b"
    assert pieces == ['{"a": 1}']
    with pytest.raises(CutError):
        read_whole("{", lambda reader: reader.value(pieces.append))
