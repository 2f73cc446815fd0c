from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.core.surrogates import join_surrogates, join_surrogates_so_far

TEXTS = st.text(st.characters(codec=None, exclude_categories=()) | st.sampled_from("\ud83d\ude00\ufeffa"))


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("", ""),
        ("plain", "plain"),
        ("wörd 😀", "wörd 😀"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ufeff\ud83d\ude00", "\ufeff😀"),
    ],
)
def test_pairs_are_joined_and_lone_surrogates_replaced(text: str, joined: str) -> None:
    assert join_surrogates(text) == joined


@given(st.lists(TEXTS))
def test_chunked_text_is_joined_like_the_whole(pieces: list[str]) -> None:
    joined, held = "", ""
    for piece in pieces:
        text, held = join_surrogates_so_far(held + piece)
        joined += text
    assert joined + join_surrogates(held) == join_surrogates("".join(pieces))


@given(TEXTS)
def test_joined_text_can_be_encoded_and_is_otherwise_unchanged(text: str) -> None:
    joined = join_surrogates(text)
    joined.encode()
    without = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    assert joined.replace("\ufffd", "") == without.replace("\ufffd", "")
