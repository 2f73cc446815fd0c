"""Puts it all together; the only module that knows everything."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cache, partial
from typing import Any

from toolrelay import log
from toolrelay.backends.base import BackendKind
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.providers import PROVIDERS
from toolrelay.clients.xml.watchdog import ResultWatchdog, report_to
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.models import Model, tool_calling_mode
from toolrelay.runtime.secret import secret_in
from toolrelay.runtime.telemetry import Metrics
from toolrelay.settings import Environment, ModelSettings, ServerSettings, Settings, check_binding, file_prefix
from toolrelay.web.auth import Authenticator
from toolrelay.web.endpoints import Endpoint
from toolrelay.web.http.server import BACKLOG, Server
from toolrelay.web.pages import pages
from toolrelay.web.router import Page, Router
from toolrelay.wires.base import discover as discover_wires

DRAIN_SECONDS = 30
MOST_FILES = 65536


class App:
    """The gateway: it answers exchanges."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        self.guard = ResultWatchdog(report_to(self.metrics))
        self.models = open_models(settings)
        self.ready = True
        gate = ConcurrencyLimit(settings.limits.concurrent_turns)
        server = settings.server
        gatekeeper = Authenticator(settings.keys, server.cors_origins)
        found: dict[tuple[str, str], Page] = pages(
            self.models, self.metrics, gatekeeper, started=int(time.time()), is_ready=lambda: self.ready
        )
        for wire in discover_wires().values():
            found["POST", wire.path] = Endpoint(
                wire, self.models, self.metrics, gate=gate, gatekeeper=gatekeeper, guard=self.guard, settings=server
            )
        self.answer = Router(found, gatekeeper)

    async def close(self) -> None:
        self.guard.close()
        for model in self.models.values():
            await model.backend.close()


def open_models(settings: Settings) -> dict[str, Model]:
    """Every model, or all that is wrong with them. Nothing is connected yet."""
    kinds = discover_backends()
    secret = cache(partial(secret_in, settings.environment.data_dir))
    models: dict[str, Model] = {}
    problems: list[str] = []
    for name, model in settings.models.items():
        try:
            models[name] = _open_model(model, kinds, settings.environment, secret)
        except ConfigurationError as error:
            problems.append(f"{file_prefix(settings)}{error.message}")
    if problems:
        raise ConfigurationError("\n".join(problems))
    return models


def _open_model(
    settings: ModelSettings, kinds: Mapping[str, BackendKind[Any]], environment: Environment, secret: Callable[[], bytes]
) -> Model:
    preset = PROVIDERS[settings.provider]
    mode = tool_calling_mode(settings, preset.profile, secret)
    return Model(settings=settings, backend=kinds[preset.backend].open(settings, environment), mode=mode)


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
        server = Server(app.answer, send_timeout=settings.send_timeout_seconds)
        _run(_serve_until_told(app, server, listener, f"http://{shown}:{port}", drain_seconds))
    return 0


async def _serve_until_told(app: App, server: Server, listener: socket.socket, url: str, drain_seconds: int) -> None:
    """SIGTERM and SIGINT are a wish to finish; the second of them, to finish at once."""
    enough, hurry = asyncio.Event(), asyncio.Event()

    def heed() -> None:
        app.ready = False
        (hurry if enough.is_set() else enough).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, heed)
    try:
        await server.start(listener)
        print(f"Toolrelay is ready at {url}", flush=True)  # noqa: T201 -- the contract's one line
        await enough.wait()
        await server.stop(drain_seconds, hurry)
    finally:
        await app.close()


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


def _run(main: Coroutine[Any, Any, None]) -> None:
    gc.collect()
    gc.freeze()  # what the start has made stays for ever: the collector need not look at it again and again
    gc.set_threshold(20_000, 20, 50)
    try:
        import uvloop  # noqa: PLC0415 -- absent on Windows
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
