"""Limits on what is shown of a trace."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.runtime.traces.cutting import CutLimits, Cutter

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=50), inner, max_size=20),
    max_leaves=60,
)


@given(value=JSON)
def test_small_values_stay_as_they_are(value: Any) -> None:
    cutter = Cutter(CutLimits(50, 20, 1_000_000))
    assert cutter.cut(value) == value
    assert not cutter.was_cut


@given(value=JSON, text=st.integers(0, 10), elements=st.integers(0, 5), total=st.integers(0, 200))
def test_result_is_bounded_and_says_that_something_is_missing(value: Any, text: int, elements: int, total: int) -> None:
    cutter = Cutter(CutLimits(text, elements, total))
    cut = cutter.cut(value)
    assert cutter.was_cut == (cut != value)
    assert len(msgspec.json.encode(cut)) <= 500 + 100 * total


def test_marks_say_how_much_is_missing() -> None:
    cut = Cutter(CutLimits(4, 2, 1000)).cut({"text": "0123456789", "list": [1, 2, 3, 4], "more": 1})
    assert cut == {"text": "0123 … [6 more characters]", "list": [1, 2, "… [2 more elements]"], "…": "[1 more members]"}
