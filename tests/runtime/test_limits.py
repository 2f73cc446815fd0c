"""Limits on requests per minute."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrelay.errors import ClientError
from toolrelay.runtime.limits import Allowance, ConcurrencyLimit, RateLimiter, client_network, rate_limit_error
from toolrelay.runtime.rate_windows import MemoryWindows


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Limiter:
    """A rate limiter with its clock, without async."""

    def __init__(self, *, max_entries: int = 1000) -> None:
        self.clock = Clock()
        self.windows = MemoryWindows(self.clock, max_entries=max_entries)
        self._limiter = RateLimiter(storage=self.windows, clock=self.clock)

    def count(self, name: str = "a", limit: int = 3, *, kind: str = "key") -> Allowance:
        return asyncio.run(self._limiter.count(kind, name, limit))


def test_requests_over_the_limit_are_exceeded_until_the_oldest_leaves_the_window() -> None:
    limiter = Limiter()
    remaining: list[int] = []
    for _ in range(3):
        allowance = limiter.count()
        assert not allowance.is_exceeded
        remaining.append(allowance.remaining)
        limiter.clock.now += 10
    assert remaining == [2, 1, 0]
    refused = limiter.count()
    assert refused == Allowance(limit=3, remaining=0, reset_seconds=30, is_exceeded=True)
    limiter.clock.now += refused.reset_seconds
    assert limiter.count() == Allowance(limit=3, remaining=0, reset_seconds=10)
    assert limiter.count().is_exceeded


def test_refused_request_does_not_count() -> None:
    limiter = Limiter()
    for _ in range(50):
        limiter.count()
    limiter.clock.now += 60
    assert limiter.count().remaining == 2


@pytest.mark.parametrize("other", [("b", "key"), ("a", "address")])
def test_owners_are_counted_separately(other: tuple[str, str]) -> None:
    limiter = Limiter()
    for _ in range(4):
        allowance = limiter.count()
    assert allowance.is_exceeded
    name, kind = other
    assert limiter.count(name, kind=kind).remaining == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40)), max_size=60))
def test_never_more_than_the_limit_in_any_minute(requests: list[tuple[str, float]]) -> None:
    """Compare with a list of all counted requests."""
    limiter = Limiter()
    counted: list[tuple[str, float]] = []
    for name, pause in requests:
        limiter.clock.now += pause
        now = limiter.clock.now
        recent = [at for owner, at in counted if owner == name and at > now - 60]
        allowance = limiter.count(name)
        assert allowance.is_exceeded == (len(recent) == 3)
        if not allowance.is_exceeded:
            recent.append(now)
            counted.append((name, now))
        assert allowance.remaining == 3 - len(recent)
        assert allowance.reset_seconds == pytest.approx(recent[0] + 60 - now)


# Memory


def test_owners_without_recent_requests_are_forgotten() -> None:
    limiter = Limiter()
    for number in range(100):
        limiter.count(str(number))
    assert limiter.windows.entries == 100
    limiter.clock.now += 60
    limiter.count()
    assert limiter.windows.entries == 1
    assert asyncio.run(limiter.windows.reset()) == 1


def test_memory_is_bounded_and_those_silent_longest_are_forgotten_first() -> None:
    limiter = Limiter(max_entries=10)
    limiter.count("first")
    limiter.count("second")
    limiter.count("first")
    for number in range(8):
        limiter.count(str(number))
    assert limiter.windows.entries == 10
    assert limiter.count("first").remaining == 0, "it was remembered"
    assert limiter.count("second").remaining == 2, "it was forgotten"
    for number in range(1000):
        limiter.count(str(number))
    assert limiter.windows.entries <= 10
    assert asyncio.run(limiter.windows.reset()) == 10


def test_reset_forgets_all_owners() -> None:
    limiter = Limiter()
    limiter.count()
    asyncio.run(limiter.windows.reset())
    assert limiter.windows.entries == 0
    assert limiter.count().remaining == 2


# Errors and addresses


def test_error_is_a_429_of_openai_with_retry_after() -> None:
    error = rate_limit_error(Allowance(limit=60, remaining=0, reset_seconds=2.1, is_exceeded=True), "this key")
    assert (error.status, error.type, error.code, error.retry_after) == (429, "rate_limit_error", "rate_limit_exceeded", 2.1)
    assert "60 requests per minute" in error.message
    assert "3 s" in error.message


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unknown", "unknown"),
    ],
)
def test_ipv6_address_is_limited_by_its_network(host: str, network: str) -> None:
    assert client_network(host) == network


def test_limits_is_not_imported_without_a_limit() -> None:
    """It would take 30 ms or more of every start."""
    program = "import sys, toolrelay.app; sys.exit('limits' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Concurrent turns


def test_turn_over_the_limit_is_refused_until_another_leaves() -> None:
    limit = ConcurrencyLimit(1)
    limit.enter()
    with pytest.raises(ClientError, match="busy with 1 turns") as caught:
        limit.enter()
    assert caught.value.status == 503
    limit.leave()
    limit.enter()
    assert limit.open == 1
