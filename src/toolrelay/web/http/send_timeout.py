"""Detection of a client that stops reading."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

if sys.platform == "linux":
    import fcntl
    import termios

    def _in_kernel(transport: asyncio.Transport) -> int:
        """Count the bytes in the socket's send queue.

        The kernel may take megabytes before it asks for more. Without them a slow client would look like one that stopped.
        """
        try:
            queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0
        return int.from_bytes(queued, sys.byteorder)

else:

    def _in_kernel(transport: asyncio.Transport) -> int:  # noqa: ARG001 -- as on Linux
        return 0


class SendTimeout:
    """Calls `stalled` with the number of unsent bytes once that number has not changed for `seconds`.

    It runs from start() to stop(): a connection whose client keeps up has no timer.
    """

    __slots__ = ("_loop", "_seconds", "_stalled", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, seconds: float, stalled: Callable[[int], None]) -> None:
        self._transport = transport
        self._seconds = seconds
        self._stalled = stalled
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._wait(self._unsent())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, unsent: int) -> None:
        self._timer = self._loop.call_later(self._seconds, self._check, unsent)

    def _check(self, before: int) -> None:
        unsent = self._unsent()
        if unsent == before:
            self._timer = None
            self._stalled(unsent)
        else:
            self._wait(unsent)

    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size() + _in_kernel(self._transport)
