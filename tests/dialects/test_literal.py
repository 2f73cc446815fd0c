"""Literals that are not JSON: any chunks give the same, and what was remembered changes nothing."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_values
from toolrelay.dialects._faults import BrokenError, ReadingError
from toolrelay.dialects._literal import Literals
from toolrelay.dialects._python_value import PYTHON
from toolrelay.dialects._reader import Reader

MARKED = Literals(
    quotes=("<q>",),
    brackets="[{",
    word=re.compile(r"[^,{}\[\]<]*"),
    key=re.compile(r"[^:,{}\[\]<]*"),
    spell=lambda word: word.strip(),
)


def read(form: Literals, text: str, size: int) -> str:
    """The JSON of a literal in chunks of that size; a rule that it breaks stands at its end."""
    pieces: list[str] = []
    reader = Reader(text[:size])
    reading = form.read(reader, pieces.append)
    try:
        step = next(reading)
        for at in range(size, len(text) + size, size):
            assert step is not None
            reader.closed = at >= len(text)
            piece = step.step(text[at : at + size])
            if piece is None:
                break
            pieces.append(piece)
    except StopIteration:
        pass
    except ReadingError as error:
        pieces.append(f"!{error.rule if isinstance(error, BrokenError) else 'cut'}")
    return "".join(pieces)


@given(json_values(), st.integers(1, 9))
def test_python_means_what_python_says_in_any_chunks(drawn: Any, size: int) -> None:
    text = repr([drawn])
    assert json.loads(read(PYTHON, text, size)) == ast.literal_eval(text)


@given(st.text("[]{}(),:'\"\\nu1aT-<q> \n", max_size=16), st.sampled_from([PYTHON, MARKED]))
def test_rubbish_is_the_same_in_any_chunks_and_again(text: str, form: Literals) -> None:
    whole = read(form, f"[{text}", 1000)
    for _ in range(2):
        assert [read(form, f"[{text}", size) for size in (1, 2, 3, 5)] == [whole] * 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{k:12,v:<q>x<q>}", '{"k": 12, "v": "x"}'),
        ('[<q>a"b<c<q>, 1]', '["a\\"b<c", 1]'),
        ("{<q>a b<q>:[{}]}", '{"a b": [{}]}'),
        ("[(1)]", "[(1)]"),
        ("[1}", "[1!malformed"),
        ("{:1}", "{!malformed"),
    ],
)
def test_marks_of_another_kind(text: str, expected: str, size: int) -> None:
    assert read(MARKED, text, size) == expected


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_what_is_nested_too_deeply_is_refused(size: int) -> None:
    assert read(PYTHON, "[" * 256 + "]" * 256, size) == "[" * 256 + "]" * 256
    assert read(PYTHON, "[" * 257, size) == "[" * 256 + "!nested_too_deeply"


POSITIONS = ["  ", "]  ", "] c ", "] f ", "] ef ", "} k ", "} ck ", "} fk ", "} efk ", "]} f ", "]}  "]


@pytest.mark.parametrize("form", [PYTHON, MARKED])
@given(data=st.data())
def test_what_is_not_walked_comes_to_the_same(form: Literals, data: st.DataObject) -> None:
    quotes = ["'", '"', "'''"] if form is PYTHON else ["<q>", "<", "<q"]
    pieces = st.sampled_from([*quotes, "\\", "x4", "n", "a1", "0.5", "-", ",", ":", " ", "{", "}", "[", "]", "\n", "é"])
    text = "".join(data.draw(st.lists(pieces, min_size=1, max_size=7)))
    opened = data.draw(st.sampled_from(["", *quotes[: 3 if form is PYTHON else 1]]))
    position = data.draw(st.sampled_from([one for one in POSITIONS if not opened or ("f" in one and "e" not in one)])) + opened
    walked, quick = form.move(position, text), form.quick_move(position, text)
    assert quick[1:] == walked[1:]
    assert quick[0] == walked[0] or walked[4]
