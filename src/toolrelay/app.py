"""Assembly of the gateway from its settings, and the server process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO

from msgspec import structs

from toolrelay import log
from toolrelay.backends.base import BackendKind
from toolrelay.backends.base import discover as discover_backends
from toolrelay.backends.providers import PROVIDERS
from toolrelay.clients.xml.watchdog import ResultWatchdog
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.approvals import Approvals
from toolrelay.runtime.approver import FILE_NAME as TOKEN_FILE
from toolrelay.runtime.approver import load_or_create_approver_token
from toolrelay.runtime.data_directory import protect_data_directory
from toolrelay.runtime.executor import Executor
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.runtime.keys import has_stored_keys, open_key_ring
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.live_settings import LiveSettings
from toolrelay.runtime.models import Model, add_routes, tool_calling_mode
from toolrelay.runtime.printed import PrintedLines
from toolrelay.runtime.recordings.recorder import Recorder
from toolrelay.runtime.secret import load_secret
from toolrelay.runtime.service import TurnService
from toolrelay.runtime.telemetry import Metrics
from toolrelay.runtime.usage import UsageTimer
from toolrelay.runtime.usage_report import UsageReporter
from toolrelay.settings import Environment, ModelSettings, ServerSettings, Settings, check_binding, file_prefix, is_loopback
from toolrelay.stores.base import open_store
from toolrelay.stores.retention import prune_regularly
from toolrelay.web.access import Access
from toolrelay.web.approvals import ApprovalPages
from toolrelay.web.approver_auth import Approvers
from toolrelay.web.auth import Authenticator
from toolrelay.web.compaction import CompactionEndpoint
from toolrelay.web.console.history import HistoryPages
from toolrelay.web.console.pages import make_console_routes
from toolrelay.web.conversations import ConversationPages
from toolrelay.web.endpoints import Endpoint
from toolrelay.web.http.server import BACKLOG, Server
from toolrelay.web.keys import KeyPages
from toolrelay.web.pages import make_open_routes, make_routes
from toolrelay.web.relays import RELAYED_PATHS, RelayEndpoint
from toolrelay.web.responses import make_response_routes
from toolrelay.web.responses_socket import SocketEndpoint
from toolrelay.web.router import ErrorEncoder, Handler, Router
from toolrelay.web.sessions import Codes, Sessions
from toolrelay.web.settings import SettingsPages
from toolrelay.web.sign_in import SignInPages
from toolrelay.web.site import Site
from toolrelay.web.tls import load_server_context
from toolrelay.web.token_counts import TokenCountEndpoint
from toolrelay.web.traces import TracePages
from toolrelay.web.usage import UsagePages
from toolrelay.wires.base import discover as discover_wires
from toolrelay.wires.responses.request import NAME as RESPONSES

DRAIN_SECONDS = 30
SUSPEND_SECONDS = 10  # for the answers and tools of background turns, after the drain
MAX_OPEN_FILES = 65536


class App:
    """The gateway: its models and the router that serves them."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        self.watchdog = ResultWatchdog(self.metrics)
        self.models = open_models(settings)
        self.store = open_store(settings.store, settings.environment.data_dir)
        self.keys = open_key_ring(settings, self.store)
        self.tools = GatewayTools(settings, self.keys)
        self.executor = Executor(self.tools, self.metrics, log_content=settings.server.log_content)
        self.approvals = Approvals(self.store, self.tools, self.metrics, entropy=os.urandom)
        self.service = TurnService(
            store=self.store,
            record=settings.store.record,
            models=self.models,
            tools=self.tools,
            executor=self.executor,
            approvals=self.approvals,
        )
        folder, with_text = settings.recording.folder, settings.recording.with_text
        self.recorder = Recorder(Path(folder).expanduser(), with_text=with_text) if folder else None
        self.live_settings = LiveSettings(settings, self.store, self.tools, self.models)
        self.ready = True
        self._file_prefix = file_prefix(settings)
        self._usage_timer = UsageTimer(self.metrics.usage, self.store)
        self._retention_days = settings.store.retention_days
        self._pruning: asyncio.Task[None] | None = None
        self._draining: asyncio.Future[None] | None = None
        self._approver_token = cache(partial(load_or_create_approver_token, settings.environment.data_dir))
        self._authenticator = Authenticator(
            self.keys, settings.server.cors_origins, token=self._approver_token, is_local=is_loopback(settings.server.host)
        )
        self._codes = Codes()
        sessions = Sessions(self.store, self._authenticator)
        access = Access(self._authenticator, requests_per_minute=settings.limits.requests_per_minute, sessions=sessions)
        self.site = self._make_site(settings, sessions, access)
        limit = ConcurrencyLimit(settings.limits.concurrent_turns)
        self._endpoints = self._make_endpoints(settings, access, limit)
        self.router = self._make_router(settings, access, limit)

    def _make_router(self, settings: Settings, access: Access, limit: ConcurrencyLimit) -> Router:
        handlers: dict[str, Handler] = {endpoint.wire.path: endpoint.handle for endpoint in self._endpoints.values()}
        for path in RELAYED_PATHS:
            handlers[path] = RelayEndpoint(
                path=path, models=self.models, metrics=self.metrics, limit=limit, access=access, settings=settings.server
            ).handle
        errors: dict[str, ErrorEncoder] = {}
        for wire in discover_wires().values():
            errors[wire.path] = wire.encode_error
            counting = wire.token_counting
            if counting is not None:
                errors[counting.path] = wire.encode_error
                handlers[counting.path] = TokenCountEndpoint(
                    wire=wire,
                    counting=counting,
                    models=self.models,
                    limit=limit,
                    access=access,
                    settings=settings.server,
                    service=self.service,
                ).handle
            if wire.compaction is not None:
                handlers[wire.compaction.path] = CompactionEndpoint(
                    wire=wire,
                    compaction=wire.compaction,
                    models=self.models,
                    metrics=self.metrics,
                    limit=limit,
                    access=access,
                    settings=settings.server,
                    service=self.service,
                ).handle
        router = Router(handlers, self.site, self._authenticator, errors)
        responses = self._endpoints[RESPONSES]
        socket = SocketEndpoint(endpoint=responses, access=access, metrics=self.metrics, new_request_id=router.new_request_id)
        router.add_websocket(responses.wire.path, socket.handle)
        return router

    def _make_site(self, settings: Settings, sessions: Sessions, access: Access) -> Site:
        """Return all pages but the endpoints that clients stream through."""
        authenticator, keepalive = self._authenticator, settings.server.keepalive_seconds
        approvers = Approvers(token_file=str(settings.environment.data_dir / TOKEN_FILE))
        sign_in = SignInPages(sessions, self._codes, authenticator, approvers, access)
        approvals = ApprovalPages(self.approvals, self.models, approvers, access, self.keys, keepalive=keepalive)
        traces = TracePages(
            self.service, self.models, self.tools, approvers, access, record=settings.store.record, keepalive=keepalive
        )
        return Site(
            routes=[
                *sign_in.routes(),
                *make_routes(self.models, started=int(time.time())),
                *make_response_routes(self.service, keepalive=keepalive),
                *ConversationPages(self.store).routes(),
                *HistoryPages(self.store, approvers).routes(),
                *approvals.routes(),
                *KeyPages(self.keys, approvers).routes(),
                *UsagePages(UsageReporter(self.metrics.usage, self.store), approvers, self.keys).routes(),
                *traces.routes(),
                *SettingsPages(self.live_settings, self.tools, approvers).routes(),
            ],
            open_routes=[
                *make_open_routes(self.metrics, authenticator, is_ready=lambda: self.ready),
                *sign_in.open_routes(),
                *make_console_routes(authenticator),
            ],
            access=access,
            max_body_bytes=settings.server.max_body_bytes,
        )

    def _make_endpoints(self, settings: Settings, access: Access, limit: ConcurrencyLimit) -> dict[str, Endpoint]:
        return {
            wire.name: Endpoint(
                wire=wire,
                models=self.models,
                metrics=self.metrics,
                limit=limit,
                access=access,
                keys=self.keys,
                watchdog=self.watchdog,
                settings=settings.server,
                service=self.service,
                recorder=self.recorder,
            )
            for wire in discover_wires().values()
        }

    async def open(self) -> None:
        """Open toolsets and store, or raise what the operator can correct. Then take up the turns of before."""
        try:
            await self.store.open()
            await self.keys.load()
            self.keys.check_names(self._file_prefix)
            self.keys.follow()
            self._approver_token()
            await self.live_settings.open()
            self._usage_timer.start()
            await self.site.start()
            await self.service.resume_unfinished(lambda row, request: self._endpoints[row.wire].observe(row, request))
            # Not before: a turn that is taken up must not be deleted meanwhile.
            self._pruning = asyncio.create_task(prune_regularly(self.store, self._retention_days))
        except BaseException:
            await self.close()
            raise

    def make_sign_in_code(self) -> str | None:
        """Return a one-time code for the console. None: other machines reach the gateway, and people sign in with keys."""
        return self._codes.make() if self._authenticator.is_local else None

    def drain(self) -> None:
        """Tell load balancers that the gateway stops, and end streams that have no end of their own."""
        self.ready = False
        self.approvals.close()
        self._draining = asyncio.ensure_future(self.service.turns.drain())

    async def close(self, seconds: float = 0, force: asyncio.Event | None = None) -> None:
        """Stop everything. Background turns have this time to finish what they are doing, unless `force` is set."""
        self.watchdog.close()
        self.approvals.close()
        if self._draining is not None:
            await self._draining
        await self.service.turns.close(seconds, force)
        await self.tools.close()
        await self.executor.close()
        for model in self.models.values():
            await model.backend.close()
        await self.site.stop()
        if self._pruning is not None:
            self._pruning.cancel()
            await asyncio.wait([self._pruning])
        await self._usage_timer.close()
        await self.keys.close()
        await self.store.close()
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)


def open_models(settings: Settings) -> dict[str, Model]:
    """Return all models, not yet connected, or raise one error with all that is wrong in their settings."""
    kinds = discover_backends()
    secret = cache(partial(load_secret, settings.environment.data_dir))
    models: dict[str, Model] = {}
    problems: list[str] = []
    for name, model in settings.models.items():
        try:
            models[name] = _open_model(model, kinds, settings.environment, secret)
        except ConfigurationError as error:
            problems.append(f"{file_prefix(settings)}{error.message}")
    if problems:
        raise ConfigurationError("\n".join(problems))
    add_routes(models)
    return models


def _open_model(
    settings: ModelSettings, kinds: Mapping[str, BackendKind[Any]], environment: Environment, secret: Callable[[], bytes]
) -> Model:
    preset = PROVIDERS[settings.provider]
    kind = kinds[preset.backend]
    passes_tool = None if kind.passes_tool is None else partial(kind.passes_tool, settings)
    profile = preset.profile if kind.profile is None else kind.profile(settings, preset.profile)
    mode = tool_calling_mode(settings, profile, secret, passes_tool)
    return Model(settings=settings, backend=kind.open(settings, environment), mode=mode)


def serve(settings: Settings) -> int:
    """Run the gateway until a signal stops it. Return the exit code."""
    check_binding(settings, has_stored_keys=has_stored_keys)
    tls = load_server_context(settings)
    log.configure(settings.log, settings.log_level)
    protect_data_directory(settings.environment.data_dir)
    stdout = sys.stdout
    with contextlib.redirect_stdout(PrintedLines(log_content=settings.server.log_content)):
        return serve_app(App(settings), settings.server, stdout=stdout, tls=tls)


def serve_app(
    app: App,
    settings: ServerSettings,
    *,
    drain_seconds: int = DRAIN_SECONDS,
    stdout: TextIO | None = None,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Serve until a signal comes. The line that says that it is ready goes to `stdout`, by default that of the process."""
    host, port = settings.host, settings.port
    _raise_file_limit()
    try:
        listener = _listen(host, port)
    except OSError as error:
        print(f"toolrelay: cannot listen on {host}:{port}: {error.strerror}. Choose another with --port.", file=sys.stderr)  # noqa: T201 -- for the person at the terminal
        return 1
    with listener:
        bound = structs.replace(settings, port=listener.getsockname()[1])
        server = Server(app.router, send_timeout=settings.send_timeout_seconds, tls=tls)
        report_ready = partial(_report_ready, app, bound.url, stdout or sys.stdout)
        _run(_serve_until_stopped(app, server, listener, report_ready, drain_seconds))
    return 0


def _report_ready(app: App, url: str, stdout: TextIO) -> None:
    """Print the URL. Only a person at a terminal gets a code to sign in: other output may be kept in a log."""
    code = app.make_sign_in_code() if stdout.isatty() else None
    print(f"Toolrelay is ready at {url}" + (f"/?code={code}" if code else ""), file=stdout, flush=True)


async def _serve_until_stopped(
    app: App, server: Server, listener: socket.socket, report_ready: Callable[[], None], drain_seconds: int
) -> None:
    """Drain on SIGTERM or SIGINT. A second signal cancels what still runs."""
    await app.open()
    stop_requested, force_requested = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        app.drain()
        (force_requested if stop_requested.is_set() else stop_requested).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        await server.start(listener)
        report_ready()
        await stop_requested.wait()
        await server.stop(drain_seconds, force_requested)
    finally:
        await app.close(SUSPEND_SECONDS, force_requested)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)  # until this succeeds, another process may take the port
    except OSError:
        listener.close()
        raise
    return listener


def _raise_file_limit() -> None:
    """Raise the soft limit, usually 1,024 for the sake of select(): a turn takes two file descriptors."""
    try:
        import resource  # noqa: PLC0415 -- absent on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may have a lower limit of its own, as macOS does
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _run(main: Coroutine[Any, Any, None]) -> None:
    gc.collect()
    gc.freeze()  # objects made at start-up live for ever: the collector need not visit them
    gc.set_threshold(20_000, 20, 50)
    try:
        import uvloop  # noqa: PLC0415 -- absent on Windows
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
