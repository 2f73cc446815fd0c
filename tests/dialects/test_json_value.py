"""JSON values as models write them: what goes out, when, and what is mended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import json_values
from toolrelay.dialects import _json_value
from toolrelay.dialects._json_value import Value
from toolrelay.dialects._reader import Reader


def pieces_of(chunks: list[str]) -> list[str]:
    """What goes out for each of the chunks of a value."""
    reader = Reader(chunks[0])
    last: list[str] = []
    value = Value(reader, last.append)
    out = [value.step("")]
    out += [value.step(chunk) for chunk in chunks[1:]]
    return [piece for piece in out if piece is not None] + last


def in_chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize(
    "chunks",
    [
        ['{"a": "', "b\\", "nc", '"}'],
        ['{"a": "', "\\", "u", "0041", '"}'],
        ['{"a": "', "\\", '"', "}", '"}'],
        ['{"a": "', "\\", "\\", '"', "}"],
        ['{"a"', ': {"b"', ': [1, {}, "]', '"]', "}", "}"],
        ["['", "a]", "\\'", '"', "']"],
        ['"', "a]}", '"'],
    ],
)
def test_each_chunk_goes_out_at_once(chunks: list[str]) -> None:
    assert pieces_of(chunks) == chunks


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
        ("\\ud8", "\\ud8"),
        ("\n\t\x01", "\\n\\t\\u0001"),
    ],
)
def test_half_a_pair_and_bare_controls_are_mended_wherever_they_are_cut(text: str, expected: str, size: int) -> None:  # bug 24
    assert "".join(pieces_of(in_chunks(f'["{text}"]', size))) == f'["{expected}"]'


@given(json_values(), st.integers(1, 9), st.sampled_from(["escaped", "as it is"]))
@example({"a": ["\\", '"', "}", {"b": "\ud83d\ude00"}]}, 3, "escaped")
def test_json_comes_out_unchanged_from_any_chunks(drawn: Any, size: int, written: str) -> None:
    text = json.dumps([drawn], ensure_ascii=written == "escaped")
    assert "".join(pieces_of(in_chunks(text, size))) == text


def test_shapes_without_number_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_json_value, "_MANY", 8)
    for count in range(30):
        chunks = ["[", "1" * count + "{}", "]"]
        assert pieces_of(chunks) == chunks
    assert len(_json_value._STATES[""].courses) <= 8
