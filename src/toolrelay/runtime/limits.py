"""The limit on concurrent turns."""

from __future__ import annotations

from toolrelay.errors import ClientError


class ConcurrencyLimit:
    """How many turns are under way, and how many may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0

    def enter(self) -> None:
        if self.open >= self._most:
            raise ClientError(
                f"The gateway is busy with {self.open} turns. Try again soon.",
                status=503,
                type="server_error",
                code="overloaded",
                retry_after=1,
            )
        self.open += 1

    def leave(self) -> None:
        self.open -= 1
