"""The words for what a model says, and the arithmetic of tokens."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, convert
from msgspec.structs import replace

from toolrelay.core import events
from toolrelay.core.events import StreamEvent, TextDelta, Usage

COUNTS = st.none() | st.integers(0, 1000)
USAGES = st.builds(
    Usage,
    input=st.integers(0, 1000),
    output=st.integers(0, 1000),
    total=COUNTS,
    cached=COUNTS,
    reasoning=COUNTS,
    estimated=st.booleans(),
)


def test_every_event_is_in_the_vocabulary() -> None:
    structs = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, Struct)]
    defined = {struct for struct in structs if struct.__module__ == events.__name__}
    assert defined - {Usage} == set(get_args(StreamEvent))


def test_events_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        setattr(TextDelta("a"), "text", "b")  # noqa: B010 -- mypy forbids it in plain words


def test_usage_adds_up_member_by_member() -> None:
    names = [name for name in Usage.__struct_fields__ if name != "estimated"]
    one, other, both = (convert({name: number * factor for number, name in enumerate(names, 1)}, Usage) for factor in (1, 10, 11))
    assert one + other == both
    assert (one + replace(other, estimated=True)).estimated


def test_what_only_one_side_tells_is_kept() -> None:
    assert Usage(cached=3) + Usage(reasoning=4) == Usage(cached=3, reasoning=4)


def test_a_total_that_one_side_does_not_tell_is_counted_all_the_same() -> None:
    assert (Usage(input=10, output=5) + Usage(input=1, output=2, total=3)).total == 18
    assert (Usage(input=10, output=5, total=20) + Usage(input=1, output=2)).total == 23
    assert (Usage(input=10, output=5) + Usage(input=1, output=2)).total is None


@given(USAGES, USAGES, USAGES)
def test_the_order_of_adding_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


@given(USAGES)
def test_adding_nothing_changes_nothing(usage: Usage) -> None:
    assert usage + Usage() == usage
