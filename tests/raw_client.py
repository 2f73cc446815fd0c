"""A client made of one socket: it sends exactly the bytes it is told to, reads when it is told to, and leaves as it is told."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Self

from msgspec import Struct

PATIENCE = 30  # seconds; a bound on a hang, not a measure


class Reply(Struct, frozen=True, kw_only=True):
    """A whole response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """`window` is the size of its receive buffer: a small one fills sooner when nothing is read."""

    def __init__(self, port: int, *, window: int | None = None, patience: float = PATIENCE) -> None:
        self._socket = socket.socket()
        if window is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self._socket.settimeout(patience)
        self._socket.connect(("127.0.0.1", port))
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()

    def say(self, data: bytes) -> Self:
        self._socket.sendall(data)
        return self

    def get(self, path: str, *lines: str) -> Self:
        return self.say(request("GET", path, b"", *lines))

    def post(self, path: str, body: object, *lines: str) -> Self:
        return self.say(request("POST", path, json.dumps(body).encode(), *lines))

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to the mark, and the mark."""
        while mark not in self._held:
            self._hear(f"the end of the connection instead of {mark!r} after {self._held[-500:]!r}")
        end = self._held.index(mark) + len(mark)
        return self._take(end)

    def read_rest(self) -> bytes:
        """Everything up to the end of the connection."""
        while data := self._socket.recv(65536):
            self._held += data
        return self._take(len(self._held))

    def reply(self, *, to: str = "POST") -> Reply:
        """The next response, whole."""
        status, headers = self.head()
        if to == "HEAD" or status in (204, 304):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = self._chunks()
        elif "content-length" in headers:
            body = self._exactly(int(headers["content-length"]))
        else:
            body = self.read_rest()
        return Reply(status=status, headers=headers, body=body)

    def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = self.read_until(b"\r\n\r\n")[:-4].decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1", first
        return int(status), {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def frame(self) -> bytes:
        """The next event or comment of a stream, without the marks of its chunks."""
        return self.read_until(b"\n\n").rpartition(b"\r\n")[2][:-2]

    def leave(self) -> None:
        self._socket.close()

    def close_half(self) -> None:
        """Says that it will say no more."""
        self._socket.shutdown(socket.SHUT_WR)

    def break_off(self) -> None:
        """Leaves without a farewell: the other side sees a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.read_until(b"\r\n"), 16):
            body += self._exactly(size)
            assert self._exactly(2) == b"\r\n"
        assert self._exactly(2) == b"\r\n"
        return body

    def _exactly(self, size: int) -> bytes:
        while len(self._held) < size:
            self._hear(f"the end of the connection, {size - len(self._held)} bytes too soon")
        return self._take(size)

    def _hear(self, complaint: str) -> None:
        data = self._socket.recv(65536)
        assert data, complaint
        self._held += data

    def _take(self, size: int) -> bytes:
        taken, self._held = self._held[:size], self._held[size:]
        return taken


def request(method: str, path: str, body: bytes = b"", *lines: str, version: str = "1.1") -> bytes:
    """A whole request. `lines` are further header lines; one that names the host takes the place of the usual one."""
    usual = [] if any(line.lower().startswith("host:") for line in lines) else ["host: 127.0.0.1"]
    length = [f"content-length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join([f"{method} {path} HTTP/{version}", *usual, *length, *lines, "", ""]).encode() + body
