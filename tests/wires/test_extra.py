"""Members that only the client's own wire knows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolrelay.wires.extra import merged, rest

_NAMES = st.sampled_from(["a", "b", "c", "d"])
_FLAT = st.dictionaries(_NAMES, st.integers(0, 3))


def test_nothing_unknown_is_none() -> None:
    assert rest({"a": 1, "in": {"b": 2}}, {"a", "in"}, {"in": {"b"}}) is None


def test_unknown_members_stay_at_their_level() -> None:
    raw = {"a": 1, "x": None, "in": {"b": 2, "y": {"z": 3}}}
    assert rest(raw, {"a", "in"}, {"in": {"b"}}) == {"x": None, "in": {"y": {"z": 3}}}


def test_a_member_that_should_be_an_object_and_is_not_has_nothing_in_it() -> None:
    assert rest({"in": "text"}, {"in"}, {"in": {"b"}}) is None


@given(_FLAT, _FLAT)
def test_what_was_taken_out_can_be_put_back(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    raw = {**outer, "in": inner}
    known = {"a", "b"}
    extra = rest(raw, known | {"in"}, {"in": known})
    members = {key: value for key, value in outer.items() if key in known}
    members["in"] = {key: value for key, value in inner.items() if key in known}
    assert merged(members, extra or {}) == raw
    assert set(members) <= known | {"in"}
