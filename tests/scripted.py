"""The application with a scripted backend, behind a real socket of the test's own event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from msgspec.structs import replace
from uvicorn.server import ServerState

from tests.stage import MODEL
from tests.visitor import request
from toolrelay.app import App
from toolrelay.backends.base import Backend
from toolrelay.config import ModelSettings, load
from toolrelay.web.asgi import Application
from toolrelay.web.connection import Connection
from toolrelay.web.front_doors import Model


def scripted(backend: Backend, *, keepalive: float = 15) -> App:
    """The gateway whose model `fast` is that backend."""
    settings = load(None, {"HOME": "/nowhere"})
    app = App(replace(settings, server=replace(settings.server, keepalive_seconds=keepalive)))
    app.models[MODEL] = Model(settings=ModelSettings(name=MODEL, provider="demo"), backend=backend)
    return app


@asynccontextmanager
async def serving(app: Application, *, idle: float = 75) -> AsyncIterator[int]:
    """Gives the port. `idle` is how many seconds a connection without a request is kept."""
    config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None, timeout_keep_alive=idle)  # type: ignore[arg-type]  # uvicorn wants whole seconds of its own accord
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*state.tasks)
        for connection in list(state.connections):
            connection.shutdown()


async def ask(port: int, path: str, body: Any) -> tuple[int, bytes]:
    """The status and body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request("POST", path, json.dumps(body).encode(), "connection: close"))
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ")[1]), await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
