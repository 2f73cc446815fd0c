"""Ids: their shape, and that none repeats."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.core.identity import TOKEN_LENGTH, call_id, derived_call_id, item_id, nine, token

WORD = re.compile(r"[0-9A-Za-z]+", re.ASCII)
TOKEN = token(bytes(range(10)))
TEXTS = st.text(st.characters(), max_size=20)  # lone surrogates too


@given(st.binary(min_size=10, max_size=32))
def test_a_token_is_twenty_letters_and_digits(entropy: bytes) -> None:
    made = token(entropy)
    assert len(made) == TOKEN_LENGTH == 20
    assert WORD.fullmatch(made)
    assert made == token(entropy)


def test_tokens_do_not_repeat() -> None:  # bug 29
    random = Random(1)
    assert len({token(random.randbytes(10)) for _ in range(10_000)}) == 10_000


def test_every_byte_of_the_entropy_counts() -> None:
    entropies = [bytes(10), *(bytes(place) + b"\x01" + bytes(9 - place) for place in range(10))]
    assert len({token(entropy) for entropy in entropies}) == 11


@given(st.integers(0, 62**4 - 1))
def test_a_call_id_is_its_prefix_and_24_letters_and_digits(number: int) -> None:
    made = call_id(TOKEN, number)
    assert re.fullmatch(r"call_[0-9A-Za-z]{24}", made, re.ASCII)
    assert made.startswith(f"call_{TOKEN}")


def test_the_ids_of_a_turn_do_not_repeat() -> None:  # bug 29
    numbers = range(100_000)
    assert len({call_id(TOKEN, number) for number in numbers}) == len(numbers)


def test_the_ids_of_two_turns_do_not_meet() -> None:  # bug 29
    other = token(bytes(range(1, 11)))
    assert not {call_id(TOKEN, number) for number in range(1000)} & {call_id(other, number) for number in range(1000)}


def test_an_item_id_has_the_prefix_of_its_kind() -> None:
    assert re.fullmatch(r"msg_[0-9A-Za-z]{24}", item_id("msg", TOKEN, 7), re.ASCII)
    assert len({item_id(prefix, TOKEN, number) for prefix in ("msg", "fc", "rs") for number in range(100)}) == 300


@given(st.integers(0, 1000), TEXTS, TEXTS)
def test_a_derived_id_is_the_same_for_the_same_history(place: int, name: str, arguments: str) -> None:
    made = derived_call_id(place, name, arguments)
    assert re.fullmatch(r"call_[0-9A-Za-z]{24}", made, re.ASCII)
    assert made == derived_call_id(place, name, arguments)


def test_a_derived_id_depends_on_place_name_and_arguments() -> None:  # bug 29
    made = {
        derived_call_id(place, name, arguments)
        for place in (1, 11, 111)
        for name in ("f", "1f", "g")
        for arguments in ("", "{}", '{"x":1}')
    }
    assert len(made) == 27


def test_a_derived_id_never_changes_from_one_release_to_the_next() -> None:
    assert derived_call_id(3, "f", '{"x":1}') == "call_BJLnS1c3xhdKxHBC5nq3UwAj"


@given(TEXTS)
def test_mistral_gets_nine_letters_and_digits(identifier: str) -> None:
    made = nine(identifier)
    assert re.fullmatch(r"[0-9A-Za-z]{9}", made, re.ASCII)
    assert nine(made) == made == nine(identifier)


@pytest.mark.parametrize("identifier", ["abcDEF123", "000000000"])
def test_an_id_that_mistral_accepts_stays(identifier: str) -> None:
    assert nine(identifier) == identifier


@pytest.mark.parametrize("identifier", ["abc_EF123", "\u00e9bcDEF123", "\u0661" * 9, "abcDEF12\n", "", "abcDEF1234"])
def test_an_id_that_mistral_refuses_is_replaced(identifier: str) -> None:
    assert nine(identifier) != identifier


def test_ids_that_mistral_gets_do_not_repeat() -> None:  # bug 29
    assert len({nine(call_id(TOKEN, number)) for number in range(20_000)}) == 20_000


def test_what_mistral_gets_never_changes_from_one_release_to_the_next() -> None:
    assert nine("call_000102030405060708090000") == "2eXS25Ffu"
