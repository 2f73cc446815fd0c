"""Endpoints that are passed on to the model's server as they are: only the model's name is replaced, and errors are encoded.

Keys, limits, log and metrics are those of the other endpoints. No turn is recorded, and no tool is offered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from toolrelay import log
from toolrelay.backends.base import RelayedResponse, RelayingBackend, Wanted
from toolrelay.core.commands import Notice
from toolrelay.core.events import Noticed, StreamEvent, Usage
from toolrelay.errors import ClientError, InternalError, ToolrelayError, invalid
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.models import Model, find_model
from toolrelay.runtime.service import owner_of
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.settings import ServerSettings
from toolrelay.web.access import Access
from toolrelay.web.auth import Identity
from toolrelay.web.http.exchange import EVENT_STREAM, JSON, ClientDisconnectedError, Exchange
from toolrelay.web.router import internal_error, respond_error, turn_token_of
from toolrelay.wires.errors import encode_error
from toolrelay.wires.json import encode

RELAYED_PATHS = ("/embeddings", "/completions")

_CLIENT_GONE = 499


class _Order(Struct, frozen=True, kw_only=True):
    """A request that may be passed on."""

    model: Model
    backend: RelayingBackend
    identity: Identity
    body: bytes
    stream: bool


class _Head(Struct):
    model: str
    stream: bool | None = None


class _UsageMembers(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int | None = None


class _RelayedAnswer(Struct):
    usage: _UsageMembers | None = None


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_answer = msgspec.json.Decoder(_RelayedAnswer).decode


class RelayEndpoint(Struct, frozen=True, kw_only=True):
    path: str
    models: Mapping[str, Model]
    metrics: Metrics
    limit: ConcurrencyLimit
    access: Access
    settings: ServerSettings

    async def handle(self, exchange: Exchange) -> None:
        started = time.monotonic()
        exchange.max_discard = self.settings.max_body_bytes
        try:
            identity = await self.access.admit(exchange)
            order = self._accept(await exchange.body(self.settings.max_body_bytes), identity)
            self.limit.enter()
        except ClientDisconnectedError:
            return
        except ToolrelayError as error:
            log.info("refused", turn=turn_token_of(exchange), wire=self._name, status=error.status, code=error.code)
            respond_error(exchange, error)
            return
        self.metrics.open += 1
        try:
            await self._run(exchange, order, started)
        finally:
            self.metrics.open -= 1
            self.limit.leave()

    @property
    def _name(self) -> str:
        """The endpoint's name in the log, where turns have their wire's."""
        return f"openai_{self.path[1:]}"

    def _accept(self, body: bytes, identity: Identity) -> _Order:
        try:
            members, head = _decode_members(body), _decode_head(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise invalid(f"The body must be a JSON object with a 'model': {error}.", code="invalid_json") from None
        model = find_model(self.models, head.model, identity.may_use)
        backend = model.own_backend
        if not isinstance(backend, RelayingBackend):
            provider = model.settings.provider
            message = f"The model {head.model!r} has no {self.path}: its provider, {provider}, is no server with OpenAI's API."
            raise ClientError(message, param="model", code="unsupported_by_upstream")
        members["model"] = msgspec.Raw(encode(backend.model))
        stream = bool(head.stream) and self.path == "/completions"
        return _Order(model=model, backend=backend, identity=identity, body=encode(members), stream=stream)

    async def _run(self, exchange: Exchange, order: _Order, started: float) -> None:
        token, name = turn_token_of(exchange), order.model.settings.name
        fields = {"turn": token, "model": name, "key": order.identity.name, "stream": order.stream}
        turn_log = TurnLog(
            self.metrics.model(name), fields, self._name, started, owner=owner_of(order.identity), with_content=False
        )
        status, code, usage = 200, None, None
        try:
            with exchange.cancel_on_disconnect():
                usage = await self._relay(exchange, order, turn_log)
        except ClientDisconnectedError:
            status, code = _CLIENT_GONE, "client_stalled" if exchange.stalled else "client_gone"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            failure = _as_failure(error, token)
            status, code = failure.status, failure.code
            _fail(exchange, failure)
        finally:
            turn_log.finish_turn(time.monotonic(), status=status, finish=None, code=code, usage=usage)

    async def _relay(self, exchange: Exchange, order: _Order, turn_log: TurnLog) -> Usage | None:
        def deliver(events: list[StreamEvent]) -> Wanted | None:
            for event in events:
                if isinstance(event, Noticed):
                    turn_log.notice(Notice(event=event.event, rule=event.rule))
            return None

        response = await order.backend.relay(self.path, order.body, deliver, stream=order.stream)
        try:
            if response.is_stream:
                await _pass_on(exchange, response)
                return None
            body = await response.read_all()
            exchange.respond(200, JSON, body)
            return _usage_of(body)
        finally:
            response.release()


async def _pass_on(exchange: Exchange, response: RelayedResponse) -> None:
    data = await response.read()
    exchange.begin(200, EVENT_STREAM)
    while data:
        waiting = exchange.write(data)
        if waiting is not None:
            await waiting
        data = await response.read()
    exchange.end()


def _fail(exchange: Exchange, error: ToolrelayError) -> None:
    """Respond with an error. A stream that was started ends with it."""
    if not exchange.response_started:
        respond_error(exchange, error)
        return
    exchange.write(b"data: %b\n\n" % encode_error(error))
    exchange.end()


def _usage_of(body: bytes) -> Usage | None:
    try:
        usage = _decode_answer(body).usage
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if usage is None:
        return None
    return Usage(input=usage.prompt_tokens, output=usage.completion_tokens, total=usage.total_tokens)


def _as_failure(error: BaseException, token: str) -> ToolrelayError:
    if isinstance(error, ToolrelayError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return InternalError("The gateway is shutting down.", status=503, code="shutting_down")
    log.exception("internal_error", turn=token)
    return internal_error()
