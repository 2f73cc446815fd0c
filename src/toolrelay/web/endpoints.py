"""The doors that clients come in by: one for each wire, all alike.

bytes → wire.decode_request → the model's backend and rules → a turn → a sink → bytes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec.structs import replace

from toolrelay import log
from toolrelay.clients.xml.exchange import XmlExchange, xml_client_options
from toolrelay.clients.xml.watchdog import ResultWatchdog
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.request_checks import with_results_cut, without_tools
from toolrelay.core.turn import Turn
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.runtime.driver import Sink, drive
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.models import Model
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.settings import ServerSettings
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.web.auth import Authenticator, Identity
from toolrelay.web.http.exchange import ClientGoneError, Exchange
from toolrelay.web.router import respond_error
from toolrelay.web.sinks import AnswerSink, StreamSink, WholeSink
from toolrelay.wires.base import Envelope, Wire

_CLIENT_GONE = 499
_POLICY = Policy(keeps=False)  # there are no gateway tools and no ledger yet


class Endpoint:
    def __init__(
        self,
        wire: Wire,
        models: Mapping[str, Model],
        metrics: Metrics,
        *,
        gate: ConcurrencyLimit,
        gatekeeper: Authenticator,
        guard: ResultWatchdog,
        settings: ServerSettings,
    ) -> None:
        self._guard = guard
        self._wire = wire
        self._models = models
        self._metrics = metrics
        self._gate = gate
        self._gatekeeper = gatekeeper
        self._max_body = settings.max_body_bytes
        self._keepalive = settings.keepalive_seconds
        self._log_content = settings.log_content

    async def __call__(self, exchange: Exchange) -> None:
        started = time.monotonic()
        exchange.discard = self._max_body
        try:
            identity = self._gatekeeper.identify(exchange.headers)
            request, model = self._accept(await exchange.body(self._max_body), identity)
            wish = xml_client_options(model.settings, exchange.headers)
            self._gate.enter()
        except ClientGoneError:
            return
        except asyncio.CancelledError:
            self._refuse(exchange, _shutting_down())
            return
        except ToolrelayError as error:
            log.info("refused", turn=exchange.token, wire=self._wire.name, status=error.status, code=error.code)
            self._refuse(exchange, error)
            return
        self._metrics.open += 1
        try:
            xml = XmlExchange(request, wish, self._guard) if wish is not None else None
            request = with_results_cut(request if xml is None else xml.request, model.settings.max_tool_result_bytes)
            await self._answer(exchange, request, model, started, xml)
        finally:
            self._metrics.open -= 1
            self._gate.leave()

    def _accept(self, body: bytes, identity: Identity) -> tuple[Request, Model]:
        request = self._wire.decode_request(body)
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
        if identity.name is not None:
            request = replace(request, key=identity.name)
        return request, model

    async def _answer(self, exchange: Exchange, request: Request, model: Model, started: float, xml: XmlExchange | None) -> None:
        turn_token = exchange.token
        turn = Turn(token=turn_token, request=request, policy=_POLICY)
        fields: dict[str, Any] = {"turn": turn_token, "model": request.model, "key": request.key, "stream": request.stream}
        metrics = self._metrics.model(request.model)
        account = TurnLog(metrics, fields, self._wire.name, started, with_content=self._log_content)
        envelope = Envelope(token=turn_token, created=int(time.time()), model=request.model, request=request)
        sink = self._sink(envelope, exchange)
        taker: Sink = sink if xml is None else xml.sink(sink, account, turn=turn_token)
        status, code = 200, None
        exchange.watched = True  # from here on the client's leaving cancels this
        try:
            await drive(ToolCallLayer(turn, model.mode), model.backend, _Timed(taker, account), account)
            exchange.watched = False
            sink.close()
        except ToolrelayError as error:
            exchange.watched = False
            status, code = error.status, error.code
            self._give_up(exchange, sink, error)
        except asyncio.CancelledError:
            exchange.watched = False
            if exchange.gone:
                _uncancel()
                sink.stop()
                status, code = _CLIENT_GONE, "client_stalled" if exchange.stalled else "client_gone"
            else:
                failure = _shutting_down()
                status, code = failure.status, failure.code
                self._give_up(exchange, sink, failure)
        except Exception:  # noqa: BLE001 -- whatever it is, the client gets an answer and the log the reason
            exchange.watched = False
            status, code = 500, "internal_error"
            log.exception("internal_error", turn=turn_token)
            message = f"Something went wrong in the gateway. Its log says more under turn {turn_token}."
            self._give_up(exchange, sink, InternalError(message))
        finally:
            if turn.error is not None:
                status, code = turn.error.error.status, turn.error.error.code
            account.end(time.monotonic(), status=status, finish=turn.finish, code=code, usage=turn.usage)

    def _sink(self, envelope: Envelope, exchange: Exchange) -> AnswerSink:
        if envelope.request.stream:
            return StreamSink(self._wire, envelope, exchange, keepalive=self._keepalive)
        return WholeSink(self._wire, envelope, exchange)

    def _give_up(self, exchange: Exchange, sink: AnswerSink, error: ToolrelayError) -> None:
        if not sink.fail(error):
            self._refuse(exchange, error)

    def _refuse(self, exchange: Exchange, error: ToolrelayError) -> None:
        respond_error(exchange, error, self._wire.encode_error)


class _Timed:
    """Tells the log when the model first spoke."""

    __slots__ = ("_account", "_sink", "put")

    def __init__(self, sink: Sink, account: TurnLog) -> None:
        self._sink = sink
        self._account = account
        self.put = self._first

    def _first(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if type(events[0]) is not AnswerFailed:
            self._account.spoke(time.monotonic())
        self.put = self._sink.put
        return self._sink.put(events)


def _shutting_down() -> InternalError:
    """Why a turn is cancelled whose client is still there. Once the client has been told, nothing is left to cancel."""
    return InternalError("The gateway is shutting down.", status=503, code="shutting_down")


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
