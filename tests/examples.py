"""Numbers of examples of property tests that run for every dialect: few in `make check`, ten times as many in `make soak`."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> settings:
    """Return settings with this number of examples, or ten times as many in the profile `soak`."""
    return settings(max_examples=number * (10 if settings.get_current_profile_name() == "soak" else 1))
