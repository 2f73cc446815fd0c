"""A client's connection: uvicorn's, with three of its gaps closed, and two shorter ways.

- It takes an offer to change the protocol, such as Java's client makes with its first request, for the end of that request, and
  loses its body. Here the offer is passed over.
- It waits for ever for a request that does not come, or comes drop by drop.
- When the next request is there already and the connection is lost, it tells that request, not the one that is being answered.

A response's head leaves with the first bytes of its body, in one write. Two extensions of the scope save more:
scope["toolrelay.piece"] writes to an open response without the detour over ASGI's messages, and scope["toolrelay.leaving"] is a
set of functions to be called when the client goes, so that no task need wait for that.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolrelay.web.asgi import Scope

_OFFER = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_PASSED_OVER = b"\r\nx-offer"  # as long as what it stands for


class Connection(HttpToolsProtocol):
    _until: float | None = None
    _overtaken: tuple[RequestResponseCycle, ...] = ()

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
        super().data_received(data)
        if self.timeout_keep_alive_task is None and self._between_requests and not self.transport.is_closing():
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._until = None
        if not self._between_requests:
            self._overtaken = (*(cycle for cycle in self._overtaken if not cycle.response_complete), self.cycle)
        scope: Scope = self.scope  # type: ignore[assignment]  # with two extensions of ours
        scope["toolrelay.leaving"] = self._leaving
        super().on_headers_complete()
        scope["toolrelay.piece"] = partial(self._write_piece, self.cycle)

    def _write_piece(self, cycle: RequestResponseCycle, data: bytes) -> Awaitable[None] | None:
        if cycle.disconnected:
            return None
        self._corked.write(b"%x\r\n%b\r\n" % (len(data), data))
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

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None before the first

    def _expect_head(self) -> None:
        """However slowly it comes, the head of a request has as long as an idle connection is kept."""
        if self._until is None:
            self._until = self.loop.time() + self.timeout_keep_alive
        self.timeout_keep_alive_task = self.loop.call_at(self._until, self.timeout_keep_alive_handler)


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

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- all that a transport has
        return getattr(self._transport, name)
