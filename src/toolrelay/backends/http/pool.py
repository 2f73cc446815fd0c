"""A lean HTTP/1.1 client: a pool of keep-alive connections to one origin, without a limit on how many are in use."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import cache

from msgspec import Struct

from toolrelay.backends.http.connection import Connection, CutError, ExchangeError, Response

CONNECT_SECONDS = 10.0
MAX_IDLE_SECONDS = 60.0
MAX_IDLE = 2048


class UnreachableError(ExchangeError):
    code = "upstream_unreachable"

    def __init__(self, reason: str, *, retryable: bool) -> None:
        super().__init__(f"cannot be reached: {reason}")
        self.retryable = retryable


class Origin(Struct, frozen=True, kw_only=True):
    secure: bool
    host: str
    port: int

    @property
    def address(self) -> str:
        """For people: always with the port."""
        return f"{self._bracketed}:{self.port}"

    @property
    def authority(self) -> str:
        """For the Host header: without the port that everyone assumes."""
        return self._bracketed if self.port == (443 if self.secure else 80) else self.address

    @property
    def _bracketed(self) -> str:
        return f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host


class Pool:
    """`silence` is how many seconds an upstream may keep us waiting; 0: for ever."""

    def __init__(self, origin: Origin, *, silence: float, context: ssl.SSLContext | None = None) -> None:
        self.origin = origin
        self.silence = silence
        self._context = context
        self._all: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # in the order of their last use: the latest is taken first
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(self, request: bytes) -> Response:
        """The response to a request that is whole, head and body.

        The upstream may close a kept connection while the request is on its way: then it is sent again on a new one.
        """
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable:
                try:
                    return await connection.exchange(request)
                except CutError as error:
                    if not error.retryable:
                        raise
                break
        connection = await self._connect()
        return await connection.exchange(request)

    async def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._all):
            connection.abort()
        await asyncio.sleep(0)  # the transports close in the loop's next round

    def keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        self._idle[connection] = None
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(MAX_IDLE_SECONDS, self._drop_idle)

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)

    def _drop_idle(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._idle):
            left = connection.idle_since + MAX_IDLE_SECONDS - now
            if left > 0:
                self._sweep = loop.call_later(left, self._drop_idle)
                return
            connection.abort()

    async def _connect(self) -> Connection:
        if self._closed:
            raise UnreachableError("the gateway is closing", retryable=False)
        connection = Connection(self)
        self._all.add(connection)
        context = (self._context or _default_context()) if self.origin.secure else None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    self.origin.host,
                    self.origin.port,
                    ssl=context,
                    server_hostname=self.origin.host if context else None,
                )
        except OSError as error:
            connection.abort()
            raise _unreachable(error) from None
        except BaseException:
            connection.abort()
            raise
        if not connection.usable:
            connection.abort()
            raise CutError(heard=False)
        return connection


@cache
def _default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unreachable(error: OSError) -> UnreachableError:
    match error:
        case ssl.SSLCertVerificationError():
            return UnreachableError(f"its certificate is not valid: {error.verify_message}", retryable=False)
        case ssl.SSLError():
            return UnreachableError(f"TLS failed: {error.reason or error.strerror}", retryable=True)
        case socket.gaierror():
            return UnreachableError(str(error.strerror), retryable=error.errno == socket.EAI_AGAIN)
        case TimeoutError() if error.errno is None:
            return UnreachableError(f"no connection within {CONNECT_SECONDS:g} seconds", retryable=True)
        case _ if error.errno:
            return UnreachableError(os.strerror(error.errno), retryable=True)
        case _:
            return UnreachableError(str(error), retryable=True)
