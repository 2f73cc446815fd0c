"""Endpoints that count the input tokens of a request without sending it to the model.

What is counted is what the model would get: with the gateway's tools, and with tools as text if it prints its calls. A provider
that cannot count gets no request: the gateway estimates, and says so in the response and in its header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from toolrelay import log
from toolrelay.backends.base import CountingBackend
from toolrelay.core.commands import CallModel
from toolrelay.core.request import Request
from toolrelay.core.request_checks import check_tool_choice, remove_tools, truncate_results
from toolrelay.core.token_estimate import estimate_input_tokens
from toolrelay.core.turn import Turn
from toolrelay.errors import InternalError, ToolrelayError
from toolrelay.runtime.limits import ConcurrencyLimit
from toolrelay.runtime.models import Model, find_model
from toolrelay.runtime.service import TurnService, owner_of
from toolrelay.settings import ServerSettings
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.web.access import Access
from toolrelay.web.auth import Identity
from toolrelay.web.http.exchange import JSON, ClientDisconnectedError, Exchange
from toolrelay.web.router import add_request_id, internal_error, respond_error, turn_token_of
from toolrelay.wires.base import TokenCounting, Wire

ESTIMATED = b"x-toolrelay-estimated: true\r\n"


class TokenCountEndpoint(Struct, frozen=True, kw_only=True):
    wire: Wire
    counting: TokenCounting
    models: Mapping[str, Model]
    limit: ConcurrencyLimit
    access: Access
    settings: ServerSettings
    service: TurnService

    async def handle(self, exchange: Exchange) -> None:
        exchange.max_discard = self.settings.max_body_bytes
        add_request_id(exchange, self.wire.request_id_header)
        try:
            identity = await self.access.admit(exchange)
            body = await exchange.body(self.settings.max_body_bytes)
            model, request = await self._accept(body, identity, turn_token_of(exchange))
            self.limit.enter()
        except ClientDisconnectedError:
            return
        except ToolrelayError as error:
            self._refuse(exchange, error)
            return
        try:
            with exchange.cancel_on_disconnect():
                backend = model.own_backend
                count = await backend.count_tokens(request) if isinstance(backend, CountingBackend) else None
        except ClientDisconnectedError:
            return
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 -- the client gets a response in any case
            self._refuse(exchange, _as_failure(error, turn_token_of(exchange)))
            return
        finally:
            self.limit.leave()
        is_estimate = count is None
        counted = self.counting.encode_count(estimate_input_tokens(request) if count is None else count, is_estimate=is_estimate)
        exchange.respond(200, JSON + ESTIMATED if is_estimate else JSON, counted)

    async def _accept(self, body: bytes, identity: Identity, token: str) -> tuple[Model, Request]:
        """Return the model, and the request as the model would get it."""
        request = self.counting.decode_request(body)
        model = find_model(self.models, request.model, identity.may_use)
        if model.settings.tool_calling == "off":
            request = remove_tools(request)
        policy = self.service.policy(request, model, identity)
        check_tool_choice(request, policy.tools)
        request = truncate_results(request, model.settings.max_tool_result_bytes)
        past = await self.service.resolve(request, owner_of(identity), model)
        turn = Turn(token=token, request=past.request, policy=policy, context=past.context.items)
        layer = ToolCallLayer(turn, model.mode)
        asked = [command.request for command in layer.start() if isinstance(command, CallModel)]
        return model, asked[0] if asked else request

    def _refuse(self, exchange: Exchange, error: ToolrelayError) -> None:
        log.info("refused", turn=turn_token_of(exchange), wire=self.wire.name, status=error.status, code=error.code)
        respond_error(exchange, error, self.wire.encode_error)


def _as_failure(error: BaseException, token: str) -> ToolrelayError:
    if isinstance(error, ToolrelayError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return InternalError("The gateway is shutting down.", status=503, code="shutting_down")
    log.exception("internal_error", turn=token)
    return internal_error()
