"""A local model as a backend: requests queue for llama.cpp's server, which is started by the first one and again after it died.

the process                     the request
-----------------------------   ----------------------------------------------------------------------------
does not run                    starts it; others wait for the same start
cannot load the model           fails with the reason; the next request tries again
dies before a first event       is sent once more, to a new process
dies in the middle              fails; the next request starts a new process
is busy with `parallel` others  waits for its turn; one that is cancelled leaves the queue, or frees its place
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from importlib import util
from pathlib import Path

from toolrelay import log
from toolrelay.backends.base import Backend, BackendKind, Deliver, HealthReport, Wanted, deliver_batch
from toolrelay.backends.http import HttpBackend, HttpSettings
from toolrelay.backends.local.llama_wire import make_wire
from toolrelay.backends.local.model_files import KNOWN_MODELS, find_model_file, is_pulled
from toolrelay.backends.local.process import LlamaProcess, start_process
from toolrelay.backends.local.settings import LocalSettings
from toolrelay.backends.providers import PROVIDERS
from toolrelay.core.events import UPSTREAM_RETRIED, AnswerFailed, Noticed, StreamEvent
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ConfigurationError, ToolrelayError
from toolrelay.settings import Environment, ModelSettings

PACKAGE = "xllamacpp"
MAX_WAITING = 256
NOTICE_SECONDS = 5.0  # for the end of a process whose connection was cut
_LOST = frozenset({"upstream_cut", "upstream_unreachable"})


class _LlamaServer:
    """A process with a loaded model, and the client of its server."""

    def __init__(self, process: LlamaProcess, settings: LocalSettings) -> None:
        self.process = process
        common = {name: getattr(settings, name) for name in ModelSettings.__struct_fields__}
        http = HttpSettings(**common, base_url=f"{process.address}/v1", wire="chat", api_key=process.key)
        self.http = HttpBackend(http, make_wire(has_guidance=process.has_guidance), PROVIDERS[settings.provider].profile)

    async def close(self) -> None:
        await self.http.close()
        await self.process.close()


class LocalBackend:
    def __init__(self, settings: LocalSettings, path: Path) -> None:
        self._settings = settings
        self._path = path
        self._places = asyncio.Semaphore(settings.parallel)
        self._waiting = 0
        self._server: _LlamaServer | None = None
        self._starting: asyncio.Task[_LlamaServer] | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The id of the running process."""
        server = self._server
        return server.process.pid if server is not None and server.process.is_running else None

    async def stream_into(self, request: Request, deliver: Deliver) -> None:
        if self._waiting >= MAX_WAITING:
            message = f"{MAX_WAITING} requests wait for the model {self._settings.name} already."
            await deliver_batch(deliver, [AnswerFailed(BackendError(message, status=503, code="model_busy"))])
            return
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            if not await self._try(request, deliver, is_last=False):
                await deliver_batch(deliver, [Noticed(event=UPSTREAM_RETRIED, rule="process_gone")])
                await self._try(request, deliver, is_last=True)
        finally:
            self._places.release()

    async def _try(self, request: Request, deliver: Deliver, *, is_last: bool) -> bool:
        """Return False if the request has to be sent again: the process died before anything was delivered."""
        try:
            server = await self._running_server()
        except ToolrelayError as refused:
            await deliver_batch(deliver, [AnswerFailed(refused)])
            return True
        failed: list[StreamEvent] = []
        has_begun = False

        def pass_on(events: list[StreamEvent]) -> Awaitable[Wanted | None] | Wanted | None:
            nonlocal has_begun
            if isinstance(events[-1], AnswerFailed):
                failed.extend(events)
                return None
            has_begun = has_begun or not all(isinstance(event, Noticed) for event in events)
            return deliver(events)

        await server.http.stream_into(request, pass_on)
        match failed:
            case [*before, AnswerFailed(error=error)] if error.code in _LOST and await server.process.wait(NOTICE_SECONDS):
                end = server.process.describe_end()
                log.warning("local_model_died", model=self._settings.name, pid=server.process.pid, reason=end)
                if not (has_begun or before or is_last):
                    return False
                message = f"The process of the model {self._settings.name} {end}. The next request starts it again."
                await deliver_batch(deliver, [*before, AnswerFailed(BackendError(message, code="upstream_cut"))])
            case [_, *_]:
                await deliver_batch(deliver, failed)
        return True

    async def _running_server(self) -> _LlamaServer:
        """Return the server, and start it if it does not run. A request that is cancelled does not stop the start for others."""
        server = self._server
        if server is not None and server.process.is_running:
            return server
        if self._is_closed:
            raise BackendError("The gateway is closing.", status=503)
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(server))
            self._starting.add_done_callback(self._end_start)
        return await asyncio.shield(self._starting)

    async def _start(self, dead: _LlamaServer | None) -> _LlamaServer:
        if dead is not None:
            await dead.close()
        self._server = server = _LlamaServer(await start_process(self._settings, self._path), self._settings)
        return server

    def _end_start(self, task: asyncio.Task[_LlamaServer]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # seen, even if every request for it has left

    async def close(self) -> None:
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.close()


def open_backend(settings: LocalSettings, environment: Environment) -> Backend:
    return LocalBackend(settings, _find(settings, environment))


async def inspect(settings: LocalSettings, environment: Environment) -> HealthReport:
    """Load the model, and unload it."""
    path = _find(settings, environment)
    try:
        process = await start_process(settings, path)
    except BackendError as error:
        return HealthReport(problem=error.message)
    await process.close()
    return HealthReport(summary="loads")


def _find(settings: LocalSettings, environment: Environment) -> Path:
    path = find_model_file(settings.name, settings.model, environment)
    if util.find_spec(PACKAGE) is None:
        raise ConfigurationError(
            f"models.{settings.name}.provider: the provider local needs llama.cpp: install it with `pip install '.[local]'` in "
            "Toolrelay's clone, if there is a wheel for this machine."
        )
    return path


def sample(data_dir: Path) -> Mapping[str, str] | None:
    """Offer the first model that was pulled, if llama.cpp is installed."""
    if util.find_spec(PACKAGE) is None:
        return None
    pulled = (name for name, known in KNOWN_MODELS.items() if is_pulled(known, data_dir))
    return next(({"provider": "local", "model": name} for name in pulled), None)


BACKEND = BackendKind(settings=LocalSettings, open=open_backend, inspect=inspect, sample=sample)
