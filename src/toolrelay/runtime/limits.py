"""Limits on concurrent turns and on requests per minute."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from msgspec import Struct

from toolrelay.errors import ClientError

if TYPE_CHECKING:
    from limits import RateLimitItem
    from limits.aio.storage import Storage

MAX_CACHED_ADDRESSES = 1024
IPV6_PREFIX = 64  # the smallest network that one subscriber gets: its owner can use every address in it


class ConcurrencyLimit:
    """Counts the open turns and refuses a turn over the limit."""

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self.open = 0

    def enter(self) -> None:
        if self.open >= self._max_turns:
            raise ClientError(
                f"The gateway is busy with {self.open} turns. Try again soon.",
                status=503,
                type="server_error",
                code="overloaded",
                retry_after=1,
            )
        self.open += 1

    def reenter(self) -> None:
        """Count a turn again that had left for a while. It is not refused."""
        self.open += 1

    def leave(self) -> None:
        self.open -= 1


class TurnSlot:
    """A turn's place among the concurrent turns. It is free while the turn waits for a person."""

    def __init__(self, limit: ConcurrencyLimit | None = None) -> None:
        """`limit` has counted the turn. Without one, nothing is counted."""
        self._limit = limit
        self._is_paused = False
        self._has_left = limit is None

    @contextmanager
    def paused(self) -> Iterator[None]:
        if self._has_left or self._limit is None or self._is_paused:
            yield
            return
        self._is_paused = True
        self._limit.leave()
        try:
            yield
        finally:
            self._is_paused = False
            if not self._has_left:
                self._limit.reenter()

    def leave(self) -> None:
        """Give the place up for good."""
        if not self._has_left and self._limit is not None:
            self._has_left = True
            if not self._is_paused:
                self._limit.leave()


class Allowance(Struct, frozen=True, kw_only=True):
    """What is left of a limit after a request. `reset_seconds`: until the window has room for one request more."""

    limit: int
    remaining: int
    reset_seconds: float
    is_exceeded: bool = False


class RateLimiter:
    """Counts requests in a moving window of one minute, per key or per address.

    `storage` is a storage of the library `limits`, such as its Redis storage; by default windows in memory. `clock` is that of
    the storage.
    """

    def __init__(self, *, storage: Storage | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        # Imported here because it takes 30 ms or more, and most gateways have no limit.
        from limits import RateLimitItemPerMinute  # noqa: PLC0415 -- see above
        from limits.aio.strategies import MovingWindowRateLimiter  # noqa: PLC0415 -- see above

        from toolrelay.runtime.rate_windows import MemoryWindows  # noqa: PLC0415 -- see above

        self._clock = clock
        self._strategy = MovingWindowRateLimiter(MemoryWindows(clock) if storage is None else storage)
        self._new_item = RateLimitItemPerMinute
        self._items: dict[int, RateLimitItem] = {}

    async def count(self, kind: str, name: str, limit: int) -> Allowance:
        """Count a request of the key or address `name`, unless its limit is reached."""
        item = self._items.get(limit)
        if item is None:
            item = self._items[limit] = self._new_item(limit)
        is_counted = await self._strategy.hit(item, kind, name)
        reset_time, remaining = await self._strategy.get_window_stats(item, kind, name)
        reset_seconds = min(max(0.0, reset_time - self._clock()), 60.0)
        return Allowance(limit=limit, remaining=max(0, remaining), reset_seconds=reset_seconds, is_exceeded=not is_counted)


def rate_limit_error(allowance: Allowance, owner: str) -> ClientError:
    """Return the 429 for a request that `owner` (such as "this key") sent over its limit."""
    seconds = max(1, ceil(allowance.reset_seconds))
    return ClientError(
        f"The limit of {allowance.limit} requests per minute for {owner} is reached. Try again in {seconds} s.",
        status=429,
        type="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after=allowance.reset_seconds,
    )


@lru_cache(maxsize=MAX_CACHED_ADDRESSES)
def client_network(host: str) -> str:
    """Return the address by which a client is limited: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX), strict=False))
