"""A pool of keep-alive HTTP/1.1 connections to one origin, without a limit on how many are in use."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache

from toolrelay.backends.http.connection import UpstreamConnection, UpstreamResponse
from toolrelay.backends.http.errors import ConnectError, ConnectionCutError
from toolrelay.backends.http.origin import Origin
from toolrelay.backends.http.proxy import Proxy, open_tunnel

CONNECT_SECONDS = 10.0
MAX_IDLE_SECONDS = 60.0
MAX_IDLE = 2048


class ConnectionPool:
    """`read_timeout`: seconds that an upstream may send nothing while it is waited for; 0 disables it."""

    def __init__(
        self, origin: Origin, *, read_timeout: float, context: ssl.SSLContext | None = None, proxy: Proxy | None = None
    ) -> None:
        self.origin = origin
        self._proxy = proxy
        self.read_timeout = read_timeout
        self._context = context
        self._all: set[UpstreamConnection] = set()
        self._idle: dict[UpstreamConnection, None] = {}  # by last use: the most recent is reused first
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(self, request: bytes) -> UpstreamResponse:
        """Send a request, head and body, and return its response once the head has arrived.

        The upstream may close an idle connection while the request is on its way: then a new connection is tried once.
        """
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_usable:
                try:
                    return await connection.send(request)
                except ConnectionCutError as error:
                    if error.mid_response:
                        raise
                break
        connection = await self._connect()
        return await connection.send(request)

    async def close(self) -> None:
        self._closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for connection in list(self._all):
            connection.abort()
        await asyncio.sleep(0)  # the transports close in the loop's next iteration

    def add_idle(self, connection: UpstreamConnection) -> None:
        if self._closed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        self._idle[connection] = None
        if self._expiry_timer is None:
            self._expiry_timer = asyncio.get_running_loop().call_later(MAX_IDLE_SECONDS, self._close_expired)

    def remove(self, connection: UpstreamConnection) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)

    def _close_expired(self) -> None:
        self._expiry_timer = None
        loop = asyncio.get_running_loop()
        for connection in list(self._idle):
            left = connection.idle_since + MAX_IDLE_SECONDS - loop.time()
            if left > 0:
                self._expiry_timer = loop.call_later(left, self._close_expired)
                return
            connection.abort()

    async def _connect(self) -> UpstreamConnection:
        if self._closed:
            raise ConnectError("the gateway is closing", retryable=False)
        connection = UpstreamConnection(self)
        self._all.add(connection)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._open(connection)
        except OSError as error:
            connection.abort()
            failed = ConnectError.from_os_error(error, timeout=CONNECT_SECONDS)
            if self._proxy is not None:
                failed = ConnectError(f"{failed.reason} (through the proxy at {self._proxy.address})", retryable=failed.retryable)
            raise failed from None
        except BaseException:
            connection.abort()
            raise
        if not connection.is_usable:
            connection.abort()
            raise ConnectionCutError(mid_response=False, was_sent=False)
        return connection

    async def _open(self, connection: UpstreamConnection) -> None:
        origin, proxy, loop = self.origin, self._proxy, asyncio.get_running_loop()
        context = (self._context or _default_context()) if origin.secure else None
        if proxy is None:
            await loop.create_connection(
                lambda: connection, origin.host, origin.port, ssl=context, server_hostname=origin.host if context else None
            )
        elif context is None:
            await loop.create_connection(lambda: connection, proxy.host, proxy.port)
        else:
            tunnel = await open_tunnel(proxy, origin)
            try:
                transport = await loop.start_tls(tunnel, connection, context, server_hostname=origin.host)
            except BaseException:
                tunnel.abort()
                raise
            if transport is None:
                raise ConnectionResetError
            connection.connection_made(transport)


@cache
def _default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
