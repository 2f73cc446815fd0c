"""A pool for a scripted upstream, and what tests do with it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from tests.upstream import Upstream, stream_head
from toolrelay.backends.http.connection import Connection, Response
from toolrelay.backends.http.pool import Origin, Pool

T = TypeVar("T")

ASK = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
MEBIBYTE = 1024 * 1024


class Run(Protocol):
    """Runs a coroutine in an event loop of its own."""

    def __call__(self, main: Coroutine[Any, Any, T]) -> T: ...


class WatchedPool(Pool):
    """Tells when it keeps or loses a connection."""

    kept: asyncio.Future[None] | None = None
    lost: asyncio.Future[None] | None = None

    def keep(self, connection: Connection) -> None:
        super().keep(connection)
        if self.kept is not None:
            self.kept.set_result(None)

    def forget(self, connection: Connection) -> None:
        super().forget(connection)
        if self.lost is not None and not self.lost.done():
            self.lost.set_result(None)


@asynccontextmanager
async def pool_for(upstream: Upstream, silence: float = 30, context: ssl.SSLContext | None = None) -> AsyncIterator[WatchedPool]:
    pool = WatchedPool(Origin(secure=context is not None, host="127.0.0.1", port=upstream.port), silence=silence, context=context)
    try:
        yield pool
    finally:
        await pool.close()
        assert not pool._all
        assert not pool._idle


async def whole(pool: Pool) -> bytes:
    response = await pool.send(ASK)
    try:
        return await response.read_all(64 * MEBIBYTE)
    finally:
        response.release()


async def begun(pool: Pool) -> tuple[Connection, Response]:
    """A streamed response of which the head has come. The test plays the rest with `data_received`."""
    connection = await pool._connect()
    sending = asyncio.create_task(connection.exchange(ASK))
    await asyncio.sleep(0)
    connection.data_received(stream_head())
    return connection, await sending
