"""Lines of JSON (NDJSON): a splitter that turns a byte stream into its lines."""

from __future__ import annotations

from toolrelay.wires.sse import MAX_FRAME, FrameTooLargeError


class LineSplitter:
    """Splits a stream, cut anywhere, into lines without blank ones. Bytes without a line's end are scanned once."""

    __slots__ = ("_buffer", "_buffered")

    def __init__(self) -> None:
        self._buffer: list[bytes] = []
        self._buffered = 0

    def feed(self, data: bytes) -> list[bytes]:
        first, *lines = data.split(b"\n")
        self._hold(first)
        if not lines:
            return []
        lines.insert(0, b"".join(self._buffer))
        self._buffer.clear()
        self._buffered = 0
        self._hold(lines.pop())
        return [stripped for line in lines if (stripped := line.strip())]

    def flush(self) -> list[bytes]:
        """Return a last line without its end."""
        rest = b"".join(self._buffer).strip()
        self._buffer.clear()
        return [rest] if rest else []

    def _hold(self, data: bytes) -> None:
        self._buffered += len(data)
        if self._buffered > MAX_FRAME:
            raise FrameTooLargeError
        if data:
            self._buffer.append(data)
