"""Ids: format, uniqueness, stability."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.core.identity import (
    TOKEN_LENGTH,
    derive_call_id,
    make_call_id,
    make_item_id,
    make_ordered_token,
    make_token,
    shorten_id,
)

WORD = re.compile(r"[0-9A-Za-z]+", re.ASCII)
TOKEN = make_token(bytes(range(10)))
TEXTS = st.text(st.characters(), max_size=20)  # lone surrogates too


@given(st.binary(min_size=10, max_size=32))
def test_token_is_twenty_letters_and_digits(entropy: bytes) -> None:
    made = make_token(entropy)
    assert len(made) == TOKEN_LENGTH == 20
    assert WORD.fullmatch(made)
    assert made == make_token(entropy)


def test_tokens_do_not_repeat() -> None:  # bug 29
    random = Random(1)
    assert len({make_token(random.randbytes(10)) for _ in range(10_000)}) == 10_000


def test_token_depends_on_every_byte_of_the_entropy() -> None:
    entropies = [bytes(10), *(bytes(place) + b"\x01" + bytes(9 - place) for place in range(10))]
    assert len({make_token(entropy) for entropy in entropies}) == 11


@given(st.integers(0, 62**4 - 1))
def test_call_id_is_a_prefix_and_24_letters_and_digits(number: int) -> None:
    made = make_call_id(TOKEN, number)
    assert re.fullmatch(r"call_[0-9A-Za-z]{24}", made, re.ASCII)
    assert made.startswith(f"call_{TOKEN}")


def test_ids_within_a_turn_are_unique() -> None:  # bug 29
    numbers = range(100_000)
    assert len({make_call_id(TOKEN, number) for number in numbers}) == len(numbers)


def test_ids_of_two_turns_are_disjoint() -> None:  # bug 29
    other = make_token(bytes(range(1, 11)))
    assert not {make_call_id(TOKEN, number) for number in range(1000)} & {make_call_id(other, number) for number in range(1000)}


def test_item_id_starts_with_its_prefix() -> None:
    assert re.fullmatch(r"msg_[0-9A-Za-z]{24}", make_item_id("msg", TOKEN, 7), re.ASCII)
    assert len({make_item_id(prefix, TOKEN, number) for prefix in ("msg", "fc", "rs") for number in range(100)}) == 300


@given(st.integers(0, 1000), TEXTS, TEXTS)
def test_derived_id_is_deterministic(place: int, name: str, arguments: str) -> None:
    made = derive_call_id(place, name, arguments)
    assert re.fullmatch(r"call_[0-9A-Za-z]{24}", made, re.ASCII)
    assert made == derive_call_id(place, name, arguments)


def test_derived_id_depends_on_position_name_and_arguments() -> None:  # bug 29
    made = {
        derive_call_id(place, name, arguments)
        for place in (1, 11, 111)
        for name in ("f", "1f", "g")
        for arguments in ("", "{}", '{"x":1}')
    }
    assert len(made) == 27


def test_derived_id_is_the_same_in_every_release() -> None:
    assert derive_call_id(3, "f", '{"x":1}') == "call_BJLnS1c3xhdKxHBC5nq3UwAj"


@given(TEXTS)
def test_shortened_id_is_nine_letters_and_digits(identifier: str) -> None:
    made = shorten_id(identifier)
    assert re.fullmatch(r"[0-9A-Za-z]{9}", made, re.ASCII)
    assert shorten_id(made) == made == shorten_id(identifier)


@pytest.mark.parametrize("identifier", ["abcDEF123", "000000000"])
def test_id_that_mistral_accepts_is_unchanged(identifier: str) -> None:
    assert shorten_id(identifier) == identifier


@pytest.mark.parametrize("identifier", ["abc_EF123", "\u00e9bcDEF123", "\u0661" * 9, "abcDEF12\n", "", "abcDEF1234"])
def test_id_that_mistral_refuses_is_replaced(identifier: str) -> None:
    assert shorten_id(identifier) != identifier


def test_shortened_ids_are_unique() -> None:  # bug 29
    assert len({shorten_id(make_call_id(TOKEN, number)) for number in range(20_000)}) == 20_000


def test_shortened_id_is_the_same_in_every_release() -> None:
    assert shorten_id("call_000102030405060708090000") == "2eXS25Ffu"


@given(first=st.integers(0, 2**55), later=st.integers(1, 2**40), entropy=st.binary(min_size=6, max_size=6))
def test_ordered_tokens_sort_by_time(first: int, later: int, entropy: bytes) -> None:
    tokens = [make_ordered_token(first, entropy[:3]), make_ordered_token(first + later, entropy[3:])]
    assert tokens == sorted(tokens)
    assert all(len(token) == TOKEN_LENGTH and token.isalnum() for token in tokens)
