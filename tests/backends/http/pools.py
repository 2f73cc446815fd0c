"""A pool for a scripted upstream, and requests through it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from tests.upstream import Upstream, stream_head
from toolrelay.backends.http.connection import UpstreamConnection, UpstreamResponse
from toolrelay.backends.http.origin import Origin
from toolrelay.backends.http.pool import ConnectionPool

T = TypeVar("T")

ASK = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
MEBIBYTE = 1024 * 1024


class Run(Protocol):
    """Runs a coroutine in a new event loop."""

    def __call__(self, main: Coroutine[Any, Any, T]) -> T: ...


class WatchedPool(ConnectionPool):
    """Resolves futures when a connection becomes idle or is lost."""

    kept: asyncio.Future[None] | None = None
    lost: asyncio.Future[None] | None = None

    def add_idle(self, connection: UpstreamConnection) -> None:
        super().add_idle(connection)
        if self.kept is not None:
            self.kept.set_result(None)

    def remove(self, connection: UpstreamConnection) -> None:
        super().remove(connection)
        if self.lost is not None and not self.lost.done():
            self.lost.set_result(None)


@asynccontextmanager
async def pool_for(
    upstream: Upstream, read_timeout: float = 30, context: ssl.SSLContext | None = None
) -> AsyncIterator[WatchedPool]:
    pool = WatchedPool(
        Origin(secure=context is not None, host="127.0.0.1", port=upstream.port), read_timeout=read_timeout, context=context
    )
    try:
        yield pool
    finally:
        await pool.close()
        assert not pool._all
        assert not pool._idle


async def fetch(pool: ConnectionPool) -> bytes:
    response = await pool.send(ASK)
    try:
        return await response.read_all(64 * MEBIBYTE)
    finally:
        response.release()


async def start_response(pool: ConnectionPool) -> tuple[UpstreamConnection, UpstreamResponse]:
    """Return a streamed response whose head has arrived. The test plays the rest with `data_received`."""
    connection = await pool._connect()
    sending = asyncio.create_task(connection.send(ASK))
    await asyncio.sleep(0)
    connection.data_received(stream_head())
    return connection, await sending
