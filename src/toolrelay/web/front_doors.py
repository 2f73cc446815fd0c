"""The doors that clients come in by: one for each wire, all alike.

bytes → wire.decode_request → the model's backend and rules → a turn → a sink → bytes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from toolrelay import log
from toolrelay.backends.base import Backend
from toolrelay.config import ModelSettings, ServerSettings
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.plan import with_results_cut, without_tools
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.turn import Turn
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.runtime.driver import drive
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.web.asgi import ClientGoneError
from toolrelay.web.sinks import AnswerSink, StreamSink, WholeSink
from toolrelay.web.site import Exchange, respond_error
from toolrelay.wires.base import Envelope, Wire

_CLIENT_GONE = 499
_POLICY = Policy(keeps=False)  # there are no gateway tools and no ledger yet


class Model(Struct, frozen=True, kw_only=True):
    """A model that clients may ask for."""

    settings: ModelSettings
    backend: Backend


class Gate:
    """How many turns are under way, and how many may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0

    def enter(self) -> None:
        if self.open >= self._most:
            raise ClientError(
                f"The gateway is busy with {self.open} turns. Try again soon.",
                status=503,
                type="server_error",
                code="overloaded",
                retry_after=1,
            )
        self.open += 1

    def leave(self) -> None:
        self.open -= 1


class FrontDoor:
    def __init__(self, wire: Wire, models: Mapping[str, Model], metrics: Metrics, gate: Gate, settings: ServerSettings) -> None:
        self._wire = wire
        self._models = models
        self._metrics = metrics
        self._gate = gate
        self._max_body = settings.max_body_bytes
        self._keepalive = settings.keepalive_seconds
        self._log_content = settings.log_content

    async def __call__(self, exchange: Exchange) -> None:
        started = time.monotonic()
        turn_token = exchange.token
        exchange.scope["toolrelay.discard"] = self._max_body
        try:
            request, model = await self._accept(exchange)
            self._gate.enter()
        except ClientGoneError:
            return
        except asyncio.CancelledError:
            await self._refuse(exchange, _shutting_down())
            return
        except ToolrelayError as error:
            log.info("refused", turn=turn_token, wire=self._wire.name, status=error.status, code=error.code)
            await self._refuse(exchange, error)
            return
        self._metrics.open += 1
        try:
            await self._answer(exchange, request, model, turn_token, started)
        finally:
            self._metrics.open -= 1
            self._gate.leave()

    async def _accept(self, exchange: Exchange) -> tuple[Request, Model]:
        identity = exchange.identify()
        request = self._wire.decode_request(await exchange.body(self._max_body))
        model = self._models.get(request.model)
        if model is None or not identity.may_use(request.model):
            raise ClientError(
                f"The model {request.model!r} does not exist here, or not for your key. GET /v1/models lists those that do.",
                status=404,
                code="model_not_found",
                param="model",
            )
        if model.settings.tool_calling == "off":
            request = without_tools(request)
        return with_results_cut(request, model.settings.max_tool_result_bytes), model

    async def _answer(self, exchange: Exchange, request: Request, model: Model, turn_token: str, started: float) -> None:
        turn = Turn(token=turn_token, request=request, policy=_POLICY)
        fields: dict[str, Any] = {
            "turn": turn_token,
            "model": request.model,
            "key": exchange.identify().name,
            "stream": request.stream,
        }
        metrics = self._metrics.model(request.model)
        account = TurnLog(metrics, fields, self._wire.name, started, with_content=self._log_content)
        envelope = Envelope(token=turn_token, created=int(time.time()), model=request.model, request=request)
        sink = self._sink(request, envelope, exchange)
        watch = _Watch(exchange)
        status, code = 200, None
        try:
            await drive(turn, model.backend, _Timed(sink, account), account)
            watch.close()
            await sink.close()
        except ToolrelayError as error:
            watch.close()
            status, code = error.status, error.code
            await self._give_up(exchange, sink, error)
        except asyncio.CancelledError:
            if watch.gone:
                _uncancel()
                sink.stop()
                status, code = _CLIENT_GONE, "client_gone"
            else:
                watch.close()
                failure = _shutting_down()
                status, code = failure.status, failure.code
                await self._give_up(exchange, sink, failure)
        except Exception:  # noqa: BLE001 -- whatever it is, the client gets an answer and the log the reason
            status, code = 500, "internal_error"
            log.exception("internal_error", turn=turn_token)
            watch.close()
            message = f"Something went wrong in the gateway. Its log says more under turn {turn_token}."
            await self._give_up(exchange, sink, InternalError(message))
        finally:
            watch.close()
            if turn.error is not None:
                status, code = turn.error.error.status, turn.error.error.code
            account.end(time.monotonic(), status=status, finish=turn.finish, code=code, usage=turn.usage)

    def _sink(self, request: Request, envelope: Envelope, exchange: Exchange) -> AnswerSink:
        if request.stream:
            piece = exchange.scope.get("toolrelay.piece")
            return StreamSink(self._wire, envelope, exchange.send, exchange.headers, keepalive=self._keepalive, piece=piece)
        return WholeSink(self._wire, envelope, exchange.send, exchange.headers)

    async def _give_up(self, exchange: Exchange, sink: AnswerSink, error: ToolrelayError) -> None:
        if not await sink.fail(error):
            await self._refuse(exchange, error)

    async def _refuse(self, exchange: Exchange, error: ToolrelayError) -> None:
        await respond_error(exchange, error, self._wire.encode_error)


class _Timed:
    """Tells the log when the model first spoke."""

    __slots__ = ("_account", "_sink", "put")

    def __init__(self, sink: AnswerSink, account: TurnLog) -> None:
        self._sink = sink
        self._account = account
        self.put = self._first

    def _first(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if not isinstance(events[0], AnswerFailed):
            self._account.spoke(time.monotonic())
        self.put = self._sink.put
        return self._sink.put(events)


class _Watch:
    """Cancels the task that made it when the client goes away."""

    __slots__ = ("_leaving", "_task", "_waiting", "gone")

    def __init__(self, exchange: Exchange) -> None:
        self.gone = False
        self._task = asyncio.current_task()
        self._leaving: set[Callable[[], None]] | None = exchange.scope.get("toolrelay.leaving")
        self._waiting: asyncio.Future[Any] | None = None
        if self._leaving is not None:
            self._leaving.add(self._go)
        else:  # another server than ours
            self._waiting = asyncio.ensure_future(exchange.receive())
            self._waiting.add_done_callback(lambda waiting: None if waiting.cancelled() else self._go())

    def _go(self) -> None:
        if self._task is not None:
            self.gone = True
            self._task.cancel()

    def close(self) -> None:
        self._task = None
        if self._leaving is not None:
            self._leaving.discard(self._go)
        elif self._waiting is not None:
            self._waiting.cancel()


def _shutting_down() -> InternalError:
    """Why a turn is cancelled whose client is still there. Once the client has been told, nothing is left to cancel."""
    return InternalError("The gateway is shutting down.", status=503, code="shutting_down")


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
