"""Percentiles from histograms against exact ones, and adding histograms up."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolrelay.core.latencies import BOUNDS, MAX_ERROR, Latencies, LatencyCounter

DURATIONS = st.floats(BOUNDS[0], BOUNDS[-1])
SHARES = st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0])


def encode(durations: list[float]) -> str:
    counter = LatencyCounter()
    for seconds in durations:
        counter.add(seconds)
    return counter.encode()


def of(durations: list[float]) -> Latencies:
    return Latencies(encode(durations))


def exact_percentile(durations: list[float], share: float) -> float:
    return sorted(durations)[max(1, math.ceil(share * len(durations))) - 1]


@given(st.lists(DURATIONS, min_size=1, max_size=200), SHARES)
@example([BOUNDS[0]], 0.5)
@example([BOUNDS[-1]], 0.5)
def test_percentile_is_within_the_stated_error(durations: list[float], share: float) -> None:
    estimate = of(durations).percentile(share)
    assert estimate == pytest.approx(exact_percentile(durations, share), rel=MAX_ERROR)


@given(st.sampled_from(BOUNDS))
def test_neighbours_of_a_bound_are_within_the_stated_error(bound: float) -> None:
    for seconds in (math.nextafter(bound, 0), bound, math.nextafter(bound, math.inf)):
        assert of([seconds]).percentile(0.5) == pytest.approx(seconds, rel=MAX_ERROR)


@pytest.mark.parametrize(("seconds", "shown"), [(-1.0, BOUNDS[0]), (0.0, BOUNDS[0]), (1e9, BOUNDS[-1]), (math.inf, BOUNDS[-1])])
def test_duration_outside_the_bounds_counts_at_the_nearest(seconds: float, shown: float) -> None:
    assert of([seconds]).percentile(0.5) == pytest.approx(shown, rel=0.001)


def test_no_durations_have_no_percentile() -> None:
    assert Latencies().percentile(0.5) is None


LISTS = st.lists(DURATIONS, max_size=30)


@given(LISTS, LISTS, LISTS)
def test_adding_up_is_associative_commutative_and_exact(one: list[float], two: list[float], three: list[float]) -> None:
    left, right = of(one), of(two)
    left.merge(of(two))
    left.merge(of(three))
    right.merge(of(three))
    right.merge(of(one))
    assert left.counts == right.counts == of(one + two + three).counts


@given(LISTS, LISTS)
def test_joined_texts_are_the_sum(one: list[float], two: list[float]) -> None:
    joined = f"{encode(one)} {encode(two)}"
    assert Latencies(joined).counts == of(one + two).counts
    counter = LatencyCounter()
    counter.add_text(joined)
    assert counter.encode() == encode(one + two)


@given(st.text())
@example("1:2 x 3:4")
@example("999999:1 -1:1 1:-1 1: :1 1:1:1 ٣:1 1:99999999999999999999999999")
def test_any_text_is_read(text: str) -> None:
    assert all(0 <= bucket <= len(BOUNDS) and count >= 0 for bucket, count in Latencies(text).counts.items())


def test_only_the_damaged_parts_of_a_text_are_left_out() -> None:
    assert Latencies("1:2 x 3:4 999:1 5:-6").counts == {1: 2, 3: 4}
