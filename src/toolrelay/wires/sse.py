"""Server-sent events: a splitter that turns a byte stream into the data of its events."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
MAX_FRAME = 64 * 1024 * 1024
_CR, _LF = b"\r\n"  # as integers: searching bytes for an integer is several times faster than for bytes
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FrameTooLargeError(Exception):
    """An event is longer than MAX_FRAME bytes."""


class SseSplitter:
    """Splits a stream, cut anywhere, into events, which end with a blank line.

    Lines end with LF, CR LF or CR. Comments and fields other than `data` are skipped. Bytes without an event's end are buffered
    and scanned once, so that an event of many megabytes costs no more per byte than a small one.
    """

    __slots__ = ("_buffer", "_buffered", "_pending_cr")

    def __init__(self) -> None:
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._pending_cr = b""

    def feed(self, data: bytes) -> list[bytes]:
        if not self._buffer and not self._pending_cr and data.endswith(b"\n\n") and _CR not in data:  # nearly always
            if data.find(_LF) == len(data) - 2 > 6 and data.startswith(b"data: "):
                return [data[6:-2]]
            found = _split_uniform(data)
            if found is not None:
                return found
        if self._pending_cr or _CR in data:
            data = self._normalize_line_ends(data)
        if b"\n\n" not in data and not (data[:1] == b"\n" and self._buffer and self._buffer[-1][-1:] == b"\n"):
            self._hold(data)
            return []
        if self._buffer:
            data = b"".join([*self._buffer, data])
            self._buffer.clear()
            self._buffered = 0
        *events, rest = data.split(b"\n\n")
        if rest:
            self._hold(rest)
        return [data for event in events if (data := _data(event))]

    def flush(self) -> list[bytes]:
        """Return the data of a last event without its blank line, which some providers leave out."""
        rest = b"".join(self._buffer) + self._pending_cr.replace(b"\r", b"\n")
        self._buffer.clear()
        found = _data(rest.strip(b"\n"))
        return [found] if found else []

    def _hold(self, data: bytes) -> None:
        self._buffered += len(data)
        if self._buffered > MAX_FRAME:
            raise FrameTooLargeError
        if data:
            self._buffer.append(data)

    def _normalize_line_ends(self, data: bytes) -> bytes:
        """Make all line ends LF. A CR at the very end waits for a possible LF."""
        data = self._pending_cr + data
        self._pending_cr = b""
        if data.endswith(b"\r"):
            self._pending_cr = b"\r"
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _split_uniform(data: bytes) -> list[bytes] | None:
    """Return the data of whole events of one data line each, all or none with an event name before it; None if others are there.

    Twice as fast as splitting them one by one.
    """
    lines = data.split(b"\n")
    lines.pop()
    if len(lines) == 3 and lines[0].startswith(b"event: ") and lines[1].startswith(b"data: ") and len(lines[1]) > 6:
        return [lines[1][6:]]
    size = 2 if data.startswith(b"data: ") else 3
    last = []
    if size == 3 and lines[-2] == b"data: [DONE]":  # which has no name
        del lines[-2:]
        last.append(b"[DONE]")
    found = [line[6:] for line in lines[size - 2 :: size] if line.startswith(b"data: ") and len(line) > 6]
    if len(found) * size != len(lines) or any(lines[size - 1 :: size]):
        return None
    if size == 3 and not all(line.startswith(b"event: ") for line in lines[::3]):
        return None
    return found + last


def _data(event: bytes) -> bytes:
    """Return the event's data, empty if it has none."""
    if event.startswith(b"data: ") and _LF not in event:
        return event[6:]
    lines = []
    for line in event.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)
