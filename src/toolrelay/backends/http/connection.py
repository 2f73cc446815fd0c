"""One HTTP/1.1 connection of the client side, used for one exchange after another: one future per wake-up, one timer in all.

    state      entered when                      bytes from the upstream             the connection's end
    NEW        made, not connected yet
    IDLE       connected, or a response is over  unasked for: the connection goes    it leaves the pool
    BUSY       a request is written              the response                        over, if it had no length; else cut
    DRAINING   let go just before its end        thrown away until IDLE              it is gone
    GONE       lost, or given up

Body bytes wait in `pieces` until they are read. When nobody reads, the socket is not read either, so that a slow reader slows the
upstream down and memory stays flat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal, Protocol, TypeAlias, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD = 64 * 1024
HIGH_WATER = 64 * 1024

_NEW, _IDLE, _BUSY, _DRAINING, _GONE = range(5)


class ExchangeError(Exception):
    """What went wrong between us and the upstream. The text completes the sentence "The model's server at …"."""

    status: ClassVar[int] = 502
    code: ClassVar[str] = "upstream_error"
    retryable = False


class CutError(ExchangeError):
    """The connection ended too soon. Before the first byte of a response the request may be sent again."""

    code = "upstream_cut"

    def __init__(self, *, heard: bool) -> None:
        where = "in the middle of its answer" if heard else "without an answer"
        super().__init__(f"closed the connection {where}")
        self.retryable = not heard


class SilentError(ExchangeError):
    status = 504
    code = "upstream_timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"sent nothing for {seconds:g} seconds")


class GarbledError(ExchangeError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"did not answer in HTTP/1.1: {reason}")


class OversizedError(ExchangeError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"sent an answer of more than {limit} bytes")


Consumer: TypeAlias = Callable[[bytes], Awaitable[bool | None] | bool | None]
"""Takes bytes. It returns True once no more is wanted, or an awaitable of that."""

_Enough: TypeAlias = Awaitable[bool | None] | Literal[True] | None


class Owner(Protocol):
    """Whose connection it is. `silence` is how many seconds an upstream may keep us waiting; 0: for ever."""

    silence: float

    def keep(self, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...


class Response:
    """A response whose body may still be arriving. Whoever has it must release it."""

    __slots__ = ("_connection", "headers", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    def header(self, name: bytes) -> str | None:
        """`name` in lower case; the first of several."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read(self) -> bytes:
        """Everything that has arrived since the last call, as soon as there is something; nothing at the end."""
        connection = self._connection
        while True:
            if connection.pieces:
                return connection.take()
            if connection.complete:
                return b""
            if connection.error is not None:
                raise connection.error
            await connection.wait()

    async def pour(self, consume: Consumer) -> bool:
        """Hand the body over as it arrives, in the event loop's own callback, so that no task is woken for it.

        Return whether `consume` wanted no more before the end. What it raises is raised here.
        """
        connection = self._connection
        while True:
            if connection.pieces:
                enough = consume(connection.take()) or None
            elif connection.complete:
                return False
            elif connection.error is not None:
                raise connection.error
            else:
                enough = await connection.wait_while(consume)
            if enough is not None and (enough is True or await enough):
                return True

    async def read_all(self, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while data := await self.read():
            size += len(data)
            if size > limit:
                raise OversizedError(limit)
            pieces.append(data)
        return b"".join(pieces)

    def release(self, *, linger: float = 0) -> None:
        """Gives the connection back, or closes it at once if the body has not come to its end.

        `linger` is how many seconds that end may still take, for a body whose rest nobody needs.
        """
        self._connection.release(self, linger)


class Connection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._state = _NEW
        self._waiter: asyncio.Future[_Enough] | None = None
        self._consume: Consumer | None = None
        self._waiting_since = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._paused = False
        self._reusable = False
        self.idle_since = 0.0
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # the parser calls the list itself: a burst has many chunks
        self._parser = HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}  # names in lower case; the first of several
        self.complete = False
        self.error: ExchangeError | None = None
        self._response: Response | None = None
        self._heard = False
        self._buffered = 0
        self._fruitless = 0

    # What the pool and the response do

    @property
    def usable(self) -> bool:
        return self._state == _IDLE and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> Response:
        """Writes a request, head and body, and waits for the head of the response."""
        self._begin()
        self._state = _BUSY
        self._transport.write(request)
        if self._watch is None and self._owner.silence > 0:
            self._watch = self._loop.call_later(self._owner.silence, self._check_silence)
        try:
            while not self.status and self.error is None:
                await self.wait()
        except BaseException:
            self.abort()
            raise
        if self.error is not None and not self.status:
            raise self.error
        self._response = response = Response(self)
        return response

    def wait(self) -> asyncio.Future[_Enough]:
        """Its result is the consumer's, if there is one."""
        self._waiter = waiter = self._loop.create_future()
        self._waiting_since = self._loop.time()
        return waiter

    async def wait_while(self, consume: Consumer) -> _Enough:
        """Wait for the end, an error, or a result of `consume`; what arrives until then is consumed."""
        self._consume = consume
        try:
            return await self.wait()
        finally:
            self._consume = None

    def _pour(self, consume: Consumer) -> None:
        self._waiting_since = self._loop.time()
        try:
            enough = consume(self.take())
        except Exception as error:  # noqa: BLE001 -- it is the consumer's, who waits for it
            waiter, self._waiter = self._waiter, None
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
            return
        if enough or self.complete:
            self._wake(enough or None)

    def take(self) -> bytes:
        data = b"".join(self.pieces)
        self.pieces.clear()
        self._buffered = 0
        if self._paused:
            self._resume()
        return data

    def release(self, response: Response, linger: float) -> None:
        if self._response is not response:  # released before: by now the connection may serve someone else
            return
        self._response = None
        self.pieces.clear()
        self._buffered = 0
        if self._state == _GONE:
            return
        if self.complete:
            self._retire()
        elif linger > 0:
            self._state = _DRAINING
            self._linger = self._loop.call_later(linger, self.abort)
            self._resume()
        else:
            self.abort()

    def abort(self) -> None:
        self._lose(ConnectionAbortedError())

    def _retire(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        # An upstream that answered before it had read the whole request would take the rest for the next one.
        if not self._reusable or self._transport.get_write_buffer_size():
            self.abort()
            return
        self._resume()
        self._state = _IDLE
        self.idle_since = self._loop.time()
        self._owner.keep(self)

    def _resume(self) -> None:
        if self._paused and self._state != _GONE:
            self._paused = False
            self._transport.resume_reading()

    def _wake(self, enough: _Enough = None) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(enough)

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._state == _GONE:
            self._transport.abort()
        else:
            self._state = _IDLE

    def data_received(self, data: bytes) -> None:
        if self._state != _BUSY:
            self._discard(data)
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.complete:
                self._fail(GarbledError(str(error)))
                return
            self._reusable = False
        if not self.pieces and not self.complete:
            self._count_fruitless(len(data))
            return
        self._fruitless = 0
        self._buffered += len(data)
        if self._waiter is not None:
            if self._consume is not None and self.pieces:
                self._pour(self._consume)
            else:
                self._wake()
        elif self._buffered > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._lose(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc)

    def _discard(self, data: bytes) -> None:
        if self._state == _GONE:
            return
        if self._state == _IDLE:
            self.abort()
            return
        self._buffered += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.abort()
            return
        self.pieces.clear()
        if self.complete:
            self._retire()
        elif self._buffered > HIGH_WATER:
            self.abort()

    def _count_fruitless(self, size: int) -> None:
        """Heads, trailers, chunk extensions: bytes that are no body are a sign of life, but there is an end to them."""
        self._fruitless += size
        self._waiting_since = self._loop.time()
        if self._fruitless > MAX_HEAD:
            self._fail(GarbledError(f"more than {MAX_HEAD >> 10} KiB of headers"))

    def _check_silence(self) -> None:
        """While nobody waits for the upstream, because it is idle or the reader slow, its silence is not its fault."""
        silence = self._owner.silence
        left = silence if self._waiter is None else self._waiting_since + silence - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._check_silence)
        else:
            self._fail(SilentError(silence))

    def _fail(self, error: ExchangeError) -> None:
        self.error = error
        self.abort()

    def _lose(self, reason: Exception | None) -> None:
        if self._state == _GONE:
            return
        before, self._state = self._state, _GONE
        self._owner.forget(self)
        for timer in (self._watch, self._linger):
            if timer is not None:
                timer.cancel()
        del self._parser  # it refers back to this object
        if before == _NEW:
            return
        if before == _BUSY and not self.complete and self.error is None:
            if reason is None and self._ends_with_connection():
                self.complete = True
            else:
                self.error = CutError(heard=self._heard)
        self._wake()
        self._transport.abort()

    def _ends_with_connection(self) -> bool:
        """Neither a length nor chunks: the end of the connection is the end of the body."""
        if not self.status:
            return False
        return b"content-length" not in self.headers and b"chunked" not in self.headers.get(b"transfer-encoding", b"").lower()

    # What the parser says

    def on_message_begin(self) -> None:
        if self.complete:
            raise HttpParserError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it is a trailer
            self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim response; the real one follows
            self.headers.clear()
            return
        self.status = status
        self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            self._reusable = self._parser.should_keep_alive()
