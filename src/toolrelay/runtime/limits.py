"""The limit on concurrent turns."""

from __future__ import annotations

from toolrelay.errors import ClientError


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

    def leave(self) -> None:
        self.open -= 1
