"""Endpoints that shorten a conversation: the model's server does it, if its API can.

What is shortened includes the conversation that the request continues. Keys, limits, log and metrics are those of the other
endpoints. The answer is for the client: nothing of it is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.backends.base import CompactingBackend
from toolrelay.core.events import Usage
from toolrelay.core.request import Request
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.models import Model, find_model
from toolrelay.runtime.service import TurnService, owner_of
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.settings import ServerSettings
from toolrelay.web.access import Access
from toolrelay.web.auth import Identity
from toolrelay.web.http.exchange import JSON, ClientDisconnectedError, Exchange
from toolrelay.web.router import internal_error, respond_error, turn_token_of
from toolrelay.wires.base import Compaction, Wire

_CLIENT_GONE = 499


class CompactionEndpoint(Struct, frozen=True, kw_only=True):
    wire: Wire
    compaction: Compaction
    models: Mapping[str, Model]
    metrics: Metrics
    limit: ConcurrencyLimit
    access: Access
    settings: ServerSettings
    service: TurnService

    async def handle(self, exchange: Exchange) -> None:
        started = time.monotonic()
        exchange.max_discard = self.settings.max_body_bytes
        try:
            identity = await self.access.admit(exchange)
            model, request = await self._accept(await exchange.body(self.settings.max_body_bytes), identity)
            self.limit.enter()
        except ClientDisconnectedError:
            return
        except ToolrelayError as error:
            log.info("refused", turn=turn_token_of(exchange), wire=self.wire.name, status=error.status, code=error.code)
            respond_error(exchange, error, self.wire.encode_error)
            return
        self.metrics.open += 1
        try:
            await self._run(exchange, model, request, self._turn_log(exchange, model, identity, started))
        finally:
            self.metrics.open -= 1
            self.limit.leave()

    async def _accept(self, body: bytes, identity: Identity) -> tuple[Model, Request]:
        """Return the model, and the request with the conversation that it continues."""
        request = self.compaction.decode_request(body)
        model = find_model(self.models, request.model, identity.may_use)
        past = await self.service.resolve(request, owner_of(identity), model)
        return model, replace(past.request, items=(*past.context.items, *past.request.items))

    def _turn_log(self, exchange: Exchange, model: Model, identity: Identity, started: float) -> TurnLog:
        name = model.settings.name
        fields = {"turn": turn_token_of(exchange), "model": name, "key": identity.name, "stream": False}
        wire = f"{self.wire.name}_compact"
        return TurnLog(self.metrics.model(name), fields, wire, started, owner=owner_of(identity), with_content=False)

    async def _run(self, exchange: Exchange, model: Model, request: Request, turn_log: TurnLog) -> None:
        status: int = 200
        code: str | None = None
        usage: Usage | None = None
        try:
            with exchange.cancel_on_disconnect():
                body = await self._compact(model, request)
            usage = self.compaction.decode_usage(body)
            exchange.respond(200, JSON, body)
        except ClientDisconnectedError:
            status, code = _CLIENT_GONE, "client_stalled" if exchange.stalled else "client_gone"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            failure = _as_failure(error, turn_token_of(exchange))
            status, code = failure.status, failure.code
            respond_error(exchange, failure, self.wire.encode_error)
        finally:
            turn_log.finish_turn(time.monotonic(), status=status, finish=None, code=code, usage=usage)

    async def _compact(self, model: Model, request: Request) -> bytes:
        backend = model.own_backend
        body = await backend.compact(request) if isinstance(backend, CompactingBackend) else None
        if body is None:
            message = (
                f"The server of the model {model.settings.name!r} has no {self.compaction.path}: only models that are reached "
                "over the Responses API can have it. Ask the model itself for a summary, and continue with that."
            )
            raise ClientError(message, param="model", code="unsupported_by_upstream")
        return body


def _as_failure(error: BaseException, token: str) -> ToolrelayError:
    if isinstance(error, ToolrelayError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return InternalError("The gateway is shutting down.", status=503, code="shutting_down")
    log.exception("internal_error", turn=token)
    return internal_error()
