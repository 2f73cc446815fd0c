"""The API endpoints, one per wire.

bytes → wire.decode_request → the model's backend and rules → a turn → a sink → bytes

A turn of which nothing is recorded (a plain relay) runs in its connection's task. A recorded one belongs to the runtime
(runtime.turns): its client follows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolrelay import log
from toolrelay.clients.xml.exchange import XmlExchange, xml_client_options
from toolrelay.clients.xml.watchdog import ResultWatchdog
from toolrelay.core.events import AnswerFinished, AnswerStarted
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request
from toolrelay.core.request_checks import check_tool_choice, remove_tools, truncate_results
from toolrelay.core.turn import Turn
from toolrelay.errors import ClientError, InternalError, ToolrelayError, invalid
from toolrelay.runtime.driver import Sink, drive
from toolrelay.runtime.keys import KeyRing
from toolrelay.runtime.limits import ConcurrencyLimit, TurnSlot
from toolrelay.runtime.models import Model, apply_defaults, find_model
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.runtime.recordings.recorder import RecordedRequest, Recorder
from toolrelay.runtime.service import Observation, TurnOrder, TurnService, owner_of, plain_policy
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.runtime.turns import RunningTurn
from toolrelay.settings import ServerSettings
from toolrelay.stores.turns import TurnRow
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.web.access import Access
from toolrelay.web.auth import Identity
from toolrelay.web.background import respond_in_background
from toolrelay.web.http.exchange import JSON, ClientDisconnectedError, Exchange
from toolrelay.web.observing import FirstEventTimer, Once, ending, finish_log
from toolrelay.web.responses import encode_resource
from toolrelay.web.router import add_request_id, respond_error, turn_token_of
from toolrelay.web.sinks import AnswerSink, BufferedSink, StreamSink
from toolrelay.wires.base import Envelope, Wire
from toolrelay.wires.responses.request import NAME as RESPONSES

_CLIENT_GONE = 499
MAX_IDEMPOTENCY_KEY = 256  # characters
MAX_PASSED_HEADER = 2048  # characters


class _Accepted(Struct, frozen=True, kw_only=True):
    """A request that may run. `digest` is that of its body."""

    request: Request
    model: Model
    identity: Identity
    policy: Policy
    xml: XmlExchange | None = None
    idempotency_key: str | None = None
    digest: str = ""


class Endpoint(Struct, frozen=True, kw_only=True):
    wire: Wire
    models: Mapping[str, Model]
    metrics: Metrics
    limit: ConcurrencyLimit
    access: Access
    keys: KeyRing
    watchdog: ResultWatchdog
    settings: ServerSettings
    service: TurnService
    recorder: Recorder | None = None

    async def handle(self, exchange: Exchange) -> None:
        started = time.monotonic()
        exchange.max_discard = self.settings.max_body_bytes
        add_request_id(exchange, self.wire.request_id_header)
        try:
            identity = await self.access.admit(exchange)
            body = await exchange.body(self.settings.max_body_bytes)
            accepted = self._accept(body, identity, exchange)
            self.limit.enter()
        except ClientDisconnectedError:
            return
        except asyncio.CancelledError:
            self._respond_error(exchange, _shutting_down())
            return
        except ToolrelayError as error:
            self.refuse(exchange, error)
            return
        self.metrics.open += 1
        if self.recorder is not None:
            accepted = self._record(self.recorder, accepted, body, turn_token_of(exchange))
        turn_log = self._turn_log(turn_token_of(exchange), accepted.request, owner_of(accepted.identity), started)
        if self.service.is_recorded(accepted.request, accepted.policy):
            await self._run_recorded(exchange, accepted, turn_log)
            return
        try:
            await self._run_plain(exchange, accepted, turn_log)
        finally:
            self.metrics.open -= 1
            self.limit.leave()

    async def prepare(self, exchange: Exchange) -> None:
        """Respond to a request whose response is only prepared, over a WebSocket: it is checked, and the model is not asked."""
        try:
            identity = await self.access.admit(exchange)
            accepted = self._accept(await exchange.body(self.settings.max_body_bytes), identity, exchange)
            await self.service.resolve(accepted.request, owner_of(identity), accepted.model)
        except ToolrelayError as error:
            self.refuse(exchange, error)
            return
        request = replace(accepted.request, store=False)  # the connection keeps it
        response = self._open_sink(exchange, _envelope(turn_token_of(exchange), request))
        response.put([AnswerStarted(), AnswerFinished(finish="stop")])
        response.close()

    def _record(self, recorder: Recorder, accepted: _Accepted, body: bytes, token: str) -> _Accepted:
        blocks = accepted.model.settings.use_tool_order if accepted.xml is not None else ""
        received = RecordedRequest(body=body, request=accepted.request, wire=self.wire, turn=token, blocks=blocks)
        return replace(accepted, model=recorder.tap(accepted.model, received))

    def _leave(self, slot: TurnSlot) -> None:
        self.metrics.open -= 1
        slot.leave()

    def _accept(self, body: bytes, identity: Identity, exchange: Exchange) -> _Accepted:
        request = self.wire.decode_request(body)
        if self.wire.passed_headers:
            request = replace(request, headers=_passed_headers(self.wire, exchange.headers))
        model = find_model(self.models, request.model, identity.may_use)
        settings, headers = model.settings, exchange.headers
        request = apply_defaults(request, settings)
        if request.model != settings.name:
            request = replace(request, model=settings.name)
        if settings.tool_calling == "off":
            request = remove_tools(request)
        if identity.key is not None:
            request = replace(request, key=identity.key)
        xml_options = xml_client_options(settings, headers)
        if xml_options is not None:
            check_tool_choice(request)
            for member in ("background", "conversation"):
                if getattr(request, member):
                    raise invalid(f"{member!r} is not possible for clients that read <use_tool> blocks.", member)
            if request.wire == RESPONSES:
                request = replace(request, store=False)  # what these clients see is not what would be recorded
            if settings.toolsets and model.mode.warn_once("toolsets"):
                log.warning("tools_not_offered", model=settings.name, client="use_tool")
            xml = XmlExchange(request, xml_options, self.watchdog)
            request = truncate_results(xml.request, settings.max_tool_result_bytes)
            return _Accepted(request=request, model=model, identity=identity, policy=plain_policy(request), xml=xml)
        if settings.toolsets and headers.get(b"x-toolrelay-tools", b"").lower() == b"off":
            request = replace(request, takes_gateway_tools=False)
        policy = self.service.policy(request, model, identity)
        check_tool_choice(request, policy.tools)
        request = truncate_results(request, settings.max_tool_result_bytes)
        if not policy.tools:
            return _Accepted(request=request, model=model, identity=identity, policy=policy)
        return _Accepted(
            request=request,
            model=model,
            identity=identity,
            policy=policy,
            idempotency_key=_idempotency_key(headers),
            digest=sha256(self.wire.name.encode() + body).hexdigest(),
        )

    def _turn_log(self, token: str, request: Request, owner: str, started: float) -> TurnLog:
        key = None if request.key is None else self.keys.name_of(request.key)
        fields: dict[str, Any] = {"turn": token, "model": request.model, "key": key, "stream": request.stream}
        metrics = self.metrics.model(request.model)
        return TurnLog(metrics, fields, self.wire.name, started, owner=owner, with_content=self.settings.log_content)

    def observe(self, row: TurnRow, request: Request) -> Observation:
        """Return the log of a turn that goes on after a restart."""
        turn_log = self._turn_log(row.id, request, row.owner, time.monotonic())
        turn_log.continue_turn()
        self.metrics.open += 1

        def end(running: RunningTurn) -> None:
            self.metrics.open -= 1
            finish_log(turn_log, running)

        return Observation(turn_log, end)

    # Plain relays

    async def _run_plain(self, exchange: Exchange, accepted: _Accepted, turn_log: TurnLog) -> None:
        token, request = turn_token_of(exchange), accepted.request
        try:
            past = await self.service.resolve(request, owner_of(accepted.identity), accepted.model)
            if past.taken.calls:
                message = "This request answers questions about gateway tools, but the model may not use any, or they are off."
                raise invalid(message, "input", code="no_gateway_tools")
        except ToolrelayError as error:
            self.refuse(exchange, error)
            return
        turn = Turn(token=token, request=past.request, policy=accepted.policy, context=past.context.items)
        response = self._open_sink(exchange, _envelope(token, request))
        sink = _client_sink(accepted, response, turn_log, token)
        status, code = 200, None
        try:
            with exchange.cancel_on_disconnect():
                model = accepted.model
                layer = ToolCallLayer(turn, model.mode, model.route)
                await drive(layer, model.backend, FirstEventTimer(sink, turn_log), turn_log)
            response.close()
        except ClientDisconnectedError:
            response.stop()
            status, code = _CLIENT_GONE, _gone_code(exchange)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            failure = _as_failure(error, token)
            status, code = failure.status, failure.code
            self._fail(exchange, response, failure)
        finally:
            if turn.error is not None:
                status, code = turn.error.error.status, turn.error.error.code
            turn_log.finish_turn(time.monotonic(), status=status, finish=turn.finish, code=code, usage=turn.usage)

    # Recorded turns

    async def _run_recorded(self, exchange: Exchange, accepted: _Accepted, turn_log: TurnLog) -> None:
        token, owner = turn_token_of(exchange), owner_of(accepted.identity)
        slot = TurnSlot(self.limit)
        leave = Once(lambda: self._leave(slot))
        end = ending(turn_log, leave)

        response: AnswerSink | None = None
        follower: FirstEventTimer | None = None
        try:
            known = await self.service.find_repeated(owner, accepted.idempotency_key, accepted.digest)
            if known is not None:
                await self._repeat(exchange, known, turn_log, leave, slot)
                return
            order = TurnOrder(
                token=token,
                owner=owner,
                request=accepted.request,
                model=accepted.model,
                policy=accepted.policy,
                observer=turn_log,
                slot=slot,
                idempotency_key=accepted.idempotency_key,
                digest=accepted.digest or None,
            )
            if not accepted.request.background:
                response = self._open_sink(exchange, _envelope(token, accepted.request))
                follower = FirstEventTimer(_client_sink(accepted, response, turn_log, token), turn_log)
            running = await self.service.start(order, follower, end)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            leave()
            failure = _as_failure(error, token)
            if response is None or not response.fail(failure):
                self.refuse(exchange, failure)
            return
        if response is None or follower is None:
            try:
                await running.wait_for_record()  # the client may ask for it as soon as it has the id
            except ToolrelayError as error:
                self.refuse(exchange, error)
                return
            row, request, keepalive = running.row, running.parts.turn.request, self.settings.keepalive_seconds
            await respond_in_background(exchange, self.service, row, request, keepalive=keepalive)
            return
        await self._follow(exchange, response, follower, running)

    async def _follow(self, exchange: Exchange, response: AnswerSink, follower: Sink, running: RunningTurn) -> None:
        """Wait for the end of a turn whose events the response gets.

        The client's leaving cancels it, unless others follow, or a person is asked and the client can get the answer later.
        """
        try:
            with exchange.cancel_on_disconnect():
                await running.wait(follower)
            response.close()
        except ClientDisconnectedError:
            response.stop()
            if not running.has_followers and not running.can_park:
                gone = InternalError("The client has gone.", status=_CLIENT_GONE, code=_gone_code(exchange))
                await running.cancel(gone)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            if isinstance(error, asyncio.CancelledError) and not running.can_park:
                await running.cancel(_shutting_down())
            self._fail(exchange, response, _as_failure(error, running.row.id))

    async def _repeat(
        self, exchange: Exchange, past: PastTurn, turn_log: TurnLog, leave: Callable[[], None], slot: TurnSlot
    ) -> None:
        """Respond to a repeated request with the turn that it had started: follow it, continue it, or show it again."""
        if past.row.background:
            leave()
            await self.service.end_stream(past)
            await self._show_background(exchange, past)
            return
        response = self._open_sink(exchange, past.envelope)
        follower = FirstEventTimer(response, turn_log)
        running = self.service.turns.find(past.row.id, past.row.owner)
        if running is not None:
            leave()
            running.attach(follower)
        elif not past.can_resume:
            leave()
            try:
                response.put(past.shown_events())
                response.close()
            except ToolrelayError as error:
                self._fail(exchange, response, error)
            return
        else:
            turn_log.continue_turn()
            running = await self.service.resume(past, follower, Observation(turn_log, ending(turn_log, leave), slot))
            if running.parts.observer is not turn_log:
                leave()
        await self._follow(exchange, response, follower, running)

    async def _show_background(self, exchange: Exchange, past: PastTurn) -> None:
        if past.request.stream:
            keepalive = self.settings.keepalive_seconds
            await respond_in_background(exchange, self.service, past.row, past.request, keepalive=keepalive)
        else:
            exchange.respond(200, JSON, encode_resource(past))

    # Responses

    def _open_sink(self, exchange: Exchange, envelope: Envelope) -> AnswerSink:
        if envelope.request.stream:
            return StreamSink(self.wire, envelope, exchange, keepalive=self.settings.keepalive_seconds)
        return BufferedSink(self.wire, envelope, exchange)

    def _fail(self, exchange: Exchange, response: AnswerSink, error: ToolrelayError) -> None:
        if not response.fail(error):
            self._respond_error(exchange, error)

    def refuse(self, exchange: Exchange, error: ToolrelayError) -> None:
        log.info("refused", turn=turn_token_of(exchange), wire=self.wire.name, status=error.status, code=error.code)
        self._respond_error(exchange, error)

    def _respond_error(self, exchange: Exchange, error: ToolrelayError) -> None:
        respond_error(exchange, error, self.wire.encode_error)


def _client_sink(accepted: _Accepted, response: AnswerSink, turn_log: TurnLog, token: str) -> Sink:
    return response if accepted.xml is None else accepted.xml.sink(response, turn_log, turn=token)


def _passed_headers(wire: Wire, headers: Mapping[bytes, bytes]) -> dict[str, str] | None:
    """Return the headers that go on to a provider of the same wire."""
    found = {name: headers[name.encode()].decode("latin-1") for name in wire.passed_headers if name.encode() in headers}
    for name, value in found.items():
        if len(value) > MAX_PASSED_HEADER:
            raise ClientError(f"The header {name} is longer than {MAX_PASSED_HEADER} characters.", code="invalid_header")
    return found or None


def _idempotency_key(headers: Mapping[bytes, bytes]) -> str | None:
    value = headers.get(b"idempotency-key", b"").decode("latin-1").strip()
    if len(value) > MAX_IDEMPOTENCY_KEY:
        raise ClientError(f"The Idempotency-Key is longer than {MAX_IDEMPOTENCY_KEY} characters.", code="invalid_idempotency_key")
    return value or None


def _envelope(token: str, request: Request) -> Envelope:
    return Envelope(token=token, created=int(time.time()), model=request.model, request=request)


def _gone_code(exchange: Exchange) -> str:
    return "client_stalled" if exchange.stalled else "client_gone"


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
