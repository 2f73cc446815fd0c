"""Listening, open connections and graceful shutdown."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Protocol

from toolrelay.errors import ClientError
from toolrelay.web.http.connection import HttpConnection
from toolrelay.web.http.exchange import Exchange, wake

IDLE_TIMEOUT_SECONDS = 75.0
SEND_TIMEOUT_SECONDS = 60.0
HANDSHAKE_SECONDS = 10.0  # of TLS
CANCEL_SECONDS = 1.0  # how long cancelled handlers may take to respond
BACKLOG = 4096


class Application(Protocol):
    def new_request_id(self) -> str: ...

    async def handle(self, exchange: Exchange) -> None: ...

    def refuse(self, exchange: Exchange, error: ClientError) -> None:
        """Respond with the error to bytes that are no valid request."""
        ...


class Server:
    """An HTTP server. `idle_timeout` and `send_timeout` are in seconds:

    - A connection without a request is closed after `idle_timeout`.
    - A client that reads nothing of what was written is disconnected after `send_timeout`.
    """

    def __init__(
        self,
        application: Application,
        *,
        idle_timeout: float = IDLE_TIMEOUT_SECONDS,
        send_timeout: float = SEND_TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.application = application
        self.idle_timeout = idle_timeout
        self.send_timeout = send_timeout
        self._tls = tls
        self._connections: set[HttpConnection] = set()
        self._all_closed: asyncio.Future[None] | None = None
        self._listening: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: HttpConnection(self),
            sock=listener,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
        )

    def register(self, connection: HttpConnection) -> None:
        self._connections.add(connection)

    def unregister(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            wake(self._all_closed)

    async def stop(self, seconds: float, force_requested: asyncio.Event) -> None:
        """Wait for running requests until `seconds` have passed or `force_requested` is set, then cancel them."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.close_after_requests()
        self._all_closed = asyncio.get_running_loop().create_future()
        if self._connections:
            forced: asyncio.Future[Any] = asyncio.ensure_future(force_requested.wait())
            ends: list[asyncio.Future[Any]] = [self._all_closed, forced]
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            forced.cancel()
        if self._connections:
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.wait([self._all_closed], timeout=CANCEL_SECONDS)
        for connection in list(self._connections):
            connection.abort()
