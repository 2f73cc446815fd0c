"""One HTTP/1.1 client connection, used for one exchange after another: one future per wake-up, one timer for all time-outs.

    state      entered when                       bytes from the upstream          the upstream closes
    NEW        created, not connected yet
    IDLE       connected, or a response ended     unexpected: abort                leave the pool
    BUSY       a request is written               the response                     end of a body without length, else an error
    DRAINING   released shortly before its end    discarded until IDLE             close
    CLOSED     closed by either side

Body chunks are buffered until they are read. When the buffer is full, the socket is not read either, so that a slow reader slows
the upstream down and memory stays flat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from toolrelay.backends.http import errors

if TYPE_CHECKING:
    from toolrelay.backends.http.pool import ConnectionPool

MAX_HEAD = 64 * 1024
HIGH_WATER = 64 * 1024

_NEW, _IDLE, _BUSY, _DRAINING, _CLOSED = range(5)

Consumer: TypeAlias = Callable[[bytes], Awaitable[bool | None] | bool | None]
"""Consumes body bytes. Returns True to stop, or an awaitable of that to wait for before the next bytes."""

_Stop: TypeAlias = Awaitable[bool | None] | Literal[True] | None


class UpstreamResponse:
    """A response whose body may still be arriving. It must be released."""

    __slots__ = ("_connection", "headers", "status")

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    def header(self, name: bytes) -> str | None:
        """Return the first value of a header. `name` is in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read(self) -> bytes:
        """Return what has arrived since the last call, as soon as there is something; b"" at the end."""
        connection = self._connection
        while not connection.chunks:
            if connection.is_complete:
                return b""
            if connection.error is not None:
                raise connection.error
            await connection.wait()
        return connection.take_body()

    async def read_all(self, limit: int) -> bytes:
        body = bytearray()
        while data := await self.read():
            body += data
            if len(body) > limit:
                raise errors.ResponseTooLargeError(limit)
        return bytes(body)

    async def stream_to(self, consume: Consumer) -> bool:
        """Pass the body on as it arrives, inside the event loop's own callback: no task has to be woken for it.

        Return whether `consume` stopped before the end. What it raises is raised here.
        """
        connection = self._connection
        while True:
            if connection.chunks:
                stop = consume(connection.take_body()) or None
            elif connection.is_complete:
                return False
            elif connection.error is not None:
                raise connection.error
            else:
                stop = await connection.wait_consuming(consume)
            if stop is not None and (stop is True or await stop):
                return True

    def release(self, *, drain_seconds: float = 0) -> None:
        """Return the connection to the pool, or close it if the body has not ended and does not end within `drain_seconds`."""
        self._connection.release(self, drain_seconds)


class UpstreamConnection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._state = _NEW
        self._waiter: asyncio.Future[_Stop] | None = None
        self._consume: Consumer | None = None
        self._waiting_since = 0.0
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_reusable = False
        self.idle_since = 0.0
        self.chunks: list[bytes] = []
        self.on_body = self.chunks.append  # the parser calls the list itself: a burst has many chunks
        self._parser = HttpResponseParser(self)
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}  # names in lower case; the first of several values
        self.is_complete = False
        self.error: errors.UpstreamError | None = None
        self._response: UpstreamResponse | None = None
        self._has_received = False
        self._buffered = 0
        self._overhead = 0

    # Called by the pool and the response

    @property
    def is_usable(self) -> bool:
        return self._state == _IDLE and not self._transport.is_closing()

    async def send(self, request: bytes) -> UpstreamResponse:
        """Write a request, head and body, and wait for the head of the response."""
        self._reset()
        self._state = _BUSY
        self._transport.write(request)
        if self._timeout_timer is None and self._pool.read_timeout > 0:
            self._timeout_timer = self._loop.call_later(self._pool.read_timeout, self._check_timeout)
        try:
            while not self.status and self.error is None:
                await self.wait()
        except BaseException:
            self.abort()
            raise
        if self.error is not None and not self.status:
            raise self.error
        self._response = response = UpstreamResponse(self)
        return response

    def wait(self) -> asyncio.Future[_Stop]:
        """Return a future that ends at the next change. Its result is the consumer's, if there is one."""
        self._waiter = waiter = self._loop.create_future()
        self._waiting_since = self._loop.time()
        return waiter

    async def wait_consuming(self, consume: Consumer) -> _Stop:
        """Wait for the end, an error, or a result of `consume`, which gets what arrives until then."""
        self._consume = consume
        try:
            return await self.wait()
        finally:
            self._consume = None

    def take_body(self) -> bytes:
        data = b"".join(self.chunks)
        self.chunks.clear()
        self._buffered = 0
        if self._is_paused:
            self._resume()
        return data

    def release(self, response: UpstreamResponse, drain_seconds: float) -> None:
        if self._response is not response:  # already released: the connection may serve another request by now
            return
        self._response = None
        self.chunks.clear()
        self._buffered = 0
        if self._state == _CLOSED:
            return
        if self.is_complete:
            self._return_to_pool()
        elif drain_seconds > 0:
            self._state = _DRAINING
            self._drain_timer = self._loop.call_later(drain_seconds, self.abort)
            self._resume()
        else:
            self.abort()

    def abort(self) -> None:
        self._close(ConnectionAbortedError())

    def _return_to_pool(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        # An upstream that answered before it had read the whole request would take the rest for the next one.
        if not self._is_reusable or self._transport.get_write_buffer_size():
            self.abort()
            return
        self._resume()
        self._state = _IDLE
        self.idle_since = self._loop.time()
        self._pool.add_idle(self)

    def _resume(self) -> None:
        if self._is_paused and self._state != _CLOSED:
            self._is_paused = False
            self._transport.resume_reading()

    def _wake(self, stop: _Stop = None, error: Exception | None = None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(stop)
        else:
            waiter.set_exception(error)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._state == _CLOSED:
            self._transport.abort()
        else:
            self._state = _IDLE

    def data_received(self, data: bytes) -> None:
        if self._state != _BUSY:
            self._discard(data)
            return
        self._has_received = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.is_complete:
                self._fail(errors.InvalidResponseError(str(error)))
                return
            self._is_reusable = False
        if not self.chunks and not self.is_complete:
            self._count_overhead(len(data))
            return
        self._overhead = 0
        self._buffered += len(data)
        if self._waiter is not None:
            if self._consume is not None and self.chunks:
                self._feed(self._consume)
            else:
                self._wake()
        elif self._buffered > HIGH_WATER and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._close(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close(exc)

    def _feed(self, consume: Consumer) -> None:
        self._waiting_since = self._loop.time()
        try:
            stop = consume(self.take_body()) or None
        except Exception as error:  # noqa: BLE001 -- raised in stream_to
            self._wake(error=error)
            return
        if stop or self.is_complete:
            self._wake(stop)

    def _discard(self, data: bytes) -> None:
        if self._state != _DRAINING:
            self.abort()
            return
        self._buffered += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.abort()
            return
        self.chunks.clear()
        if self.is_complete:
            self._return_to_pool()
        elif self._buffered > HIGH_WATER:
            self.abort()

    def _count_overhead(self, size: int) -> None:
        """Limit bytes that are not body: heads, trailers, chunk extensions. They reset the read timeout."""
        self._overhead += size
        self._waiting_since = self._loop.time()
        if self._overhead > MAX_HEAD:
            self._fail(errors.InvalidResponseError(f"more than {MAX_HEAD >> 10} KiB of headers"))

    def _check_timeout(self) -> None:
        """Fail if the upstream was waited for too long. While nothing waits for it, idle or a slow reader, no time counts."""
        timeout = self._pool.read_timeout
        left = timeout if self._waiter is None else self._waiting_since + timeout - self._loop.time()
        if left > 0:
            self._timeout_timer = self._loop.call_later(left, self._check_timeout)
        else:
            self._fail(errors.ReadTimeoutError(timeout))

    def _fail(self, error: errors.UpstreamError) -> None:
        self.error = error
        self.abort()

    def _close(self, reason: Exception | None) -> None:
        if self._state == _CLOSED:
            return
        before, self._state = self._state, _CLOSED
        self._pool.remove(self)
        for timer in (self._timeout_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        del self._parser  # it refers back to this object
        if before == _NEW:
            return
        if before == _BUSY and not self.is_complete and self.error is None:
            if reason is None and self._ends_with_connection():
                self.is_complete = True
            else:
                self.error = errors.ConnectionCutError(mid_response=self._has_received)
        self._wake()
        self._transport.abort()

    def _ends_with_connection(self) -> bool:
        """Return whether the body has neither a length nor chunks: then the end of the connection is its end."""
        is_chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        return self.status > 0 and not is_chunked and b"content-length" not in self.headers

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise HttpParserError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it is a trailer
            self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim response; the final one follows
            self.headers.clear()
            return
        self.status = status
        self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True
            self._is_reusable = self._parser.should_keep_alive()
