"""Messages over an upgraded connection: the protocol of `websockets`, without I/O of its own, on a client connection.

No extensions are negotiated: compression would cost more than the bytes that it saves, and a small frame could unpack to a huge
message. Text frames are written here, because the library's own writer costs three times as much per event of a stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from toolrelay.errors import ClientError
from toolrelay.web.http.exchange import Address, Exchange, ResponseChannel, header_line, wake

CLOSE_SECONDS = 2.0  # for the client's part of the closing handshake

_SHORT, _MEDIUM = 126, 65536  # lengths from which a frame's head is longer
_FIN_TEXT = 0x80 | Opcode.TEXT


class SocketTransport(ResponseChannel, Protocol):
    """The part of a connection that a WebSocket uses."""

    def pause_reading(self) -> None: ...

    def half_close(self) -> None:
        """Tell the client that nothing more is sent, if the transport can."""
        ...


def handshake_headers(exchange: Exchange) -> bytes:
    """Return the header lines of the response that accepts an upgrade, or raise the error for an invalid handshake."""
    wanted = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in exchange.header_pairs]
    response = ServerProtocol().accept(Request("/", Headers(wanted)))
    if response.status_code != 101:
        problem = (response.body or b"").decode().partition("\n")[0]
        raise ClientError(problem, status=response.status_code, code="invalid_handshake")
    return b"".join([header_line(name.lower().encode(), value.encode()) for name, value in response.headers.raw_items()])


def _make_head(size: int) -> bytes:
    if size < _SHORT:
        return bytes([_FIN_TEXT, size])
    if size < _MEDIUM:
        return b"%c\x7e%b" % (_FIN_TEXT, size.to_bytes(2))
    return b"%c\x7f%b" % (_FIN_TEXT, size.to_bytes(8))


class _Heads(dict[int, bytes]):
    """The heads of small messages, made in advance; others are made when they are asked for."""

    def __missing__(self, size: int) -> bytes:
        return _make_head(size)


# Returns what precedes a text message of this size, in one frame. A function in Python would cost twice as much.
frame_head: Callable[[int], bytes] = _Heads({size: _make_head(size) for size in range(1024)}).__getitem__


def _ignore(_message: bytes) -> None:
    """Take no notice of a message that comes too late."""


class WebSocket:
    """An open WebSocket. It is also the channel of what is answered over it.

    A message larger than `max_message_bytes` closes it with 1009, a binary one with 1003. While nothing comes from the client, it
    is sent a ping every `ping_seconds` (0: never), which keeps proxies from closing the connection.
    """

    frame_head = staticmethod(frame_head)

    def __init__(self, transport: SocketTransport, *, max_message_bytes: int, ping_seconds: float) -> None:
        self._transport = transport
        self._protocol = ServerProtocol(state=OPEN, max_size=max_message_bytes)
        self._early: deque[bytes] = deque()  # messages that arrived before there was a listener
        self._on_message: Callable[[bytes], None] = self._early.append
        self._parts = bytearray()  # of a fragmented message: as objects, small ones would take twenty times as much
        self._waiter: asyncio.Future[None] | None = None
        self.is_open = True
        self._is_lost = False
        self._is_heard = False
        self._ping_seconds = ping_seconds
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(ping_seconds, self._tick) if ping_seconds > 0 else None
        self.is_leaving = False  # the server shuts down

    # Messages

    @property
    def close_code(self) -> int | None:
        """The code of the first close frame, from whichever side; 1006 if the connection was lost without one."""
        protocol = self._protocol
        if protocol.close_rcvd is not None and (protocol.close_rcvd_then_sent or protocol.close_sent is None):
            return protocol.close_rcvd.code
        if protocol.close_sent is not None:
            return protocol.close_sent.code
        return int(CloseCode.ABNORMAL_CLOSURE) if self._is_lost else None

    def listen(self, on_message: Callable[[bytes], None]) -> None:
        """Call the function with each message, also with those that have arrived."""
        self._on_message = on_message
        while self._early and self.is_open:
            on_message(self._early.popleft())

    async def wait_for_end(self) -> None:
        """Wait until no more messages come: the client has left, or the server shuts down."""
        while self.is_open and not self.is_leaving:
            self._waiter = self._loop.create_future()
            await self._waiter

    async def wait_for_close(self) -> None:
        """Wait until the client has left, also while the server shuts down."""
        while self.is_open:
            self._waiter = self._loop.create_future()
            await self._waiter

    def send(self, message: bytes) -> Awaitable[None] | None:
        """Send a text message. Return an awaitable if the client reads too slowly."""
        return self.send_frames(frame_head(len(message)) + message)

    def send_frames(self, frames: bytes) -> Awaitable[None] | None:
        """Send whole text frames in one write. Return an awaitable if the client reads too slowly."""
        if not self.is_open:
            return None
        self._transport.write(frames)
        return self.drain() if self._transport.write_paused else None

    async def close(self, code: int, reason: str = "") -> None:
        """Send a close frame, unless one was sent, and wait briefly for the client's. The connection ends after this."""
        self._stop_pings()
        if self.is_open:
            self._protocol.send_close(code, reason)
            self._flush()
            self.is_open = False
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                # Closing while more arrives would reset the connection, and the client might never see the close frame.
                while not self._is_lost and self._protocol.close_rcvd is None:
                    self._waiter = self._loop.create_future()
                    await self._waiter
        except TimeoutError:
            pass

    # For the connection

    def feed(self, data: bytes) -> None:
        """Take what came from the client."""
        self._is_heard = True
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if self.is_open and isinstance(event, Frame):
                self._take(event.opcode, bytes(event.data), is_last=event.fin)
        self._flush()
        self.is_open = protocol.state is OPEN
        if self._transport.write_paused:  # a client that does not read is not heard: each message may have an answer
            self._transport.pause_reading()
        if not self.is_open:
            wake(self._waiter)

    def _take(self, opcode: Opcode, data: bytes, *, is_last: bool) -> None:
        if opcode is Opcode.BINARY:
            if self._protocol.state is OPEN:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "messages are text")
        elif opcode in (Opcode.TEXT, Opcode.CONT):
            if self._parts or not is_last:
                self._parts += data
            if is_last:
                message = bytes(self._parts) if self._parts else data
                self._parts.clear()
                self._on_message(message)

    def leave(self) -> None:
        """Take no more messages: the server shuts down."""
        self.is_leaving = True
        self._on_message = _ignore
        wake(self._waiter)

    def lose(self) -> None:
        """Take note that the connection is lost."""
        self._is_lost = True
        self.is_open = False
        self._on_message = _ignore  # which ends a cycle of references
        self._stop_pings()
        wake(self._waiter)

    def _flush(self) -> None:
        """Write the library's frames: pongs, and those of the closing handshake."""
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._protocol.close_rcvd is None:
                self._transport.half_close()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._ping_seconds, self._tick)
        if self.is_open and not self._is_heard and not self._transport.write_paused:
            self._protocol.send_ping(b"")
            self._flush()
        self._is_heard = False

    def _stop_pings(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ResponseChannel

    @property
    def write_paused(self) -> bool:
        return self._transport.write_paused

    @property
    def client_address(self) -> Address | None:
        return self._transport.client_address

    @property
    def server_address(self) -> Address | None:
        return self._transport.server_address

    @property
    def is_tls(self) -> bool:
        return self._transport.is_tls

    def write(self, data: bytes) -> None:
        self.send(data)

    def drain(self) -> Awaitable[None]:
        """See ResponseChannel. Several answers may wait: that one of them ends must not end the wait of the others."""
        return asyncio.shield(self._transport.drain())

    def resume_reading(self) -> None:
        """Do nothing: an exchange does not pause the reading of messages."""
