"""Detection of a client that stops reading."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

if sys.platform == "linux":
    import fcntl
    import termios

    def _send_queue_size(transport: asyncio.Transport) -> int:
        """Return the bytes in the kernel's send queue.

        The kernel buffers megabytes before it asks for more. Without this count a slow client would seem to have stopped.
        """
        try:
            queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0
        return int.from_bytes(queued, sys.byteorder)

else:

    def _send_queue_size(transport: asyncio.Transport) -> int:  # noqa: ARG001 -- as on Linux
        return 0


class SendTimeout:
    """Calls `on_stall` with the number of unsent bytes once that number has not changed for `seconds`.

    It runs from start() to stop(): a connection whose client keeps up has no timer.
    """

    __slots__ = ("_loop", "_on_stall", "_seconds", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, seconds: float, on_stall: Callable[[int], None]) -> None:
        self._transport = transport
        self._seconds = seconds
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._check()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, unsent_before: int | None = None) -> None:
        unsent = self._transport.get_write_buffer_size() + _send_queue_size(self._transport)
        if unsent == unsent_before:
            self._timer = None
            self._on_stall(unsent)
        else:
            self._timer = self._loop.call_later(self._seconds, self._check, unsent)
