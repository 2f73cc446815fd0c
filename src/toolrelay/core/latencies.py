"""Histograms of durations in fixed, log-scaled buckets. Those of several minutes can be added up, in any order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from itertools import pairwise

_BUCKETS_PER_DOUBLING = 8
_DOUBLINGS = 22
BOUNDS = tuple([0.001 * 2 ** (number / _BUCKETS_PER_DOUBLING) for number in range(_DOUBLINGS * _BUCKETS_PER_DOUBLING + 1)])
"""The upper bounds of the buckets in seconds, from 1 ms to 70 minutes. One more bucket has what is longer."""

MAX_ERROR = 0.05
"""The bound on the relative error of a percentile between the first and the last of BOUNDS.

A bucket is 2 ** (1/8) times as wide as the one before, and its geometric middle is returned, which is at most 2 ** (1/16) - 1 =
4.4 % away; the rest is rounding. What is shorter than 1 ms is returned as 1 ms, what is longer than 70 minutes as 70 minutes.
"""

BUCKETS = len(BOUNDS) + 1

_MIDDLES = tuple([math.sqrt(low * high) for low, high in pairwise(BOUNDS)])
_ESTIMATES = tuple([float(f"{seconds:.4g}") for seconds in (BOUNDS[0], *_MIDDLES, BOUNDS[-1])])


class Latencies:
    """How many durations are in each bucket.

    As text: "BUCKET:COUNT", separated by spaces, such as "57:2 64:1". Joining two texts by a space adds them up.
    """

    __slots__ = ("counts",)

    def __init__(self, text: str = "") -> None:
        self.counts: dict[int, int] = {}
        self.add_text(text)

    def merge(self, other: Latencies) -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def add_text(self, text: str) -> None:
        """Add a histogram. Parts of the text that are none of ours are left out."""
        for part, times in Counter(text.split()).items():  # most parts of a long text are equal
            bucket, _, count = part.partition(":")
            if _is_number(bucket) and _is_number(count) and int(bucket) < BUCKETS:
                self.counts[int(bucket)] = self.counts.get(int(bucket), 0) + int(count) * times

    def percentile(self, share: float) -> float | None:
        """Return the seconds that this share of the durations, from 0 to 1, do not exceed. None: there are none."""
        total = sum(self.counts.values())
        if not total:
            return None
        rank, seen = max(1, math.ceil(share * total)), 0
        for bucket, count in sorted(self.counts.items()):
            seen += count
            if seen >= rank:
                return _ESTIMATES[bucket]
        return None


class LatencyCounter:
    """A histogram that durations are added to, as cheaply as possible."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1

    def add_text(self, text: str) -> None:
        for bucket, count in Latencies(text).counts.items():
            self._counts[bucket] += count

    def encode(self) -> str:
        """Return the text of the histogram, see `Latencies`."""
        return " ".join([f"{bucket}:{count}" for bucket, count in enumerate(self._counts) if count])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
