"""An HTTP client on a plain socket: the test decides which bytes it sends, when it reads and how it disconnects."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Self

from msgspec import Struct

TIMEOUT_SECONDS = 60  # only a test that hangs reaches it


class Reply(Struct, frozen=True, kw_only=True):
    """A complete response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawClient:
    """`window` is the size of the receive buffer: a small one fills sooner when nothing is read."""

    def __init__(self, port: int, *, window: int | None = None, timeout: float = TIMEOUT_SECONDS) -> None:
        self._socket = socket.socket()
        if window is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self._socket.settimeout(timeout)
        self._socket.connect(("127.0.0.1", port))
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send(self, data: bytes) -> Self:
        self._socket.sendall(data)
        return self

    def get(self, path: str, *lines: str) -> Self:
        return self.send(encode_request("GET", path, b"", *lines))

    def post(self, path: str, body: object, *lines: str) -> Self:
        return self.send(encode_request("POST", path, json.dumps(body).encode(), *lines))

    def read_until(self, marker: bytes) -> bytes:
        """Read up to and including `marker`."""
        while marker not in self._buffer:
            self._receive(f"the end of the connection instead of {marker!r} after {self._buffer[-500:]!r}")
        end = self._buffer.index(marker) + len(marker)
        return self._take(end)

    def read_rest(self) -> bytes:
        """Read to the end of the connection."""
        while data := self._socket.recv(65536):
            self._buffer += data
        return self._take(len(self._buffer))

    def reply(self, *, to: str = "POST") -> Reply:
        """Read the next complete response."""
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
        """Read the next event or comment of a stream, without the chunk framing."""
        return self.read_until(b"\n\n").rpartition(b"\r\n")[2][:-2]

    def close(self) -> None:
        self._socket.close()

    def half_close(self) -> None:
        """Close the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Abort the connection with a TCP reset."""
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
        while len(self._buffer) < size:
            self._receive(f"the end of the connection, {size - len(self._buffer)} bytes too soon")
        return self._take(size)

    def _receive(self, message: str) -> None:
        data = self._socket.recv(65536)
        assert data, message
        self._buffer += data

    def _take(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def encode_request(method: str, path: str, body: bytes = b"", *lines: str, version: str = "1.1") -> bytes:
    """Encode a complete request. `lines` are further header lines; a host among them replaces the default."""
    host = [] if any(line.lower().startswith("host:") for line in lines) else ["host: 127.0.0.1"]
    length = [f"content-length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join([f"{method} {path} HTTP/{version}", *host, *length, *lines, "", ""]).encode() + body
