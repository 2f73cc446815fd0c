"""The limit on concurrent runs of a toolset."""

from __future__ import annotations

import asyncio
from collections import deque


class AllStuckError(Exception):
    """Every slot is held by a run that nobody waits for any more and that does not end."""


class RunSlots:
    """Slots for runs, in the order of arrival. A stuck run keeps its slot until it ends."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._stuck = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a slot, or raise AllStuckError."""
        if self._free:
            self._free -= 1
            return
        if self._stuck >= self.size:
            raise AllStuckError
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self.release()  # it was given to this run in the same moment
            raise

    def release(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1

    def mark_stuck(self) -> None:
        """Count a run that holds a slot as stuck. If all are, those who wait get AllStuckError."""
        self._stuck += 1
        if self._stuck >= self.size:
            for slot in self._waiting:
                if not slot.done():
                    slot.set_exception(AllStuckError())
            self._waiting.clear()

    def unmark_stuck(self) -> None:
        self._stuck -= 1
