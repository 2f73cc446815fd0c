"""Unknown members: collected and merged back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolrelay.wires.extra import merge_extra, unknown_members

_NAMES = st.sampled_from(["a", "b", "c", "d"])
_FLAT = st.dictionaries(_NAMES, st.integers(0, 3))


def test_no_unknown_members_give_none() -> None:
    assert unknown_members({"a": 1, "in": {"b": 2}}, {"a", "in"}, {"in": {"b"}}) is None


def test_unknown_members_stay_at_their_level() -> None:
    raw = {"a": 1, "x": None, "in": {"b": 2, "y": {"z": 3}}}
    assert unknown_members(raw, {"a", "in"}, {"in": {"b"}}) == {"x": None, "in": {"y": {"z": 3}}}


def test_nested_member_that_is_not_an_object_is_ignored() -> None:
    assert unknown_members({"in": "text"}, {"in"}, {"in": {"b"}}) is None


@given(_FLAT, _FLAT)
def test_unknown_members_can_be_merged_back(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    raw = {**outer, "in": inner}
    known = {"a", "b"}
    extra = unknown_members(raw, known | {"in"}, {"in": known})
    members = {key: value for key, value in outer.items() if key in known}
    members["in"] = {key: value for key, value in inner.items() if key in known}
    assert merge_extra(members, extra or {}) == raw
    assert set(members) <= known | {"in"}
