"""Fallbacks of a model: which is asked, which is asked instead, and the backend that asks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from toolrelay.backends.base import Backend, Deliver
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ToolrelayError
from toolrelay.toolcalls.targets import Target

MAX_COOLDOWN_SECONDS = 600  # of what a server asks for with Retry-After
# Statuses below 500 that are not the client's fault: no credit, no such model, timeout, too early, rate limit. A 401 is a 502.
_FAULTS = frozenset({402, 404, 408, 425, 429})


def is_upstream_fault(error: ToolrelayError) -> bool:
    """Return whether another server may answer the same request."""
    return isinstance(error, BackendError) and (error.status >= 500 or error.status in _FAULTS)


class FallbackRoute:
    """Chooses among a model and its fallbacks, in this order. One that failed is asked last until its cool-down is over."""

    def __init__(self, targets: Sequence[Target], cooldown: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.primary = targets[0]
        self._targets = targets
        self._cooldown = cooldown
        self._clock = clock
        self._cool_at: dict[str, float] = {}

    def choose(self) -> Target:
        return next((target for target in self._targets if not self._is_cooling(target)), self.primary)

    def choose_after(self, failed: Target, error: ToolrelayError, tried: Collection[str]) -> Target | None:
        if not is_upstream_fault(error):
            return None
        if self._cooldown:
            wanted = min(error.retry_after or 0, MAX_COOLDOWN_SECONDS)
            self._cool_at[failed.name] = self._clock() + max(self._cooldown, wanted)
        left = [target for target in self._targets if target.name not in tried]
        return min(left, key=self._is_cooling, default=None)

    def _is_cooling(self, target: Target) -> bool:
        return self._clock() < self._cool_at.get(target.name, 0.0)


class RoutedBackend:
    """Asks the backend of the fallback that the request names, else that of the model itself, which is the only one it closes."""

    def __init__(self, primary: Backend, fallbacks: Mapping[str, Backend]) -> None:
        self.primary = primary
        self._fallbacks = fallbacks

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        await self._fallbacks.get(request.model, self.primary).stream_into(request, deliver)

    async def close(self) -> None:
        await self.primary.close()
