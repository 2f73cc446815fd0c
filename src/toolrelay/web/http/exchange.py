"""One HTTP request and its response, as a handler sees them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from httptools import parse_url
from msgspec import Struct

from toolrelay.errors import ClientError

if TYPE_CHECKING:
    from toolrelay.web.http.websocket import WebSocket

BODY_TIMEOUT_SECONDS = 60.0  # between two pieces of a request body
DEFAULT_MAX_DISCARD = 16 * 1024 * 1024

JSON = b"content-type: application/json\r\n"
EVENT_STREAM = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"

BODILESS = frozenset({204, 304})  # statuses whose responses have no body
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_UNSAFE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class ClientDisconnectedError(Exception):
    pass


Address: TypeAlias = tuple[str, int]


class ResponseChannel(Protocol):
    """The part of a connection that an exchange uses."""

    @property
    def write_paused(self) -> bool: ...

    @property
    def client_address(self) -> Address | None: ...

    @property
    def server_address(self) -> Address | None: ...

    @property
    def is_tls(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def drain(self) -> Awaitable[None]:
        """Return an awaitable that ends when `write_paused` does."""
        ...

    def resume_reading(self) -> None: ...


class WebSocketOpener(Protocol):
    def __call__(self, exchange: Exchange, *, max_message_bytes: int, ping_seconds: float) -> WebSocket: ...


def header_line(name: bytes, value: bytes) -> bytes:
    """Encode a header whose value comes from outside."""
    if _UNSAFE.search(value):
        raise ValueError("a header value with a control character")
    return b"%b: %b\r\n" % (name, value)


def wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class Exchange(Struct, eq=False):
    """A request and the methods that answer it."""

    _channel: ResponseChannel
    method: str
    path: str
    headers: Mapping[bytes, bytes]  # names in lower case
    request_id: str  # sent back as x-request-id
    is_http_1_1: bool = True
    keep_alive: bool = True
    target: bytes = b"/"  # as it was sent: path and query, or a whole URL
    repeated_headers: Sequence[tuple[bytes, bytes]] = ()  # those that are not in `headers`
    response_headers: bytes = b""  # header lines that every response to this request gets
    max_discard: int = DEFAULT_MAX_DISCARD  # bytes of the body that are read and dropped after the response
    request_complete: bool = False
    response_started: bool = False
    response_complete: bool = False
    disconnected: bool = False
    stalled: bool = False  # the client is disconnected because it stopped reading
    task_to_cancel: asyncio.Task[Any] | None = None  # on disconnect
    websocket_opener: WebSocketOpener | None = None  # of a handshake
    _head: bytes = b""  # of a streamed response, until its first chunk is written
    _is_chunked: bool = True
    _body: list[bytes] = []
    _body_size: int = 0
    _body_waiter: asyncio.Future[None] | None = None
    _disconnection: asyncio.Event | None = None

    # Request

    @property
    def raw_path(self) -> bytes:
        """The path as it was sent, with its percent signs."""
        return parse_url(self.target).path or b"/"

    @property
    def query(self) -> bytes:
        return parse_url(self.target).query or b""

    @property
    def header_pairs(self) -> list[tuple[bytes, bytes]]:
        """All headers. Those of one name are in the order in which they were sent."""
        return [*self.headers.items(), *self.repeated_headers]

    @property
    def is_tls(self) -> bool:
        return self._channel.is_tls

    @property
    def client_address(self) -> Address | None:
        return self._channel.client_address

    @property
    def server_address(self) -> Address | None:
        return self._channel.server_address

    async def body(self, limit: int) -> bytes:
        """Return the whole body. Raise a 413 as soon as it is known to be larger than `limit`."""
        declared = self.headers.get(b"content-length", b"")
        # int() refuses more than 4,300 digits, and the parser accepts any number of leading zeros.
        is_too_large = declared.isdigit() and int(declared.lstrip(b"0") or b"0") > limit
        if not is_too_large:
            self._channel.resume_reading()
            if not self.request_complete:
                await self._read_body(limit)
        if is_too_large or self._body_size > limit:
            raise ClientError(
                f"The request body is larger than {limit} bytes. The limit is server.max_body_bytes.",
                status=413,
                code="request_too_large",
            )
        return self._body[0] if len(self._body) == 1 else b"".join(self._body)

    async def _read_body(self, limit: int) -> None:
        if self.headers.get(b"expect", b"").lower() == b"100-continue" and self.is_http_1_1:
            self._channel.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        loop = asyncio.get_running_loop()
        try:
            while not self.request_complete and self._body_size <= limit:
                if self.disconnected:
                    raise ClientDisconnectedError
                self._body_waiter = loop.create_future()
                async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
                    await self._body_waiter
        except TimeoutError:
            raise ClientError(
                f"The rest of the request body did not come: {BODY_TIMEOUT_SECONDS:g} seconds passed without a byte of it.",
                status=408,
                code="request_timeout",
            ) from None

    def feed(self, piece: bytes) -> int:
        """Add a piece of the body. Return the number of bytes that no handler waits for."""
        self._body.append(piece)
        self._body_size += len(piece)
        if self._body_waiter is not None:
            wake(self._body_waiter)
            return 0
        return self._body_size

    def feed_end(self) -> None:
        self.request_complete = True
        wake(self._body_waiter)

    # Response

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole response in one write, unless one was started. The length of the body is not in `headers`."""
        if self.response_started:
            return
        is_bodiless = status in BODILESS
        if not is_bodiless:
            headers = b"%bcontent-length: %d\r\n" % (headers, len(body))
        head = self._start(status, headers)
        self.response_complete = True
        if not self.disconnected:
            self._channel.write(head if is_bodiless or self.method == "HEAD" else head + body)

    def begin(self, status: int, headers: bytes, *, has_length: bool = False) -> None:
        """Start a streamed response. Its head is sent with the first chunk.

        `has_length`: a content-length is in `headers`, and exactly as many bytes follow. A response that has no body is complete
        after this.
        """
        if self.response_started:
            return
        is_bodiless = self.method == "HEAD" or status in BODILESS
        self._is_chunked = self.is_http_1_1 and not has_length and not is_bodiless
        if self._is_chunked:
            headers += b"transfer-encoding: chunked\r\n"
        self._head = self._start(status, headers)
        if is_bodiless:
            self.end()

    def write(self, data: bytes) -> Awaitable[None] | None:
        """Send a chunk of a streamed response. Return an awaitable if the client reads too slowly."""
        if self.disconnected or self.response_complete or not data:  # an empty chunk would end the response
            return None
        if self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data, self._head = self._head + data, b""
        channel = self._channel
        channel.write(data)
        return channel.drain() if channel.write_paused else None

    def flush(self) -> None:
        """Send the head of a streamed response before its first chunk."""
        if self._head and not (self.disconnected or self.response_complete):
            head, self._head = self._head, b""
            self._channel.write(head)

    def end(self) -> None:
        """End a streamed response."""
        if self.response_complete:
            return
        self.response_complete = True
        if not self.disconnected:
            self._channel.write(self._head + (b"0\r\n\r\n" if self._is_chunked else b""))

    @property
    def write_paused(self) -> bool:
        return self._channel.write_paused

    def _start(self, status: int, headers: bytes) -> bytes:
        self.response_started = True
        if not self.keep_alive:
            headers += b"connection: close\r\n"
        status_line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"%bx-request-id: %b\r\n%b%b\r\n" % (status_line, self.request_id.encode(), self.response_headers, headers)

    # WebSocket

    @property
    def is_handshake(self) -> bool:
        """Whether the request asks for a WebSocket. Such a request has no body."""
        headers = self.headers
        if self.method != "GET" or headers.get(b"upgrade", b"").lower() != b"websocket":
            return False
        return b"content-length" not in headers and b"transfer-encoding" not in headers

    def open_websocket(self, *, max_message_bytes: int, ping_seconds: float) -> WebSocket:
        """Accept the handshake, or raise the error for an invalid one. The connection ends with the WebSocket."""
        if self.websocket_opener is None:
            raise ClientError("This request is not a WebSocket handshake.", status=426, code="invalid_handshake")
        return self.websocket_opener(self, max_message_bytes=max_message_bytes, ping_seconds=ping_seconds)

    def switch_protocols(self, headers: bytes) -> None:
        """Send the response after which the connection is no longer HTTP."""
        self.keep_alive = True  # no `connection: close` beside the `connection: upgrade`
        head = self._start(101, headers)
        self.keep_alive = False
        self.response_complete = True
        self._channel.write(head)

    # Disconnection

    def cancel_on_disconnect(self) -> _CancelOnDisconnect:
        """Return a context manager that cancels its block and raises ClientDisconnectedError when the client disconnects."""
        return _CancelOnDisconnect(self)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client disconnects. It is noticed once the body was read."""
        if self._disconnection is None:
            self._disconnection = asyncio.Event()
        if not self.disconnected:
            await self._disconnection.wait()

    def disconnect(self) -> None:
        self.disconnected = True
        wake(self._body_waiter)
        if self._disconnection is not None:
            self._disconnection.set()
        if self.task_to_cancel is not None:
            self.task_to_cancel.cancel()


class _CancelOnDisconnect:
    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __enter__(self) -> None:
        if self._exchange.disconnected:
            raise ClientDisconnectedError
        self._exchange.task_to_cancel = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._exchange.task_to_cancel = self._exchange.task_to_cancel, None
        if task is not None and self._exchange.disconnected and kind is asyncio.CancelledError:
            task.uncancel()
            raise ClientDisconnectedError
