"""JSON as models write it: output, timing, repairs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.parsing.running import collected, same
from tests.strategies import json_values
from toolrelay.parsing.errors import MalformedCallError, NotACallError, ParseError, TruncatedCallError
from toolrelay.parsing.json import encode_string, escape_text, json_string, json_value, short_string
from toolrelay.parsing.stream_reader import NAME_LIMIT, Reader


def pieces_of(chunks: list[str]) -> list[str]:
    """Return what is emitted for each of the chunks of a value, and at the end of the stream."""
    reader = Reader()
    emitted: list[str] = []
    pieces: list[str] = []
    parse = json_value(reader, emitted.append)
    next(parse)
    for chunk in (*chunks, None):
        if chunk is None:
            reader.closed = True
        else:
            reader.feed(chunk)
        next(parse, None)
        if emitted:
            pieces.append("".join(emitted))
        emitted.clear()
    return pieces


def in_chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize(
    "chunks",
    [
        ['{"a": "', "b\\n", "c", '"}'],
        ['{"a": "', "\\u0041", '"}'],
        ['{"a": "', '\\"', "}", '"}'],
        ['{"a": "', "\\\\", '"', "}"],
        ['{"a"', ': {"b"', ': [1, {}, "]', '"]', "}", "}"],
        ['{"a": ', "[", '"b', '"', ', "c"', "]", "\n", "}"],
        ['"', "a]}", '"'],
    ],
)
def test_each_chunk_is_emitted_at_once(chunks: list[str]) -> None:
    assert pieces_of(chunks) == chunks


@pytest.mark.parametrize(
    ("chunks", "pieces"),
    [
        (['{"a": "b\\', 'nc"}'], ['{"a": "b', '\\nc"}']),
        (['{"a": 1,', ' "b": 2,', "}"], ['{"a": 1', ', "b": 2', "}"]),
        (['{"a": Tr', "ue}"], ['{"a": ', "true}"]),
        (['{"a": 1', "2}"], ['{"a": ', "12}"]),
        (["{ci", "ty: 1}"], ["{", '"city": 1}']),
        (['{"a": "b "', "}", "}"], ['{"a": "b ', '"}']),
        (['{"a": "', '"', "}"], ['{"a": "', '"}']),
        (["{'a': 'b'", "}"], ['{"a": "b', '"}']),
    ],
    ids=["backslash", "comma", "word", "number", "key", "quote after a blank", "empty string", "single quote"],
)
def test_only_doubtful_text_is_held(chunks: list[str], pieces: list[str]) -> None:
    assert pieces_of(chunks) == pieces


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\ud83d\\ude00", "\\ud83d\\ude00"),
        ("\\ud83d", "\\ufffd"),
        ("\\ude00", "\\ufffd"),
        ("\\ud83d\\ud83d\\ude00", "\\ufffd\\ud83d\\ude00"),
        ("\\uD83Dx", "\\ufffdx"),
        ("\\ud83d\\n", "\\ufffd\\n"),
        ("\\ud83d\\u0041", "\\ufffd\\u0041"),
        ("\\\\ud83d", "\\\\ud83d"),
        ("\\ud7ff\\ue000", "\\ud7ff\\ue000"),
        ("\\ud8", "\\\\ud8"),
        ("\n\t\x01", "\\n\\t\\u0001"),
    ],
)
def test_lone_surrogates_and_control_characters_are_repaired_in_any_chunks(text: str, expected: str, size: int) -> None:  # bug 24
    assert "".join(pieces_of(in_chunks(f'["{text}"]', size))) == f'["{expected}"]'


@given(json_values(), st.integers(1, 9), st.sampled_from(["escaped", "as it is"]))
@example({"a": ["\\", '"', "}", {"b": "\ud83d\ude00"}]}, 3, "escaped")
def test_valid_json_is_unchanged_in_any_chunks(drawn: Any, size: int, written: str) -> None:
    text = json.dumps([drawn], ensure_ascii=written == "escaped")
    assert "".join(pieces_of(in_chunks(text, size))) == text


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
        ("'a\"", (TruncatedCallError, "'a\"")),
        ("a", (NotACallError, "a")),
        ('"ab', (TruncatedCallError, '"ab')),
        ('"' + "x" * (NAME_LIMIT + 1) + '"', (NotACallError, '"' + "x" * (NAME_LIMIT + 1) + '"')),
    ],
)
def test_short_string_is_decoded_when_complete(text: str, expected: object) -> None:
    assert same(short_string, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a\\nb" c', ("a\nb", " c")),
        ('"{\\"a\\": \\"\\\\n\\"}"', ('{"a": "\\n"}', "")),
        ('"\\ud83d\\ude00\\ud83d\\u0041"', ("😀\ufffdA", "")),
        ('"line\nbreak"', ("line\nbreak", "")),
        ('"\\u12"', ("u12", "")),
        ('"abc', (TruncatedCallError, "")),
        ('"abc\\u12', (TruncatedCallError, "")),
    ],
)
def test_string_is_emitted_decoded(text: str, expected: object) -> None:
    found = same(collected(json_string), text)
    assert found == expected or (found[0] is TruncatedCallError and expected == (TruncatedCallError, ""))


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
        ("{'a': 'x}', b: None,}z", '{"a": "x}", "b": null}', "z"),
        ("{}", "{}", ""),
        ("[]]", "[]", "]"),
    ],
)
def test_value_ends_where_its_brackets_do(text: str, value: str, rest: str) -> None:
    assert same(collected(json_value), text) == (value, rest)


@pytest.mark.parametrize(
    ("text", "error", "rest"),
    [
        ('{"a": 1</x>', MalformedCallError, "</x>"),
        ("{`", MalformedCallError, "`"),
        ("<", NotACallError, "<"),
        (",", NotACallError, ","),
        ('{"a": ', TruncatedCallError, ""),
        ('{"a": "\\', TruncatedCallError, "\\"),
        ("", TruncatedCallError, ""),
        ("9" * 300, NotACallError, "9" * 300),
    ],
)
def test_characters_outside_json_end_the_value(text: str, error: type[ParseError], rest: str) -> None:
    assert same(collected(json_value), text) == (error, rest)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_valid_json_is_never_changed(value: Any) -> None:  # bug 19
    text = json.dumps(value)
    found = same(collected(json_value), text + " rest")
    assert json.loads(found[0]) == value
    assert found[1] == " rest"


def test_text_is_encoded_as_a_json_string() -> None:
    assert encode_string('a"\n\x01é😀') == '"a\\"\\n\\u0001é😀"'
    assert escape_text("plain é") == "plain é"
    assert escape_text('"') == '\\"'
