"""A bridge that runs an ASGI application on the exchanges of our HTTP server."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Scope

from toolrelay.web.http.exchange import BODILESS, ClientDisconnectedError, Exchange, header_line

# Before version 2.4 `send` does nothing after a disconnect, and Starlette cancels a streamed response when `receive` reports one.
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_DISCONNECT: Message = {"type": "http.disconnect"}


class Bridge:
    """Runs the application. The body of a request is read as a whole, up to `max_body_bytes`."""

    def __init__(self, application: ASGIApp, *, max_body_bytes: int) -> None:
        self._application = application
        self._max_body_bytes = max_body_bytes
        self._state: dict[str, Any] = {}
        self._lifespan: _Lifespan | None = None

    async def start(self) -> None:
        """Run the application's start-up. Raise RuntimeError if it fails."""
        self._lifespan = _Lifespan(self._application, self._state)
        await self._lifespan.start()

    async def stop(self) -> None:
        """Run the application's shutdown, if it was started."""
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.stop()

    async def handle(self, exchange: Exchange, path: str, root_path: str = "") -> None:
        """Answer a request. `path` starts with `root_path`, which the application's routes do not contain."""
        exchange.max_discard = self._max_body_bytes
        messages = _Messages(exchange, self._max_body_bytes)
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "1.1" if exchange.is_http_1_1 else "1.0",
            "method": exchange.method,
            "scheme": "https" if exchange.is_tls else "http",
            "path": path,
            "raw_path": exchange.raw_path,
            "query_string": exchange.query,
            "root_path": root_path,
            "headers": exchange.header_pairs,
            "client": exchange.client_address,
            "server": exchange.server_address,
            "state": self._state.copy(),
            "toolrelay.exchange": exchange,
        }
        try:
            await self._application(scope, messages.receive, messages.send)
        finally:
            messages.close()
        if not (exchange.response_complete or exchange.disconnected):
            raise RuntimeError("the application ended without a complete response")


class _Start(NamedTuple):
    status: int
    headers: bytes  # without content-length
    length: int | None


class _Messages:
    """`receive` and `send` of one request."""

    __slots__ = ("_exchange", "_flushing", "_is_body_read", "_max_body_bytes", "_remaining", "_start")

    def __init__(self, exchange: Exchange, max_body_bytes: int) -> None:
        self._exchange = exchange
        self._max_body_bytes = max_body_bytes
        self._is_body_read = False
        self._start: _Start | None = None  # until it is written
        self._flushing: asyncio.Handle | None = None
        self._remaining: int | None = None  # of the declared content-length

    async def receive(self) -> Message:
        exchange = self._exchange
        if exchange.disconnected or exchange.response_complete:
            return _DISCONNECT
        if not self._is_body_read:
            self._is_body_read = True
            try:
                return {"type": "http.request", "body": await exchange.body(self._max_body_bytes), "more_body": False}
            except ClientDisconnectedError:
                return _DISCONNECT
        await exchange.wait_for_disconnect()
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                self._receive_start(message)
            case "http.response.body":
                await self._write(message.get("body", b""), more=message.get("more_body", False))
            case kind:
                raise RuntimeError(f"the application sent {kind!r}, which the bridge does not know")

    def close(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def _receive_start(self, message: Message) -> None:
        """Keep the head, so that a whole response is one write. A head without a body is written soon: browsers wait for it."""
        if self._start is not None or self._exchange.response_started:
            raise RuntimeError("the application started a second response")
        self._start = _read_head(self._exchange, message["status"], message.get("headers", ()))
        self._flushing = asyncio.get_running_loop().call_soon(self._flush_head)

    def _flush_head(self) -> None:
        self._flushing = None
        self._begin()
        self._exchange.flush()

    def _begin(self) -> None:
        if self._start is None:
            return
        (status, headers, length), self._start = self._start, None
        if length is not None:
            headers += b"content-length: %d\r\n" % length
        self._remaining = length
        self._exchange.begin(status, headers, has_length=length is not None)

    async def _write(self, body: bytes, *, more: bool) -> None:
        exchange, start = self._exchange, self._start
        self.close()
        if start is None and not exchange.response_started:
            raise RuntimeError("the application sent a body before the start of its response")
        if start is not None and not more and exchange.method != "HEAD" and start.status not in BODILESS:
            _check_length(start.length or 0, len(body) if start.length is not None else 0)
            self._start = None
            exchange.respond(start.status, start.headers, body)
            return
        self._begin()
        if exchange.response_complete or exchange.disconnected:
            await asyncio.sleep(0)  # an application that only sends would never give way to its cancellation
            return
        if self._remaining is not None:
            self._remaining -= len(body)
            _check_length(0, min(self._remaining, 0) if more else self._remaining)
        waiting = exchange.write(body)
        if waiting is not None:
            await waiting
        if not more:
            exchange.end()


def _check_length(declared: int, actual: int) -> None:
    """Refuse a body that would be read as a part of the next response, or the other way round."""
    if declared != actual:
        raise RuntimeError("the body of a response does not have its content-length")


def _read_head(exchange: Exchange, status: int, headers: list[tuple[bytes, bytes]]) -> _Start:
    """Encode the headers. Those about the connection and the length are the server's to write."""
    lines: list[bytes] = []
    length: int | None = None
    for raw_name, value in headers:
        name = raw_name.lower()
        if name == b"content-length":
            length = int(value) if status != 204 else None
        elif name == b"connection":
            if value.lower() == b"close":
                exchange.keep_alive = False
        elif name != b"transfer-encoding":
            lines.append(header_line(name, value))
    return _Start(status, b"".join(lines), length)


class _Lifespan:
    """The task in which an application starts and shuts down. An application without lifespan events is accepted."""

    def __init__(self, application: ASGIApp, state: dict[str, Any]) -> None:
        self._application = application
        self._scope: Scope = {"type": "lifespan", "asgi": _ASGI, "state": state}
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._is_started = False
        self._failure = ""
        self._answered = asyncio.Event()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self._tell("lifespan.startup")
        self._is_started = True

    async def stop(self) -> None:
        if not self._task.done():
            await self._tell("lifespan.shutdown")
        await self._task

    async def _tell(self, event: str) -> None:
        self._answered.clear()
        self._events.put_nowait({"type": event})
        await self._answered.wait()
        if self._failure:
            await self._task
            raise RuntimeError(f"{event} failed: {self._failure}")

    async def _run(self) -> None:
        try:
            await self._application(self._scope, self._events.get, self._receive_answer)
        except Exception as error:  # noqa: BLE001 -- the specification lets an application refuse lifespan by any exception
            if self._is_started and not self._failure:
                self._failure = str(error) or type(error).__name__
        finally:
            self._answered.set()

    async def _receive_answer(self, message: Message) -> None:
        if message["type"].endswith(".failed"):
            self._failure = message.get("message") or message["type"]
        self._answered.set()
