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
from toolrelay.dialects._literal_walk import Form
from toolrelay.dialects._python_value import PYTHON
from toolrelay.dialects._reader import Reader

MARKED = Literals(
    Form(
        quotes=("<q>",),
        brackets="[{",
        word=re.compile(r"[^,{}\[\]<]*"),
        key=re.compile(r"[^:,{}\[\]<]*"),
        spell=lambda word: word.strip(),
    )
)


def in_chunks(form: Literals, chunks: list[str]) -> tuple[str, str]:
    """The JSON of a literal, where a rule that it breaks stands at the end; and what was not read."""
    pieces: list[str] = []
    reader = Reader(chunks[0])
    reader.closed = len(chunks) == 1
    reading = form.read(reader, pieces.append)
    rest = chunks[1:]
    try:
        step = next(reading)
        while (piece := step.step(rest.pop(0) if rest else "") if step is not None else None) is not None:
            pieces.append(piece)
            reader.closed = not rest
    except StopIteration:
        pass
    except ReadingError as error:
        pieces.append(f"!{error.rule if isinstance(error, BrokenError) else 'cut'}")
    return "".join(pieces), "".join([reader.text[reader.at :], *rest])


def read(form: Literals, text: str, size: int) -> str:
    return in_chunks(form, [text[at : at + size] for at in range(0, len(text), size)] or [""])[0]


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


BEFORE = [
    "",
    "[",
    "[1",
    "[1,",
    "[1, ",
    "[Q",
    "[QaQ",
    "[[",
    "[{",
    "[{k",
    "[{k:",
    "[{k:1",
    "[{k:1,",
    "[{QaQ",
    "[{Qa",
    "[{k:Qa",
    "[{k:[QaQ",
]
PIECES = ["\\", "x4", "n", "a1", "0.5", "-", ",", ":", " ", "{", "}", "[", "]", "(", ")", "\n", "é", '"']


@pytest.mark.parametrize("form", [PYTHON, MARKED])
@given(data=st.data())
def test_a_text_that_is_not_walked_comes_to_the_same_as_one_that_is(form: Literals, data: st.DataObject) -> None:
    """What comes in one chunk is walked; what comes after that goes by recipes, also by those of other texts of its shape."""
    quotes = ["'", '"', "'''", '"""'] if form is PYTHON else ["<q>"]
    before = data.draw(st.sampled_from(BEFORE)).replace("Q", data.draw(st.sampled_from(quotes)))
    pieces = st.sampled_from([*PIECES, *quotes, "<", "<q"])
    text = "".join(data.draw(st.lists(pieces, min_size=1, max_size=7)))
    after = data.draw(st.sampled_from(["", "]", "a", ", 1]"]))
    for one in (text, text, text.replace("a1", "b_").replace("0.5", "7.4").replace("n", "t"), text.replace("a1", "q9")):
        assert in_chunks(form, [before, one, after]) == in_chunks(form, [before + one + after])


def test_what_is_remembered_is_bounded() -> None:
    form = Literals(Form(quotes=("'",), word=re.compile(r"\w*"), key=re.compile(r"\w*"), spell=str))
    most = 0
    for number in range(10_000):
        brackets = "".join("[{"[number >> bit & 1] for bit in range(14)).replace("{", "{k:")
        in_chunks(form, [brackets, "'", f"{number}'", ",'x'"])
        most = max(most, sum(1 + len(position.moves) + len(position.recipes) for position in form.positions.values()))
    assert 1000 < most <= 2 * 8192
