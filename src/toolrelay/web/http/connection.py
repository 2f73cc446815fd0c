"""One client connection: HTTP/1.1 and 1.0 on httptools, and one task that handles its requests in order.

- A response is sent in one write; a streamed response sends its head with the first chunk.
- Offers to upgrade the protocol are ignored (Java's HTTP client makes one with its first request), except WebSocket handshakes:
  what follows one is held until its handler has accepted it, or responded.
- Time and size are limited: of a head, of trailers, of a body that is read only to be dropped.
- A client that stops reading is disconnected after `send_timeout`.
- When the connection is lost, pending exchanges are notified at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from toolrelay import log
from toolrelay.errors import ClientError
from toolrelay.web.http.exchange import Address, Exchange, wake
from toolrelay.web.http.send_timeout import SendTimeout

if TYPE_CHECKING:
    from toolrelay.web.http.server import Server
    from toolrelay.web.http.websocket import WebSocket

MAX_HEAD_BYTES = 65536
MIN_DISCARD_BYTES = 65536  # about as much as is in flight before a client can see the refusal
HIGH_WATER = 65536
MAX_PIPELINED = 8  # then reading pauses, and with it the detection of a disconnect
LINGER_SECONDS = 2.0
MAX_CACHED_URL = 256


class HttpConnection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._application = server.application
        self._loop = asyncio.get_running_loop()
        self._parser = self._new_parser()
        self._incoming: Exchange | None = None  # its request is being read, or was read last
        self._queue: deque[Exchange] = deque()  # pipelined requests
        self._running: Exchange | None = None
        self._queue_waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._head_deadline: float | None = None  # None while a request is being read or handled
        self._in_body = False  # of `_incoming`: between the end of its head and the end of its trailers
        self._overhead = 0  # bytes of a head, of trailers or of chunk extensions since the last piece of a body
        self._restarting = False  # a new parser is reading the head that _restart_parser wrote
        self._discarded = 0
        self._linger_bytes = 0  # how much more is read and dropped before a refused connection is closed
        self._diverted: Callable[[bytes], None] | None = None  # takes what arrives, instead of the parser
        self._held: bytearray | None = None  # what came after a WebSocket handshake
        self._websocket: WebSocket | None = None
        self._read_paused = False
        self._closing = False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated_headers: list[tuple[bytes, bytes]] = []
        self.write_paused = False

    def _new_parser(self) -> HttpRequestParser:
        parser = HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # an error would replace the response before it
        return parser

    # The task

    async def _serve(self) -> None:
        try:
            while not self._closing:
                if not self._queue:
                    self._queue_waiter = self._loop.create_future()
                    await self._queue_waiter
                    continue
                self._running = exchange = self._queue.popleft()
                self.resume_reading()
                await self._application.handle(exchange)
                self._running = None
                self._finish(exchange)
                if self.write_paused:
                    await self.drain()
        except Exception:  # noqa: BLE001 -- handlers catch their own; this is the last place to log it
            log.exception("internal_error")
        finally:
            self._close()

    def _finish(self, exchange: Exchange) -> None:
        if not exchange.response_complete:
            self._closing = True
            self._transport.abort()
        elif not exchange.keep_alive:
            self._closing = True
        elif self._held is not None and exchange is self._incoming:
            self._release_held()
        elif not self._queue:
            self._head_deadline = self._loop.time() + self._server.idle_timeout
            self.resume_reading()

    def close_after_requests(self) -> None:
        """Close after the requests that have arrived, and a WebSocket after what runs over it."""
        if self._websocket is not None:
            self._websocket.leave()
            return
        pending = self._pending()
        if pending:
            pending[-1].keep_alive = False
        else:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    def _close(self) -> None:
        """Close once everything is sent, or once the client stops reading it."""
        self._closing = True
        if not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._send_timeout.start()

    def _pending(self) -> list[Exchange]:
        return [*self._queue] if self._running is None else [self._running, *self._queue]

    # ResponseChannel

    @property
    def is_tls(self) -> bool:
        return self._transport.get_extra_info("sslcontext") is not None

    @cached_property
    def client_address(self) -> Address | None:
        return _address(self._transport.get_extra_info("peername"))

    @cached_property
    def server_address(self) -> Address | None:
        return _address(self._transport.get_extra_info("sockname"))

    def cancel(self) -> None:
        self._task.cancel()

    def drain(self) -> Awaitable[None]:
        if self._drain_waiter is None or self._drain_waiter.done():
            self._drain_waiter = self._loop.create_future()
        return self._drain_waiter

    def resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write = self._transport.write
        self._send_timeout = SendTimeout(self._transport, self._server.send_timeout, self._on_stall)
        self._server.register(self)
        self._head_deadline = self._loop.time() + self._server.idle_timeout
        self._idle_timer = self._loop.call_at(self._head_deadline, self._check_idle)
        self._task = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the reason does not matter
        self._closing = True
        self._server.unregister(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for exchange in self._pending():
            exchange.disconnect()
        if self._websocket is not None:
            self._websocket.lose()
        self._websocket = self._diverted = self._held = None
        self.resume_writing()
        self._send_timeout.stop()
        wake(self._queue_waiter)
        del self._parser, self._send_timeout  # both refer back to this object, as an exchange does
        self._incoming = None

    def eof_received(self) -> None:
        self._close()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._send_timeout.start()

    def resume_writing(self) -> None:
        self.write_paused = False
        if not self._transport.is_closing():
            self._send_timeout.stop()
        wake(self._drain_waiter)
        if self._websocket is not None:
            self.resume_reading()

    def data_received(self, data: bytes) -> None:
        while data and not self._transport.is_closing():
            if self._diverted is not None:
                self._diverted(data)
                return
            data = self._read_some(data)

    def _read_some(self, data: bytes) -> bytes:
        """Parse as much as the limits allow. Return the rest."""
        room = MAX_HEAD_BYTES - self._overhead
        if room == 0:
            self._refuse_head(data)
            return b""
        piece = data[:room]
        if self._in_body and self._discards_too_much(len(piece)):
            self._close()
            return b""
        self._overhead += len(piece)
        self._parse(piece)
        return data[room:]

    def _discards_too_much(self, size: int) -> bool:
        exchange = self._incoming
        if exchange is None or not exchange.response_complete:
            return False
        self._discarded += size
        return self._discarded > max(MIN_DISCARD_BYTES, exchange.max_discard)

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            following, exchange = data[offer.args[0] :], self._incoming
            if exchange is not None and exchange.is_handshake:
                exchange.websocket_opener = self._open_websocket
                self._held = bytearray(following)
                self._diverted = self._hold
            else:
                self._restart_parser(following)
        except HttpParserError:
            if self._refuse(ClientError("Invalid HTTP request received.", code="invalid_http")):
                self._close()

    def _restart_parser(self, data: bytes) -> None:
        """Ignore an offer to upgrade: the old parser takes it for the end of HTTP, a new one continues with the body."""
        exchange = self._incoming
        if exchange is None:
            return
        exchange.request_complete = False
        self._restarting = True
        self._parser = self._new_parser()
        framing = [name for name in (b"content-length", b"transfer-encoding") if name in exchange.headers]
        lines = b"".join(b"%b: %b\r\n" % (name, exchange.headers[name]) for name in framing)
        self._parse(b"POST / HTTP/1.1\r\n%b\r\n" % lines)
        self._parse(data)

    # WebSocket

    def _hold(self, data: bytes) -> None:
        """Keep what follows a handshake until it is decided."""
        if self._held is not None:
            self._held += data
            if len(self._held) > HIGH_WATER:
                self.pause_reading()

    def _release_held(self) -> None:
        """Go on with HTTP after a handshake that was refused."""
        held, self._held, self._diverted = bytes(self._held or b""), None, None
        self._head_deadline = self._loop.time() + self._server.idle_timeout
        self.resume_reading()
        self._restart_parser(b"")
        self.data_received(held)

    def _open_websocket(self, exchange: Exchange, *, max_message_bytes: int, ping_seconds: float) -> WebSocket:
        """See Exchange.open_websocket."""
        from toolrelay.web.http.websocket import WebSocket, handshake_headers  # noqa: PLC0415 -- 50 ms of start-up for few users

        exchange.switch_protocols(handshake_headers(exchange))
        self._websocket = websocket = WebSocket(self, max_message_bytes=max_message_bytes, ping_seconds=ping_seconds)
        held, self._held, self._diverted = bytes(self._held or b""), None, websocket.feed
        self.resume_reading()
        if held:
            websocket.feed(held)
        return websocket

    def half_close(self) -> None:
        """See SocketTransport."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    # Callbacks of the parser

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # trailers are dropped: they must reach neither this request nor the next
            name = name.lower()
            if name in self._headers:
                self._repeated_headers.append((name, value))
            else:
                self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._restarting:
            self._restarting = False
            self._end_head()
            return
        parser = self._parser
        is_http_1_1 = parser.get_http_version() != "1.0"
        self._incoming = exchange = Exchange(
            self,
            parser.get_method().decode("ascii"),
            _path(self._url) if len(self._url) < MAX_CACHED_URL else _path.__wrapped__(self._url),
            self._headers,
            self._application.new_request_id(),
            is_http_1_1,
            is_http_1_1 and parser.should_keep_alive(),
            self._url,
            self._repeated_headers,
        )
        self._end_head()
        self._head_deadline = None
        self._discarded = 0
        self._queue.append(exchange)
        if len(self._queue) > MAX_PIPELINED:
            self.pause_reading()
        wake(self._queue_waiter)

    def _end_head(self) -> None:
        self._url, self._headers, self._repeated_headers = b"", {}, []
        self._in_body, self._overhead = True, 0

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        exchange = self._incoming
        if exchange is not None and not exchange.response_complete and exchange.feed(body) > HIGH_WATER:
            self.pause_reading()

    def on_message_complete(self) -> None:
        self._in_body, self._overhead = False, 0
        if self._incoming is not None:
            self._incoming.feed_end()

    # Limits and refusals

    def _check_idle(self) -> None:
        """Close a connection whose next head is not complete in time, even if it comes byte by byte."""
        now = self._loop.time()
        deadline = now + self._server.idle_timeout if self._head_deadline is None else self._head_deadline
        if deadline <= now:
            self._close()
        else:
            self._idle_timer = self._loop.call_at(deadline, self._check_idle)

    def _refuse_head(self, surplus: bytes) -> None:
        part = "trailers of the request are" if self._in_body else "head of the request is"
        message = f"The {part} larger than {MAX_HEAD_BYTES} bytes."
        if self._refuse(ClientError(message, status=431, code="head_too_large")):
            # Closing while more arrives would reset the connection, and the client might never see the response.
            self._transport.write_eof()
            self._linger_bytes = MAX_HEAD_BYTES
            self._diverted = self._linger
            self._loop.call_later(LINGER_SECONDS, self._close)
            self._linger(surplus)

    def _refuse(self, error: ClientError) -> bool:
        """Respond with the error. Return False if earlier responses are pending: then the connection ends after them."""
        broken = self._incoming if self._in_body else None  # the request whose body is wrong
        if broken is not None and broken in self._queue:
            self._queue.remove(broken)
        earlier = [exchange for exchange in self._pending() if exchange is not broken]
        if earlier:
            earlier[-1].keep_alive = False
            return False
        if broken is not None and broken.response_started:
            self._close()
            return False
        if broken is not None:
            broken.disconnected = True  # nothing may follow the refusal
        refusal = Exchange(self, "", "", {}, self._application.new_request_id(), keep_alive=False)
        self._application.refuse(refusal, error)
        return True

    def _linger(self, data: bytes) -> None:
        self._linger_bytes -= len(data)
        if self._linger_bytes < 0:
            self._close()

    def _on_stall(self, unsent: int) -> None:
        log.info("client_stalled", unsent=unsent)
        for exchange in self._pending():
            exchange.stalled = True
        self._transport.abort()


@lru_cache(maxsize=1024)
def _path(url: bytes) -> str:
    """Return the decoded path. Raises what the parser turns into an HttpParserError."""
    return unquote((parse_url(url).path or b"").decode("ascii"))


def _address(name: object) -> Address | None:
    """Return host and port. The name of a Unix socket has neither; that of an IPv6 socket has more."""
    return name[:2] if isinstance(name, tuple) else None
