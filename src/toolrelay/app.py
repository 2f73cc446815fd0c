"""Puts it all together; the only module that knows everything."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping

import uvicorn

from toolrelay.backends.base import BackendKind
from toolrelay.backends.base import discover as discover_backends
from toolrelay.config import ModelSettings, Settings, check_binding
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.telemetry import Metrics, configure_logging
from toolrelay.web.asgi import Receive, Scope, Send
from toolrelay.web.auth import Gatekeeper
from toolrelay.web.connection import Connection
from toolrelay.web.front_doors import FrontDoor, Gate, Model
from toolrelay.web.pages import pages
from toolrelay.web.site import Page, Site
from toolrelay.wires.base import discover as discover_wires

DRAIN_SECONDS = 30


class App:
    """The gateway as an ASGI application."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        kinds = discover_backends()
        self.models = {name: _open_model(model, kinds) for name, model in settings.models.items()}
        self.ready = True
        gate = Gate(settings.limits.concurrent_turns)
        server = settings.server
        found: dict[tuple[str, str], Page] = pages(
            self.models, self.metrics, started=int(time.time()), is_ready=lambda: self.ready
        )
        for wire in discover_wires().values():
            found["POST", wire.path] = FrontDoor(wire, self.models, self.metrics, gate, server)
        self._site = Site(found, Gatekeeper(settings.keys, server.cors_origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._site(scope, receive, send)

    async def close(self) -> None:
        for model in self.models.values():
            await model.backend.close()


def _open_model(settings: ModelSettings, kinds: Mapping[str, BackendKind]) -> Model:
    kind = kinds.get(settings.provider)
    if kind is None:
        raise ConfigurationError(f"models.{settings.name}.provider: {settings.provider!r} is not available in this version.")
    return Model(settings=settings, backend=kind.open(settings))


class _Server(uvicorn.Server):
    """Says when it is ready, and takes SIGTERM as a wish to finish, not as a death."""

    def __init__(self, config: uvicorn.Config, app: App, url: str) -> None:
        super().__init__(config)
        self._app = app
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"Toolrelay is ready at {self._url}", flush=True)  # noqa: T201 -- the contract's one line

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.ready = False
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own would raise the signal again at the end, and the exit code would not be 0."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def serve(settings: Settings) -> int:
    """Runs the gateway until it is told to stop. Returns the exit code."""
    check_binding(settings)
    configure_logging(settings.log, settings.log_level)
    app = App(settings)
    host, port = settings.server.host, settings.server.port
    try:
        listener = _listen(host, port)
    except OSError as error:
        print(f"toolrelay: cannot listen on {host}:{port}: {error.strerror}. Choose another with --port.", file=sys.stderr)  # noqa: T201 -- for the person at the terminal
        return 1
    with listener:
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            app,
            loop="none",
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=4096,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        server = _Server(config, app, f"http://{shown}:{port}")
        _run(server, app, listener)
    return 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _run(server: _Server, app: App, listener: socket.socket) -> None:
    async def main() -> None:
        try:
            await server.serve(sockets=[listener])
        finally:
            await app.close()

    try:
        import uvloop  # noqa: PLC0415 -- absent on Windows
    except ImportError:
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
