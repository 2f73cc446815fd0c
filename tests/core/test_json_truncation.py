"""Truncation of JSON values."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from toolrelay.core.json import Json
from toolrelay.core.json_truncation import fit_json

MARK = "[cut here by the gateway: "
ENTRIES: st.SearchStrategy[Json] = st.lists(
    st.fixed_dictionaries({"path": st.text(max_size=20), "content": st.text(max_size=2000), "size": st.integers(0, 9)}),
    max_size=10,
)


def test_value_within_the_limit_stays() -> None:
    assert fit_json([{"a": "x" * 90}], 100) == b'[{"a":"' + b"x" * 90 + b'"}]'


def test_longest_strings_are_cut_and_marked() -> None:
    value: Json = [{"path": "a.md", "content": "x" * 5000}, {"path": "b.md", "content": "short"}]
    fitted = fit_json(value, 1000)
    assert fitted is not None
    first, second = json.loads(fitted)
    assert second == {"path": "b.md", "content": "short"}
    assert first["path"] == "a.md"
    assert first["content"].startswith("x" * 500)
    assert first["content"].endswith(f" {MARK}5000 characters]")


def test_value_whose_structure_alone_is_too_large_does_not_fit() -> None:
    assert fit_json([{"a": 1}] * 100, 100) is None


@given(value=ENTRIES, limit=st.integers(600, 4000))
def test_fitted_value_is_valid_json_within_the_limit(value: Json, limit: int) -> None:
    fitted = fit_json(value, limit)
    if fitted is None:
        return
    assert len(fitted) <= limit
    decoded = json.loads(fitted)
    assert isinstance(value, list)
    assert len(decoded) == len(value)
    for entry, original in zip(decoded, value, strict=True):
        assert isinstance(original, dict)
        for name, text in entry.items():
            kept = str(text).partition(f" {MARK}")[0]
            assert str(original[name]).startswith(kept) or MARK in str(original[name])


@given(value=ENTRIES)
def test_value_with_few_entries_fits(value: Json) -> None:
    assert fit_json(value, 2500) is not None
