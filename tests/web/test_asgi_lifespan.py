"""Start-up and shutdown of an ASGI application behind the bridge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.raw_client import encode_request
from tests.web.http.client import Client, run
from tests.web.test_asgi import CLOSE, MAX_BODY, body_of
from toolrelay.web.asgi import Bridge
from toolrelay.web.http.exchange import Exchange


def test_lifespan_state_reaches_requests_and_ends_at_stop() -> None:
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        events.append("started")
        yield {"word": "hello"}
        events.append("stopped")

    async def page(request: Request) -> Response:
        return PlainTextResponse(request.state.word)

    bridge = Bridge(Starlette(routes=[Route("/", page)], lifespan=lifespan), max_body_bytes=MAX_BODY)

    async def handler(exchange: Exchange) -> None:
        await bridge.handle(exchange, exchange.path)

    async def scenario(client: Client) -> None:
        await bridge.start()
        assert events == ["started"]
        client.send(encode_request("GET", "/", b"", CLOSE))
        assert body_of(await client.read_rest()) == b"hello"
        await bridge.stop()
        assert events == ["started", "stopped"]
        await bridge.stop()

    run(handler, scenario)


@pytest.mark.parametrize("event", ["startup", "shutdown"])
def test_failed_lifespan_raises(event: str) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if event == "startup":
            raise OSError("no such disk")
        yield
        raise OSError("no such disk")

    async def main() -> None:
        bridge = Bridge(Starlette(lifespan=lifespan), max_body_bytes=MAX_BODY)
        if event == "shutdown":
            await bridge.start()
        with pytest.raises(RuntimeError, match=rf"(?s)lifespan\.{event} failed: .*no such disk"):
            await (bridge.start() if event == "startup" else bridge.stop())

    asyncio.run(main())


def test_application_without_lifespan_is_accepted() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"

    async def main() -> None:
        bridge = Bridge(application, max_body_bytes=MAX_BODY)
        await bridge.start()
        await bridge.stop()

    asyncio.run(main())
