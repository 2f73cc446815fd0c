"""Puts it all together; the only module that knows everything."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from types import FrameType

import uvicorn

from toolrelay import log
from toolrelay.backends.base import BackendKind
from toolrelay.backends.base import discover as discover_backends
from toolrelay.config import ModelSettings, ServerSettings, Settings, check_binding, file_mark
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.telemetry import Metrics
from toolrelay.web.asgi import Receive, Scope, Send
from toolrelay.web.auth import Gatekeeper
from toolrelay.web.connection import Connection
from toolrelay.web.front_doors import FrontDoor, Gate, Model
from toolrelay.web.pages import pages
from toolrelay.web.site import Page, Site
from toolrelay.wires.base import discover as discover_wires

DRAIN_SECONDS = 30
FAREWELL_SECONDS = 1.0
BACKLOG = 4096
MOST_FILES = 65536


class App:
    """The gateway as an ASGI application."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        self.models = open_models(settings)
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


def open_models(settings: Settings) -> dict[str, Model]:
    """Every model, or all that is wrong with them. Nothing is connected yet."""
    kinds = discover_backends()
    models: dict[str, Model] = {}
    problems: list[str] = []
    for name, model in settings.models.items():
        try:
            models[name] = _open_model(model, kinds)
        except ConfigurationError as error:
            problems.append(f"{file_mark(settings)}{error.message}")
    if problems:
        raise ConfigurationError("\n".join(problems))
    return models


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
        await super().shutdown(sockets)
        await self._dismiss()

    async def _dismiss(self) -> None:
        """The turns that are still under way get the time to tell their clients. When time is up, uvicorn has cancelled them."""
        tasks = set(self.server_state.tasks)
        if self.force_exit:
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=FAREWELL_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self._app.ready = False
        super().handle_exit(sig, frame)

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
    log.configure(settings.log, settings.log_level)
    return serve_app(App(settings), settings.server)


def serve_app(app: App, settings: ServerSettings, *, drain_seconds: int = DRAIN_SECONDS) -> int:
    host, port = settings.host, settings.port
    _raise_file_limit()
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
            backlog=BACKLOG,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=drain_seconds,
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
        listener.listen(BACKLOG)  # only now is the port certainly ours
    except OSError:
        listener.close()
        raise
    return listener


def _raise_file_limit() -> None:
    """A turn takes two files. The usual limit of 1,024 is a soft one, kept for programs that use select()."""
    try:
        import resource  # noqa: PLC0415 -- absent on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may have a limit of its own below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _run(server: _Server, app: App, listener: socket.socket) -> None:
    async def main() -> None:
        try:
            await server.serve(sockets=[listener])
        finally:
            await app.close()

    gc.collect()
    gc.freeze()  # what the start has made stays for ever: the collector need not look at it again and again
    gc.set_threshold(20_000, 20, 50)
    try:
        import uvloop  # noqa: PLC0415 -- absent on Windows
    except ImportError:
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
