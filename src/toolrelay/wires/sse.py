"""Server-sent events: splitting a byte stream, cut anywhere, into the data of its events; and the mark of its end."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
MAX_FRAME = 64 * 1024 * 1024
_CR, _LF = b"\r\n"  # as numbers: looking for a byte in bytes is several times faster than looking for bytes
_MARK = b"\xef\xbb\xbf"  # a byte order mark, which may begin a stream


class FrameTooLargeError(Exception):
    """An event that does not end within MAX_FRAME bytes."""


class Splitter:
    """Events end with a blank line. Lines end with LF, CR LF or CR; comments and members other than data are passed over.

    Bytes without the end of an event in them are kept as they came and looked at once, so that an event of many megabytes costs
    no more per byte than a small one.
    """

    __slots__ = ("_held", "_held_size", "_last")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_size = 0
        self._last = b""

    def feed(self, data: bytes) -> list[bytes]:
        if not self._held and not self._last and data.endswith(b"\n\n") and _CR not in data:  # whole events, as nearly always
            if data.find(_LF) == len(data) - 2 > 6 and data.startswith(b"data: "):
                return [data[6:-2]]
            usual = _usual(data)
            if usual is not None:
                return usual
        if self._last or _CR in data:
            data = self._unify(data)
        if b"\n\n" not in data and not (data[:1] == b"\n" and self._held and self._held[-1][-1:] == b"\n"):
            self._hold(data)
            return []
        if self._held:
            data = b"".join([*self._held, data])
            self._held.clear()
            self._held_size = 0
        *events, rest = data.split(b"\n\n")
        if rest:
            self._hold(rest)
        return [found for event in events if (found := _data(event))]

    def flush(self) -> list[bytes]:
        """What an event without its blank line held, for providers that forget the last one."""
        rest = b"".join(self._held) + self._last.replace(b"\r", b"\n")
        self._held.clear()
        found = _data(rest.strip(b"\n"))
        return [found] if found else []

    def _hold(self, data: bytes) -> None:
        self._held_size += len(data)
        if self._held_size > MAX_FRAME:
            raise FrameTooLargeError
        if data:
            self._held.append(data)

    def _unify(self, data: bytes) -> bytes:
        """Makes all line ends LF. A CR at the very end waits for what follows it."""
        data = self._last + data
        self._last = b""
        if data.endswith(b"\r"):
            self._last = b"\r"
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _usual(data: bytes) -> list[bytes] | None:
    """The data of events that have one line of it, and either all or none of them a name before it. None: there are others."""
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
    if size == 3 and [line for line in lines[::3] if not line.startswith(b"event: ")]:
        return None
    return found + last


def _data(event: bytes) -> bytes:
    """Nothing, where there is none: an event without data is no event."""
    if event.startswith(b"data: ") and _LF not in event:
        return event[6:]
    lines = []
    for line in event.removeprefix(_MARK).split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)
