"""The API endpoints, one per wire.

bytes → wire.decode_request → the model's backend and rules → a turn → a sink → bytes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.clients.xml.exchange import XmlExchange, xml_client_options
from toolrelay.clients.xml.watchdog import ResultWatchdog
from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.request_checks import remove_tools, truncate_results
from toolrelay.core.turn import Turn
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.runtime.driver import Sink, drive
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.models import Model
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.settings import ServerSettings
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.web.access import Access
from toolrelay.web.auth import Identity
from toolrelay.web.http.exchange import ClientDisconnectedError, Exchange
from toolrelay.web.router import respond_error, turn_token_of
from toolrelay.web.sinks import AnswerSink, BufferedSink, StreamSink
from toolrelay.wires.base import Envelope, Wire

_CLIENT_GONE = 499
_POLICY = Policy(records_answers=False)  # there are no gateway tools and no ledger yet


class Endpoint(Struct, frozen=True, kw_only=True):
    wire: Wire
    models: Mapping[str, Model]
    metrics: Metrics
    limit: ConcurrencyLimit
    access: Access
    watchdog: ResultWatchdog
    settings: ServerSettings

    async def handle(self, exchange: Exchange) -> None:
        started = time.monotonic()
        exchange.max_discard = self.settings.max_body_bytes
        try:
            identity = await self.access.admit(exchange)
            request, model = self._accept(await exchange.body(self.settings.max_body_bytes), identity)
            xml_options = xml_client_options(model.settings, exchange.headers)
            self.limit.enter()
        except ClientDisconnectedError:
            return
        except asyncio.CancelledError:
            self._respond_error(exchange, _shutting_down())
            return
        except ToolrelayError as error:
            log.info("refused", turn=turn_token_of(exchange), wire=self.wire.name, status=error.status, code=error.code)
            self._respond_error(exchange, error)
            return
        self.metrics.open += 1
        try:
            xml = XmlExchange(request, xml_options, self.watchdog) if xml_options is not None else None
            request = truncate_results(request if xml is None else xml.request, model.settings.max_tool_result_bytes)
            await self._run_turn(exchange, request, model, started, xml)
        finally:
            self.metrics.open -= 1
            self.limit.leave()

    def _accept(self, body: bytes, identity: Identity) -> tuple[Request, Model]:
        request = self.wire.decode_request(body)
        model = self.models.get(request.model)
        if model is None or not identity.may_use(request.model):
            raise ClientError(
                f"The model {request.model!r} does not exist here, or not for your key. GET /v1/models lists those that do.",
                status=404,
                code="model_not_found",
                param="model",
            )
        if model.settings.tool_calling == "off":
            request = remove_tools(request)
        if identity.name is not None:
            request = replace(request, key=identity.name)
        return request, model

    async def _run_turn(
        self, exchange: Exchange, request: Request, model: Model, started: float, xml: XmlExchange | None
    ) -> None:
        token = turn_token_of(exchange)
        turn = Turn(token=token, request=request, policy=_POLICY)
        fields: dict[str, Any] = {"turn": token, "model": request.model, "key": request.key, "stream": request.stream}
        metrics = self.metrics.model(request.model)
        turn_log = TurnLog(metrics, fields, self.wire.name, started, with_content=self.settings.log_content)
        response = self._open_sink(exchange, request, token)
        sink: Sink = response if xml is None else xml.sink(response, turn_log, turn=token)
        status, code = 200, None
        try:
            with exchange.cancel_on_disconnect():
                await drive(ToolCallLayer(turn, model.mode), model.backend, _FirstEventTimer(sink, turn_log), turn_log)
            response.close()
        except ClientDisconnectedError:
            response.stop()
            status, code = _CLIENT_GONE, "client_stalled" if exchange.stalled else "client_gone"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            failure = _as_failure(error, token)
            status, code = failure.status, failure.code
            if not response.fail(failure):
                self._respond_error(exchange, failure)
        finally:
            if turn.error is not None:
                status, code = turn.error.error.status, turn.error.error.code
            turn_log.finish_turn(time.monotonic(), status=status, finish=turn.finish, code=code, usage=turn.usage)

    def _open_sink(self, exchange: Exchange, request: Request, token: str) -> AnswerSink:
        envelope = Envelope(token=token, created=int(time.time()), model=request.model, request=request)
        if request.stream:
            return StreamSink(self.wire, envelope, exchange, keepalive=self.settings.keepalive_seconds)
        return BufferedSink(self.wire, envelope, exchange)

    def _respond_error(self, exchange: Exchange, error: ToolrelayError) -> None:
        respond_error(exchange, error, self.wire.encode_error)


class _FirstEventTimer:
    """Records when the first event of the model arrives."""

    __slots__ = ("_sink", "_turn_log", "put")

    def __init__(self, sink: Sink, turn_log: TurnLog) -> None:
        self._sink = sink
        self._turn_log = turn_log
        self.put = self._put_first

    def _put_first(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if type(events[0]) is not AnswerFailed:
            self._turn_log.mark_first_event(time.monotonic())
        self.put = self._sink.put
        return self._sink.put(events)


def _as_failure(error: BaseException, token: str) -> ToolrelayError:
    """Return the error for the client. Log an exception that is a fault of the gateway."""
    if isinstance(error, ToolrelayError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return _shutting_down()
    log.exception("internal_error", turn=token)
    return InternalError(f"Something went wrong in the gateway. Its log says more under turn {token}.")


def _shutting_down() -> InternalError:
    """Return the error of a turn that is cancelled while its client is connected."""
    return InternalError("The gateway is shutting down.", status=503, code="shutting_down")
