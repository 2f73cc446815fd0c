"""Which model is asked, by a clock of the test."""

from __future__ import annotations

import pytest

from toolrelay.dialects.base import discover
from toolrelay.errors import BackendError, ClientError, ModelError, ToolrelayError
from toolrelay.runtime.routing import MAX_COOLDOWN_SECONDS, FallbackRoute, is_upstream_fault
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions
from toolrelay.toolcalls.targets import Target

MODE = ActiveOptions(ToolCallOptions(dialect=discover()["sealed"]))
A, B, C = (Target(name=name, mode=MODE) for name in "abc")
FAULT = BackendError("down", status=503)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_models_are_asked_in_order() -> None:
    route = FallbackRoute([A, B, C], 30, Clock())
    assert route.choose() is A
    assert route.choose_after(A, FAULT, ["a"]) is B
    assert route.choose_after(B, FAULT, ["a", "b"]) is C
    assert route.choose_after(C, FAULT, ["a", "b", "c"]) is None


def test_failed_model_is_chosen_again_after_its_cooldown() -> None:
    clock = Clock()
    route = FallbackRoute([A, B], 30, clock)
    route.choose_after(A, FAULT, ["a"])
    clock.now += 29.9
    assert route.choose() is B
    clock.now += 0.1
    assert route.choose() is A


@pytest.mark.parametrize(("retry_after", "seconds"), [(5.0, 30.0), (90.0, 90.0), (1e9, MAX_COOLDOWN_SECONDS)])
def test_retry_after_extends_the_cooldown_up_to_a_limit(retry_after: float, seconds: float) -> None:
    clock = Clock()
    route = FallbackRoute([A, B], 30, clock)
    route.choose_after(A, BackendError("busy", status=429, retry_after=retry_after), ["a"])
    clock.now += seconds - 1
    assert route.choose() is B
    clock.now += 1
    assert route.choose() is A


def test_cooling_fallback_is_asked_after_the_others_and_the_model_itself_if_all_cool() -> None:
    route = FallbackRoute([A, B, C], 30, Clock())
    route.choose_after(B, FAULT, ["b"])
    assert route.choose_after(A, FAULT, ["a"]) is C
    assert route.choose_after(C, FAULT, ["a", "c"]) is B
    assert route.choose() is A


def test_fault_of_the_client_starts_no_cooldown() -> None:
    route = FallbackRoute([A, B], 30, Clock())
    assert route.choose_after(A, BackendError("bad", status=400), ["a"]) is None
    assert route.choose() is A


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BackendError("x"), True),
        (BackendError("x", status=504), True),
        (BackendError("x", status=429), True),
        (BackendError("x", status=400), False),
        (BackendError("x", status=403), False),
        (BackendError("x", status=409), False),
        (ClientError("x", status=429), False),
        (ModelError("x"), False),
    ],
)
def test_only_faults_of_a_server_have_a_fallback(error: ToolrelayError, expected: bool) -> None:  # noqa: FBT001 -- a column of the table
    assert is_upstream_fault(error) is expected
