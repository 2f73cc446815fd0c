"""Stream events, and the addition of usage."""

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


def test_every_event_class_is_part_of_stream_event() -> None:
    structs = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, Struct)]
    defined = {struct for struct in structs if struct.__module__ == events.__name__}
    assert defined - {Usage} == set(get_args(StreamEvent))


def test_events_are_immutable() -> None:
    with pytest.raises(AttributeError):
        setattr(TextDelta("a"), "text", "b")  # noqa: B010 -- mypy forbids it in plain words


def test_usage_is_added_field_by_field() -> None:
    names = [name for name in Usage.__struct_fields__ if name != "estimated"]
    one, other, both = (convert({name: number * factor for number, name in enumerate(names, 1)}, Usage) for factor in (1, 10, 11))
    assert one + other == both
    assert (one + replace(other, estimated=True)).estimated


def test_field_that_only_one_usage_has_is_kept() -> None:
    assert Usage(cached=3) + Usage(reasoning=4) == Usage(cached=3, reasoning=4)


def test_missing_total_is_computed_when_added() -> None:
    assert (Usage(input=10, output=5) + Usage(input=1, output=2, total=3)).total == 18
    assert (Usage(input=10, output=5, total=20) + Usage(input=1, output=2)).total == 23
    assert (Usage(input=10, output=5) + Usage(input=1, output=2)).total is None


@given(USAGES, USAGES, USAGES)
def test_addition_of_usage_is_commutative_and_associative(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


@given(USAGES)
def test_adding_empty_usage_changes_nothing(usage: Usage) -> None:
    assert usage + Usage() == usage
