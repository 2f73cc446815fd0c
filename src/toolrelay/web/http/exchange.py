"""One request and the way to answer it: what a page sees of a connection."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from typing import Protocol

from toolrelay.core.identity import token
from toolrelay.errors import ClientError

SILENCE_SECONDS = 60.0  # how long a body that is under way may pause
USUALLY_DISCARDED = 16 * 1024 * 1024  # where a page does not say

JSON = b"content-type: application/json\r\n"
EVENT_STREAM = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_UNSAFE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class ClientGoneError(Exception):
    """The client went away before its request was whole."""


class ResponseChannel(Protocol):
    """What an exchange needs of its connection."""

    full: bool

    def write(self, data: bytes) -> None: ...

    def drained(self) -> Awaitable[None]:
        """Once the client has read enough of what was written."""
        ...

    def listen(self) -> None:
        """The rest of the body is wanted."""
        ...

    def cancel(self) -> None:
        """Cancels the task that answers."""
        ...


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def header_line(name: bytes, value: bytes) -> bytes:
    """For a value that is not this program's own."""
    if _UNSAFE.search(value):
        raise ValueError("a header's value that would not stay one")
    return b"%b: %b\r\n" % (name, value)


class Exchange:
    """`headers` are the request's, their names in lower case. `lines` go with whatever is answered; `rest` is what follows a
    page's path; `discard` is how many bytes of the body are read and passed over once the request has been answered.

    `token` names the request in the log and, as x-request-id, in the answer.
    """

    __slots__ = (
        "_head",
        "_line",
        "_modern",
        "_pieces",
        "_size",
        "_waiter",
        "answered",
        "begun",
        "discard",
        "gone",
        "headers",
        "keep_alive",
        "lines",
        "method",
        "path",
        "rest",
        "stalled",
        "token",
        "watched",
        "whole",
    )

    def __init__(
        self,
        line: ResponseChannel,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes],
        *,
        modern: bool = True,
        keep_alive: bool = True,
    ) -> None:
        self._line = line
        self._modern = modern
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self.method = method
        self.path = path
        self.headers = headers
        self.keep_alive = keep_alive
        self.rest = ""
        self.discard = USUALLY_DISCARDED
        self.token = made = token(os.urandom(10))
        self.lines = b"x-request-id: req_%b\r\n" % made.encode()
        self.whole = False  # the request
        self.begun = False  # the answer
        self.answered = False
        self.gone = False
        self.stalled = False  # the client is cut off because it stopped reading
        self.watched = False

    # The request's body

    async def body(self, limit: int) -> bytes:
        """The whole body, or 413 as soon as it is known to be too large."""
        declared = self.headers.get(b"content-length")
        # int() refuses more than 4,300 digits, and the parser takes any number of leading zeros.
        if declared is not None and declared.isdigit() and int(declared.lstrip(b"0") or b"0") > limit:
            raise _too_large(limit)
        self._line.listen()
        if not self.whole:
            await self._read(limit)
        if self._size > limit:
            raise _too_large(limit)
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    async def _read(self, limit: int) -> None:
        if self.headers.get(b"expect", b"").lower() == b"100-continue" and self._modern:
            self._line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        loop = asyncio.get_running_loop()
        try:
            while not self.whole and self._size <= limit:
                if self.gone:
                    raise ClientGoneError
                self._waiter = loop.create_future()
                async with asyncio.timeout(SILENCE_SECONDS):
                    await self._waiter
        except TimeoutError:
            raise ClientError(
                f"The rest of the request body did not come: {SILENCE_SECONDS:g} seconds passed without a byte of it.",
                status=408,
                code="request_timeout",
            ) from None

    def feed(self, piece: bytes) -> int:
        """A piece of the body has come. Returns how much has that nobody waits for."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._waiter is not None:
            self.wake()
            return 0
        return self._size

    def wake(self) -> None:
        """Something is new: a piece, the body's end, or that the client is gone."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # The response

    def respond(self, status: int, lines: bytes, body: bytes) -> None:
        """A whole response, unless there is one already."""
        if self.begun:
            return
        if status != 204:  # which may not even say that its body is empty
            lines = b"%bcontent-length: %d\r\n" % (lines, len(body))
        head = self._begin(status, lines)
        self.answered = True
        if not self.gone:
            self._line.write(head if self.method == "HEAD" else head + body)

    def begin(self, status: int, lines: bytes) -> None:
        """Opens a response whose body comes piece by piece. Its head leaves with the first of them."""
        if self._modern:
            lines += b"transfer-encoding: chunked\r\n"
        self._head = self._begin(status, lines)

    def write(self, data: bytes) -> Awaitable[None] | None:
        """A piece of an open response. What is returned is to be waited for: the client reads too slowly."""
        if self.gone or self.answered or not data:  # an empty chunk would be the last one
            return None
        if self._modern:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data, self._head = self._head + data, None
        line = self._line
        line.write(data)
        return line.drained() if line.full else None

    def end(self) -> None:
        """Closes an open response."""
        if self.answered:
            return
        self.answered = True
        if not self.gone:
            self._line.write((self._head or b"") + (b"0\r\n\r\n" if self._modern else b""))

    @property
    def full(self) -> bool:
        """Whether the client reads too slowly."""
        return self._line.full

    def _begin(self, status: int, lines: bytes) -> bytes:
        self.begun = True
        if not self.keep_alive:
            lines += b"connection: close\r\n"
        return b"%b%b%b\r\n" % (status_line(status), self.lines, lines)

    # The client's leaving

    def leave(self) -> None:
        """The client is gone. Whoever watches is cancelled."""
        self.gone = True
        self.wake()
        if self.watched:
            self.watched = False
            self._line.cancel()


def _too_large(limit: int) -> ClientError:
    return ClientError(
        f"The request body is larger than {limit} bytes. The limit is server.max_body_bytes.",
        status=413,
        code="request_too_large",
    )
