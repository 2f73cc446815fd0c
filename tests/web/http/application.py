"""An application for tests of the HTTP server: one handler, and plain errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeAlias

from toolrelay import log
from toolrelay.errors import ClientError
from toolrelay.web.http.exchange import Exchange

Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]


class SingleHandler:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._numbers = count()

    def new_request_id(self) -> str:
        return f"test_{next(self._numbers)}"

    async def handle(self, exchange: Exchange) -> None:
        await self._handler(exchange)

    def refuse(self, exchange: Exchange, error: ClientError) -> None:
        log.info("refused", status=error.status)
        exchange.respond(error.status, b"", error.message.encode())
