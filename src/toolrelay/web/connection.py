"""A client's connection: uvicorn's, with its gaps closed, and two shorter ways.

- It takes an offer to change the protocol, such as Java's client makes with its first request, for the end of that request, and
  loses its body. Here the offer is passed over.
- It waits for ever for a request that does not come, or comes drop by drop.
- It reads a head of any length, and any amount of a body that nobody wants any more.
- It marks chunks for clients of HTTP/1.0, which know none.
- When the next request is there already and the connection is lost, it tells that request, not the one that is being answered.

A response's head leaves with the first bytes of its body, in one write. Two extensions of the scope save more:
scope["toolrelay.piece"] writes to an open response without the detour over ASGI's messages, and scope["toolrelay.leaving"] is a
set of functions to be called when the client goes, so that no task need wait for that. The other way round, the application may
put into scope["toolrelay.discard"] how many bytes of the body are read and discarded once the request has been answered.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from toolrelay.core.identity import token
from toolrelay.errors import ClientError
from toolrelay.web.asgi import Message, Scope
from toolrelay.wires._errors import encode_error

LONGEST_HEAD = 65536
LEAST_DISCARDED = 65536  # about as much as is on its way before a client can know of the refusal
USUALLY_DISCARDED = 16 * 1024 * 1024  # where the application does not say
PARTING_SECONDS = 2.0

_Send: TypeAlias = Callable[[Any], Awaitable[None]]

_OFFER = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_PASSED_OVER = b"\r\nx-offer"  # as long as what it stands for


class Connection(HttpToolsProtocol):
    _until: float | None = None
    _overtaken: tuple[RequestResponseCycle, ...] = ()
    _head_size: int | None = 0  # of the head that is being read; None: it is a body
    _discarded = 0
    _parting: int | None = None  # how much is still read, and passed over, before a refused connection is closed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        super().connection_made(transport)
        self._leaving: set[Callable[[], None]] = set()
        self._corked = _Corked(transport)
        self.transport = self._corked  # type: ignore[assignment]  # as much of a transport as uvicorn uses
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._between_requests and b"pgrade" in data:
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(_PASSED_OVER, head) + end + body
        if self._parting is not None:
            self._pass_over(len(data))
            return
        while data and not self.transport.is_closing():
            data = self._read_some(data)
        if self.timeout_keep_alive_task is None and self._between_requests and not self.transport.is_closing():
            self._expect_head()

    def _read_some(self, data: bytes) -> bytes:
        """Returns what is left to read."""
        if self._head_size is None:
            self._read_body(data)
            return b""
        room = LONGEST_HEAD - self._head_size
        if room == 0:
            self._refuse_head(len(data))
            return b""
        piece = data[:room]
        self._head_size += len(piece)
        super().data_received(piece)
        return data[room:]

    def _read_body(self, data: bytes) -> None:
        if self.cycle.response_complete:
            self._discarded += len(data)
        super().data_received(data)
        if self._head_size is None and self._discarded > LEAST_DISCARDED:
            scope: Scope = self.cycle.scope  # type: ignore[assignment]  # with an extension of ours
            if self._discarded > scope.get("toolrelay.discard", USUALLY_DISCARDED):
                self.transport.close()

    def on_headers_complete(self) -> None:
        self._until = None
        self._head_size = None
        self._discarded = 0
        if not self._between_requests:
            self._overtaken = (*(cycle for cycle in self._overtaken if not cycle.response_complete), self.cycle)
        scope: Scope = self.scope  # type: ignore[assignment]  # with two extensions of ours
        scope["toolrelay.leaving"] = self._leaving
        super().on_headers_complete()
        if scope["http_version"] < "1.1":
            self.cycle.send = partial(_send_without_chunks, self.cycle, self.cycle.send)  # type: ignore[method-assign]  # uvicorn makes the cycle
            scope["toolrelay.piece"] = partial(self._write_bare_piece, self.cycle)
        else:
            scope["toolrelay.piece"] = partial(self._write_piece, self.cycle)

    def on_message_complete(self) -> None:
        self._head_size = 0
        super().on_message_complete()

    def _write_piece(self, cycle: RequestResponseCycle, data: bytes) -> Awaitable[None] | None:
        if cycle.disconnected:
            return None
        self._corked.write(b"%x\r\n%b\r\n" % (len(data), data))
        return self.flow.drain() if self.flow.write_paused else None

    def _write_bare_piece(self, cycle: RequestResponseCycle, data: bytes) -> Awaitable[None] | None:
        if cycle.disconnected:
            return None
        self._corked.write(data)
        return self.flow.drain() if self.flow.write_paused else None

    def on_response_complete(self) -> None:
        self._corked.flush()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # also after a reset: the timer would hold on to all of this
        for cycle in self._overtaken:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        for leave in tuple(self._leaving):
            leave()

    def send_400_response(self, msg: str) -> None:
        if self._head_size is not None and not self._between_requests:
            self.cycle.keep_alive = False  # as below
            return
        self._write_refusal(ClientError(msg, code="invalid_http"))
        self.transport.close()

    def _refuse_head(self, surplus: int) -> None:
        if not self._between_requests:
            self.cycle.keep_alive = False  # the answer under way has no place for a refusal: the connection ends after it
            return
        message = f"The head of the request is larger than {LONGEST_HEAD} bytes."
        self._write_refusal(ClientError(message, status=431, code="head_too_large"))
        # A connection that is closed while more comes is reset, and the client might never see why.
        self._parting = LONGEST_HEAD
        self._corked.write_eof()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(PARTING_SECONDS, self.timeout_keep_alive_handler)
        self._pass_over(surplus)

    def _write_refusal(self, error: ClientError) -> None:
        body = encode_error(error)
        head = (
            b"%bcontent-type: application/json\r\nx-request-id: req_%b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        ) % (STATUS_LINE[error.status], token(secrets.token_bytes(10)).encode(), len(body))
        self._corked.write(head)
        self._corked.write(body)

    def _pass_over(self, size: int) -> None:
        self._parting = (self._parting or 0) - size
        if self._parting < 0:
            self.transport.close()

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None before the first

    def _expect_head(self) -> None:
        """However slowly it comes, the head of a request has as long as an idle connection is kept."""
        if self._until is None:
            self._until = self.loop.time() + self.timeout_keep_alive
        self.timeout_keep_alive_task = self.loop.call_at(self._until, self.timeout_keep_alive_handler)


async def _send_without_chunks(cycle: RequestResponseCycle, send: _Send, message: Message) -> None:
    """For HTTP/1.0, where a body without a length ends with the connection. Uvicorn takes a length that is set anew each time."""
    if message["type"] == "http.response.start":
        if not any(name == b"content-length" for name, _ in message.get("headers", ())):
            cycle.chunked_encoding = False
    elif cycle.chunked_encoding is False and cycle.expected_content_length == 0:
        cycle.expected_content_length = len(message.get("body", b""))
    await send(message)


class _Corked:
    """A transport that keeps a response's head until there is something to go with it."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- all that a transport has
        return getattr(self._transport, name)
