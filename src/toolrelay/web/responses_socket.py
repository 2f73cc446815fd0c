"""Responses over a WebSocket: one connection, many responses.

Each `response.create` is a request to the endpoint of POST /responses, with the headers of the handshake: the same checks,
limits, turns, log lines and frames. Messages with the same `stream_id` (a lane) are handled one after the other, lanes side by
side.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.errors import ClientError, ToolrelayError
from toolrelay.runtime.telemetry import Metrics
from toolrelay.web.access import Access
from toolrelay.web.endpoints import Endpoint
from toolrelay.web.http.exchange import Exchange, wake
from toolrelay.web.router import internal_error, turn_token_of
from toolrelay.wires.base import Envelope
from toolrelay.wires.responses.websocket import (
    STEER,
    ClientMessage,
    KeptResponse,
    MessageEncoder,
    decode_message,
    encode_body,
    encode_error_message,
    encode_failure,
    encode_steer_failure,
    keep,
)

if TYPE_CHECKING:
    from toolrelay.web.http.websocket import WebSocket

IDLE_SECONDS = 3600.0  # without a message or a response
MAX_RESPONSES = 16  # of one connection, running and waiting
MAX_LANES = 32

_NORMAL, _GOING_AWAY = 1000, 1001
# Of a handshake: what is about the connection, or would mean that all its requests are one.
_NOT_PASSED = frozenset({b"idempotency-key", b"upgrade", b"connection", b"content-length", b"expect"})


class SocketEndpoint(Struct, frozen=True, kw_only=True):
    """Accepts handshakes. `new_request_id` names each response."""

    endpoint: Endpoint
    access: Access
    metrics: Metrics
    new_request_id: Callable[[], str]

    async def handle(self, exchange: Exchange) -> None:
        try:
            await self.access.identify(exchange)
        except ToolrelayError:
            await self.access.count_refused(exchange)
            raise
        settings = self.endpoint.settings
        started = time.monotonic()
        socket = exchange.open_websocket(max_message_bytes=settings.max_body_bytes, ping_seconds=settings.keepalive_seconds)
        self.metrics.websockets += 1
        session = _Session(self, socket, exchange)
        try:
            await session.run()
        finally:
            self.metrics.websockets -= 1
            seconds = round(time.monotonic() - started, 3)
            log.info(
                "websocket", connection=exchange.request_id, responses=session.count, seconds=seconds, code=socket.close_code
            )


class _SocketExchange(Exchange, kw_only=True):
    """A request that came as a message, and whose response goes out as messages."""

    socket: WebSocket
    lane: str | None = None

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        if self.response_started:
            return
        self.response_started = self.response_complete = True
        if not self.disconnected:
            shown = _header_values(headers + self.response_headers)
            self.socket.send(encode_error_message(status, body, self.lane, shown))

    def begin(self, status: int, headers: bytes, *, has_length: bool = False) -> None:  # noqa: ARG002 -- messages have no heads
        self.response_started = True

    def write(self, data: bytes) -> Awaitable[None] | None:
        return None if self.disconnected or self.response_complete or not data else self.socket.send_frames(data)

    def end(self) -> None:
        self.response_complete = True


class _Lane:
    """Messages with the same stream_id, in order. `kept` is the latest response, if it is not stored."""

    __slots__ = ("kept", "messages", "running", "task", "waiter")

    def __init__(self) -> None:
        self.messages: deque[ClientMessage] = deque()
        self.running: _SocketExchange | None = None
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.kept: KeptResponse | None = None


class _Session:
    """One connection."""

    def __init__(self, owner: SocketEndpoint, socket: WebSocket, handshake: Exchange) -> None:
        self._owner = owner
        self._socket = socket
        self._handshake = handshake
        self._headers = {name: value for name, value in handshake.headers.items() if name not in _NOT_PASSED}
        self._lanes: dict[str | None, _Lane] = {}
        self._loop = asyncio.get_running_loop()
        self._pending = 0
        self._steers = 0
        self._is_ending = False
        self.count = 0

    async def run(self) -> None:
        code, reason = _GOING_AWAY, "The gateway is shutting down."
        self._socket.listen(self._take)
        try:
            if await self._wait_for_end():
                code, reason = _NORMAL, "Nothing was asked for an hour."
            elif not self._socket.is_open:
                self._disconnect()
            await self._end_lanes()
        except asyncio.CancelledError:  # the shutdown cannot wait any longer
            for lane in self._lanes.values():
                lane.messages.clear()
                if lane.task is not None:
                    lane.task.cancel()
            await self._end_lanes()
        await self._socket.close(code, reason)

    async def _wait_for_end(self) -> bool:
        """Return whether the connection is still open: then it was idle for too long."""
        count = -1
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._socket.wait_for_end()
            except TimeoutError:
                if not self._pending and count == self.count:
                    return True
                count = self.count
            else:
                return False

    async def _end_lanes(self) -> None:
        """Let each lane finish the response that runs."""
        self._is_ending = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for lane in self._lanes.values():
            wake(lane.waiter)
        if tasks:
            closing = self._loop.create_task(self._disconnect_when_closed())
            try:
                await asyncio.wait(tasks)
            finally:
                closing.cancel()

    async def _disconnect_when_closed(self) -> None:
        await self._socket.wait_for_close()
        self._disconnect()

    def _disconnect(self) -> None:
        """Cancel what runs: the client has gone."""
        for lane in self._lanes.values():
            lane.messages.clear()
            if lane.running is not None and not lane.running.disconnected:
                lane.running.stalled = self._handshake.stalled
                lane.running.disconnect()

    # Messages

    def _take(self, data: bytes) -> None:
        lane_name = None
        try:
            message = decode_message(data)
            lane_name = message.lane
            if message.type == STEER:
                self._socket.send(encode_steer_failure(message, self._steers))
                self._steers += 1
                return
            lane = self._find_lane(message.lane)
        except ToolrelayError as error:
            log.info("refused", connection=self._handshake.request_id, status=error.status, code=error.code)
            self._socket.send(encode_failure(error, lane_name))
            return
        self._pending += 1
        lane.messages.append(message)
        if lane.task is None:
            lane.task = self._loop.create_task(self._run_lane(lane))
        else:
            wake(lane.waiter)

    def _find_lane(self, name: str | None) -> _Lane:
        if self._pending >= MAX_RESPONSES:
            message = (
                f"{MAX_RESPONSES} responses are running or waiting on this connection, which is the limit. Wait for one to end."
            )
            raise ClientError(message, status=429, type="rate_limit_error", code="websocket_response_limit_reached")
        lane = self._lanes.get(name)
        if lane is None:
            if name is not None and len(self._lanes) - (None in self._lanes) >= MAX_LANES:
                message = (
                    f"This connection has {MAX_LANES} values of stream_id, which is the limit. Use one of them, or connect anew."
                )
                raise ClientError(message, param="stream_id", code="websocket_stream_limit_reached")
            lane = self._lanes[name] = _Lane()
        return lane

    async def _run_lane(self, lane: _Lane) -> None:
        while True:
            while lane.messages:
                await self._respond(lane, lane.messages.popleft())
                self._pending -= 1
            if self._is_ending:
                return
            lane.waiter = self._loop.create_future()
            await lane.waiter

    async def _respond(self, lane: _Lane, message: ClientMessage) -> None:
        self.count += 1
        kept = self._find_kept(message.previous)
        continued = None if kept is None else message.previous
        encoder: MessageEncoder | None = None

        def make_encoder(envelope: Envelope) -> MessageEncoder:
            nonlocal encoder
            encoder = MessageEncoder(envelope, self._socket.frame_head, message.lane, continued)
            return encoder

        exchange = lane.running = _SocketExchange(
            self._socket,
            "POST",
            self._handshake.path,
            self._headers,
            self._owner.new_request_id(),
            socket=self._socket,
            lane=message.lane,
        )
        endpoint = self._owner.endpoint
        endpoint = replace(endpoint, wire=replace(endpoint.wire, encoder=make_encoder))
        try:
            exchange.feed(encode_body(message, kept))
            exchange.feed_end()
            await (endpoint.handle(exchange) if message.generates else endpoint.prepare(exchange))
        except ToolrelayError as error:
            endpoint.refuse(exchange, error)
        except Exception:  # noqa: BLE001 -- the client gets a response in any case
            log.exception("internal_error", turn=turn_token_of(exchange), path=exchange.path)
            endpoint.refuse(exchange, internal_error())
        finally:
            lane.running = None
        if encoder is not None and encoder.final_output is not None:
            lane.kept = keep(message, kept, encoder)
            self._forget_surplus(lane)

    # Responses that are not stored

    def _find_kept(self, response_id: str | None) -> KeptResponse | None:
        if response_id is None:
            return None
        found = [lane.kept for lane in self._lanes.values() if lane.kept is not None and lane.kept.id == response_id]
        return found[0] if found else None

    def _forget_surplus(self, latest: _Lane) -> None:
        """Keep no more than the largest request may have, so that a connection's memory is bounded. The latest stays longest."""
        limit = self._owner.endpoint.settings.max_body_bytes
        size = 0
        for lane in [latest, *[lane for lane in self._lanes.values() if lane is not latest]]:
            size += 0 if lane.kept is None else len(lane.kept.items)
            if size > limit:
                lane.kept = None


def _header_values(lines: bytes) -> Mapping[str, str]:
    """Return the headers that a client may want of an error: limits, and when to try again."""
    pairs = [line.partition(": ") for line in lines.decode("latin-1").split("\r\n") if line]
    return {
        name: value for name, _, value in pairs if name.startswith("x-ratelimit-") or name in ("retry-after", "x-should-retry")
    }
