"""Stop sequences that the gateway looks for itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.errors import ClientError
from toolrelay.toolcalls.limits import MAX_STOP_SIZE, MAX_STOPS, make_stop_filter

WORDS = st.text("ab", max_size=30)


def cut(text: str, stops: list[str], size: int) -> str:
    stop_filter = make_stop_filter(stops)
    assert stop_filter is not None
    pieces = [stop_filter.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join([*pieces, "" if stop_filter.hit else stop_filter.flush()])


@given(WORDS, st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4), st.integers(1, 7))
def test_text_ends_before_the_sequence_that_is_complete_first_however_it_is_chunked(
    text: str, stops: list[str], size: int
) -> None:
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    expected = text if not ends else text[: sum(min(ends))]
    assert cut(text, stops, size) == expected


def test_ten_kilobytes_of_a_sequence_that_almost_occurs_cost_linear_time() -> None:
    """Character by character, each of them might be the one that completes it: in quadratic time this would not end."""
    stop = "a" * 10_000 + "b"
    assert cut("a" * 200_000, [stop], 1) == "a" * 200_000
    assert cut("x" + "a" * 10_001 + "b" + "y", [stop], 999) == "xa"


@pytest.mark.parametrize("stops", [["a"] * (MAX_STOPS + 1), ["a" * (MAX_STOP_SIZE + 1)]])
def test_too_many_or_too_long_sequences_are_refused(stops: list[str]) -> None:
    with pytest.raises(ClientError) as refused:
        make_stop_filter(stops)
    assert (refused.value.status, refused.value.param) == (400, "stop")
