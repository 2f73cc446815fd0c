"""A transport for tests of a connection without sockets."""

from __future__ import annotations

import asyncio


class RecordingTransport(asyncio.Transport):
    """A transport that records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False
