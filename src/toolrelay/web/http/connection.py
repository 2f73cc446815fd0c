"""A client's connection: HTTP/1.1 and 1.0 on httptools, one task that answers its requests one after the other.

- A response leaves in one write, or its head with the first piece of its body.
- An offer to change the protocol, such as Java's client makes with its first request, is passed over.
- A request that does not come, or comes drop by drop, is not waited for for ever; a head has an end, and so has a body that
  nobody wants any more.
- A client that stops reading is cut off after `send_timeout`.
- When the connection is lost, whoever answers is told at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Protocol, TypeAlias, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from toolrelay import log
from toolrelay.errors import ClientError
from toolrelay.web.http.exchange import JSON, Exchange
from toolrelay.web.http.send_timeout import SendTimeout
from toolrelay.wires.errors import encode_error

LONGEST_HEAD = 65536
LEAST_DISCARDED = 65536  # about as much as is on its way before a client can know of the refusal
HIGH_WATER = 65536
MOST_AHEAD = 8  # requests that may wait; a connection that is not read does not tell when its client goes
PARTING_SECONDS = 2.0

_LONG = 256  # such a URL is not remembered
Answer: TypeAlias = Callable[[Exchange], Awaitable[None]]


class ConnectionOwner(Protocol):
    """Whose connections they are. `idle` is how many seconds one without a request is kept, `send_timeout` how many seconds a
    client may read nothing of what was written.
    """

    idle: float
    send_timeout: float

    @property
    def answer(self) -> Answer: ...

    def greet(self, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, house: ConnectionOwner) -> None:
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._parser = self._new_parser()
        self._exchange: Exchange | None = None  # the one whose request is being read, or was read last
        self._waiting: deque[Exchange] = deque()  # those that have not had their turn
        self._answering: Exchange | None = None
        self._next: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._due: float | None = None  # by when the next head must be there; None: a request is being read or answered
        self._in_body = False  # the head of `_exchange` is read, its body or its trailers are not
        self._overhead = 0  # bytes of a head, of trailers or of chunk extensions since the last piece of a body
        self._resumes = False  # the head that is being read only tells a new parser where it is
        self._discarded = 0
        self._parting: int | None = None  # how much is still read, and passed over, before a refused connection is closed
        self._paused = False
        self._closing = False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self.full = False

    def _new_parser(self) -> HttpRequestParser:
        parser = HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # the answer before it is still to be given
        return parser

    # The task

    async def _serve(self) -> None:
        try:
            while not self._closing:
                if not self._waiting:
                    self._next = self._loop.create_future()
                    await self._next
                    continue
                self._answering = exchange = self._waiting.popleft()
                self.listen()
                await self._house.answer(exchange)
                self._answering = None
                self._finish(exchange)
                if self.full:
                    await self.drained()
        except Exception:  # noqa: BLE001 -- a page sees to its own; this is the last place where it could be told
            log.exception("internal_error")
        finally:
            self._close()

    def _finish(self, exchange: Exchange) -> None:
        if not exchange.answered:
            self._closing = True
            self._transport.abort()
        elif not exchange.keep_alive:
            self._closing = True
        elif not self._waiting:
            self._due = self._loop.time() + self._house.idle
            self.listen()

    def retire(self) -> None:
        """No more requests: those that are here are the last."""
        under_way = self._under_way()
        if under_way:
            under_way[-1].keep_alive = False
        else:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    def _close(self) -> None:
        """Close once all is sent, or once the client reads nothing more of it."""
        self._closing = True
        if not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._sending.start()

    def _under_way(self) -> list[Exchange]:
        return [*self._waiting] if self._answering is None else [self._answering, *self._waiting]

    # What an exchange needs

    def cancel(self) -> None:
        self._task.cancel()

    def drained(self) -> Awaitable[None]:
        if self._writable is None or self._writable.done():
            self._writable = self._loop.create_future()
        return self._writable

    def listen(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write = self._transport.write
        self._sending = SendTimeout(self._transport, self._house.send_timeout, self._drop_stalled)
        self._house.greet(self)
        self._expect_head()
        self._task = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- however it was lost
        self._closing = True
        self._house.forget(self)
        if self._watch is not None:
            self._watch.cancel()
        for exchange in self._under_way():
            exchange.leave()
        self.resume_writing()
        self._sending.stop()
        self._wake()
        del self._parser, self._sending  # they refer back to this object, and so does an exchange
        self._exchange = None

    def eof_received(self) -> None:
        self._close()

    def pause_writing(self) -> None:
        self.full = True
        self._sending.start()

    def resume_writing(self) -> None:
        self.full = False
        if not self._transport.is_closing():
            self._sending.stop()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._parting is not None:
            self._pass_over(len(data))
            return
        while data and not self._transport.is_closing():
            data = self._read_some(data)

    def _read_some(self, data: bytes) -> bytes:
        """Returns what is left to read."""
        room = LONGEST_HEAD - self._overhead
        if room == 0:
            self._refuse_head(len(data))
            return b""
        piece = data[:room]
        if self._in_body and self._discards_too_much(len(piece)):
            self._close()
            return b""
        self._overhead += len(piece)
        self._parse(piece)
        return data[room:]

    def _discards_too_much(self, size: int) -> bool:
        exchange = self._exchange
        if exchange is None or not exchange.answered:
            return False
        self._discarded += size
        return self._discarded > max(LEAST_DISCARDED, exchange.discard)

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            self._read_on(data[offer.args[0] :])
        except HttpParserError:
            if self._refuse(ClientError("Invalid HTTP request received.", code="invalid_http")):
                self._close()

    def _read_on(self, data: bytes) -> None:
        """For the parser an offer to change the protocol was the end of HTTP. Another one reads on, from the same place."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.whole = False
        self._resumes = True
        self._parser = self._new_parser()
        body = [name for name in (b"content-length", b"transfer-encoding") if name in exchange.headers]
        self._parse(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % (name, exchange.headers[name]) for name in body))
        self._parse(data)

    # What the parser says

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # a trailer is not a header: it must not reach this request, nor the next one
            self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        if self._resumes:
            self._resumes = False
            self._end_head()
            return
        parser = self._parser
        modern = parser.get_http_version() != "1.0"
        self._exchange = exchange = Exchange(
            self,
            parser.get_method().decode("ascii"),
            _path(self._url) if len(self._url) < _LONG else _path.__wrapped__(self._url),
            self._headers,
            modern=modern,
            keep_alive=modern and parser.should_keep_alive(),
        )
        self._end_head()
        self._due = None
        self._discarded = 0
        self._waiting.append(exchange)
        if len(self._waiting) > MOST_AHEAD:
            self._pause()
        self._wake()

    def _end_head(self) -> None:
        self._url, self._headers = b"", {}
        self._in_body, self._overhead = True, 0

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        exchange = self._exchange
        if exchange is not None and not exchange.answered and exchange.feed(body) > HIGH_WATER:
            self._pause()

    def on_message_complete(self) -> None:
        self._in_body, self._overhead = False, 0
        exchange = self._exchange
        if exchange is not None:
            exchange.whole = True
            exchange.wake()

    def _wake(self) -> None:
        waiter = self._next
        if waiter is not None:
            self._next = None
            if not waiter.done():
                waiter.set_result(None)

    # Too late, too long, not HTTP at all

    def _expect_head(self) -> None:
        """However slowly it comes, the head of a request has as long as an idle connection is kept."""
        self._due = self._loop.time() + self._house.idle
        self._watch = self._loop.call_at(self._due, self._check_time)

    def _check_time(self) -> None:
        now = self._loop.time()
        due = now + self._house.idle if self._due is None else self._due
        if due <= now:
            self._close()
        else:
            self._watch = self._loop.call_at(due, self._check_time)

    def _refuse_head(self, surplus: int) -> None:
        part = "trailers of the request are" if self._in_body else "head of the request is"
        message = f"The {part} larger than {LONGEST_HEAD} bytes."
        if self._refuse(ClientError(message, status=431, code="head_too_large")):
            # A connection that is closed while more comes is reset, and the client might never see why.
            self._transport.write_eof()
            self._parting = LONGEST_HEAD
            self._loop.call_later(PARTING_SECONDS, self._close)
            self._pass_over(surplus)

    def _refuse(self, error: ClientError) -> bool:
        """False: there is no place for it, because answers are under way. Then the connection ends after them."""
        broken = self._exchange if self._in_body else None  # the request whose body it is
        if broken is not None and broken in self._waiting:
            self._waiting.remove(broken)
        before = [exchange for exchange in self._under_way() if exchange is not broken]
        if before:
            before[-1].keep_alive = False
            return False
        if broken is not None and broken.begun:
            self._close()
            return False
        if broken is not None:
            broken.gone = True  # its answer is the refusal, and nothing may follow that
        refusal = Exchange(self, "", "", {}, keep_alive=False)
        log.info("refused", turn=refusal.token, status=error.status, code=error.code)
        refusal.respond(error.status, JSON, encode_error(error))
        return True

    def _pass_over(self, size: int) -> None:
        self._parting = (self._parting or 0) - size
        if self._parting < 0:
            self._close()

    def _drop_stalled(self, unsent: int) -> None:
        log.info("client_stalled", unsent=unsent)
        for exchange in self._under_way():
            exchange.stalled = True
        self._transport.abort()


@lru_cache(maxsize=1024)
def _path(url: bytes) -> str:
    """Raises what the parser takes for an error of the client's."""
    return unquote((parse_url(url).path or b"").decode("ascii"))
