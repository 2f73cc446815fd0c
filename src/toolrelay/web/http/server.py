"""Takes connections, and takes leave of them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from toolrelay.web.http.connection import Answer, Connection

IDLE_SECONDS = 75.0
SEND_TIMEOUT_SECONDS = 60.0
FAREWELL_SECONDS = 1.0
BACKLOG = 4096


class Server:
    """`idle` is how many seconds a connection without a request is kept, `send_timeout` how long a client may read nothing."""

    def __init__(self, answer: Answer, *, idle: float = IDLE_SECONDS, send_timeout: float = SEND_TIMEOUT_SECONDS) -> None:
        self.answer = answer
        self.idle = idle
        self.send_timeout = send_timeout
        self._connections: set[Connection] = set()
        self._gone: asyncio.Future[None] | None = None
        self._listening: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: Connection(self), sock=listener, backlog=BACKLOG)

    def greet(self, connection: Connection) -> None:
        self._connections.add(connection)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._gone is not None and not self._connections and not self._gone.done():
            self._gone.set_result(None)

    async def stop(self, seconds: float, hurry: asyncio.Event) -> None:
        """Answers under way have that many seconds, or until there is a hurry; then they are cancelled, and say so."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.retire()
        self._gone = asyncio.get_running_loop().create_future()
        if self._connections:
            hurried: asyncio.Future[Any] = asyncio.ensure_future(hurry.wait())
            ends: list[asyncio.Future[Any]] = [self._gone, hurried]
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
        if self._connections:
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.wait([self._gone], timeout=FAREWELL_SECONDS)
        for connection in list(self._connections):
            connection.abort()
