"""The gateway with a scripted backend, on a real socket in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from tests.model_server import MODEL
from tests.raw_client import encode_request
from toolrelay.app import App
from toolrelay.backends.base import Backend
from toolrelay.config import load
from toolrelay.core.profiles import Profile
from toolrelay.runtime.models import Model, tool_calling_mode
from toolrelay.settings import ModelSettings
from toolrelay.web.http.server import Server

_DATA = tempfile.TemporaryDirectory(prefix="toolrelay-scripted-")


def scripted(backend: Backend, *, keepalive: float = 15) -> App:
    """Return a gateway whose model `fast` is the backend."""
    settings = load(None, {"HOME": "/nowhere"}, data_dir=_DATA.name)
    server, store = replace(settings.server, keepalive_seconds=keepalive), replace(settings.store, record="none")
    demo = ModelSettings(name="demo", provider="demo", model="demo")
    app = App(replace(settings, server=server, store=store, models={"demo": demo}, toolsets={}))
    model = ModelSettings(name=MODEL, provider="demo")
    app.models[MODEL] = Model(settings=model, backend=backend, mode=tool_calling_mode(model, Profile(), bytes))
    return app


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[int]:
    """Run the server and yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    await server.start(listener)
    try:
        yield listener.getsockname()[1]
    finally:
        await server.stop(30, asyncio.Event())


@asynccontextmanager
async def serving(app: App, *, idle_timeout: float = 75) -> AsyncIterator[int]:
    """Run the gateway and yield its port."""
    await app.open()
    try:
        async with listening(Server(app.router, idle_timeout=idle_timeout)) as port:
            yield port
    finally:
        await app.close()


async def ask(port: int, path: str, body: Any = None, *, method: str = "POST") -> tuple[int, bytes]:
    """Return status and body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode_request(method, path, b"" if body is None else json.dumps(body).encode(), "connection: close"))
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ")[1]), await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
