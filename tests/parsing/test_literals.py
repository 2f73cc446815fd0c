"""Literals that are not JSON."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_values
from toolrelay.dialects.python_calls import PYTHON
from toolrelay.parsing.errors import MalformedCallError, ParseError
from toolrelay.parsing.literals import LiteralSyntax
from toolrelay.parsing.stream_reader import Reader

MARKED = LiteralSyntax(
    quotes=("<q>",),
    brackets="[{",
    word=re.compile(r"[^,{}\[\]<]*"),
    key=re.compile(r"[^:,{}\[\]<]*"),
    encode_word=lambda word: word.strip(),
)


def in_chunks(syntax: LiteralSyntax, chunks: list[str]) -> tuple[str, str]:
    """Return the JSON of a literal, followed by the rule that it breaks, if any; and what was not consumed."""
    pieces: list[str] = []
    reader = Reader()
    waiting = list(chunks)
    parse = syntax.read(reader, pieces.append)
    try:
        while True:
            next(parse)
            reader.closed = len(waiting) <= 1
            reader.feed(waiting.pop(0) if waiting else "")
    except StopIteration:
        pass
    except ParseError as error:
        pieces.append(f"!{error.rule if isinstance(error, MalformedCallError) else 'cut'}")
    return "".join(pieces), "".join([reader.text[reader.at :], *waiting])


def read(syntax: LiteralSyntax, text: str, size: int) -> str:
    return in_chunks(syntax, [text[at : at + size] for at in range(0, len(text), size)] or [""])[0]


@given(json_values(), st.integers(1, 9))
def test_python_literal_means_the_same_as_in_python(drawn: Any, size: int) -> None:
    text = repr([drawn])
    assert json.loads(read(PYTHON, text, size)) == ast.literal_eval(text)


@given(st.text("[]{}(),:'\"\\nu1aT-<q> \n", max_size=16), st.sampled_from([PYTHON, MARKED]))
def test_malformed_literal_is_the_same_in_any_chunks(text: str, syntax: LiteralSyntax) -> None:
    whole = read(syntax, f"[{text}", 1000)
    assert [read(syntax, f"[{text}", size) for size in (1, 2, 3, 5)] == [whole] * 4


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
def test_syntax_with_other_quotes(text: str, expected: str, size: int) -> None:
    assert read(MARKED, text, size) == expected


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_nesting_beyond_the_limit_is_malformed(size: int) -> None:
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


@pytest.mark.parametrize("syntax", [PYTHON, MARKED])
@given(data=st.data())
def test_chunks_at_any_place_of_a_literal_give_the_same(syntax: LiteralSyntax, data: st.DataObject) -> None:
    quotes = ["'", '"', "'''", '"""'] if syntax is PYTHON else ["<q>"]
    before = data.draw(st.sampled_from(BEFORE)).replace("Q", data.draw(st.sampled_from(quotes)))
    pieces = st.sampled_from([*PIECES, *quotes, "<", "<q"])
    text = "".join(data.draw(st.lists(pieces, min_size=1, max_size=7)))
    after = data.draw(st.sampled_from(["", "]", "a", ", 1]"]))
    assert in_chunks(syntax, [before, text, after]) == in_chunks(syntax, [before + text + after])
