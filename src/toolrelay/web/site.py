"""The pages as a Starlette application: who may see them, and their errors in OpenAI's format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.web.access import Access
from toolrelay.web.asgi import Bridge
from toolrelay.web.auth import Identity
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.router import error_headers, internal_error, nothing_at, respond_error
from toolrelay.wires.errors import encode_error

_CLIENT_GONE = 499


class Site:
    """All pages of the gateway.

    A request for one of `routes` is authenticated and counted against its limit before its page runs; one for `open_routes` is
    not. Paths are written without /v1. A page raises a ToolrelayError to respond with it.
    """

    def __init__(self, *, routes: Iterable[Route], open_routes: Sequence[BaseRoute], access: Access, max_body_bytes: int) -> None:
        guard = [Middleware(_Guard, access=access)]
        self.routes = [*open_routes, *(_with_middleware(route, guard) for route in routes)]
        application = Starlette(
            routes=self.routes,
            exception_handlers=dict.fromkeys((ToolrelayError, HTTPException, ClientDisconnect, Exception), _respond_exception),
        )
        application.router.redirect_slashes = False  # the router has removed extra slashes
        self._bridge = Bridge(application, max_body_bytes=max_body_bytes)

    async def start(self) -> None:
        await self._bridge.start()

    async def stop(self) -> None:
        await self._bridge.stop()

    def methods(self, path: str) -> set[str]:
        """Return the methods of a path, except HEAD and OPTIONS, which are implied. There are none if there is no such page."""
        scope: Scope = {"type": "http", "method": "", "path": path, "root_path": "", "headers": []}
        found = [route for route in self.routes if route.matches(scope)[0] is not Match.NONE]
        # Files are mounted and have no list of methods.
        return {method for route in found for method in (getattr(route, "methods", None) or {"GET"})} - {"HEAD"}

    async def handle(self, exchange: Exchange, path: str, root_path: str) -> None:
        try:
            await self._bridge.handle(exchange, path, root_path)
        except asyncio.CancelledError:
            respond_error(exchange, InternalError("The gateway is shutting down.", status=503, code="shutting_down"))


def identify(request: Request) -> Identity:
    """Return who sent a request for a page that is not open."""
    identity: Identity = request.state.identity
    return identity


def exchange_of(request: Request) -> Exchange:
    """Return the exchange behind a request, for what ASGI has no place for."""
    exchange: Exchange = request.scope["toolrelay.exchange"]
    return exchange


class _Guard:
    """Authenticates and counts a request before its page runs."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["identity"] = await self._access.admit(scope["toolrelay.exchange"])
        await self._app(scope, receive, send)


def _with_middleware(route: Route, middleware: Sequence[Middleware]) -> Route:
    return Route(route.path, route.endpoint, methods=list(route.methods or ()), name=route.name, middleware=middleware)


def _error_response(error: ToolrelayError) -> Response:
    return Response(encode_error(error), error.status, error_headers(error))


async def _respond_exception(request: Request, error: Exception) -> Response:
    """Respond with what a page raised. Starlette raises an unexpected exception again after this, and the router logs it."""
    match error:
        case ToolrelayError():
            return _error_response(error)
        case ClientDisconnect():
            return Response(status_code=_CLIENT_GONE)
        case HTTPException(status_code=404):  # of a file that does not exist
            return _error_response(nothing_at(exchange_of(request).path))
        case HTTPException():
            response = _error_response(ClientError(error.detail, status=error.status_code, code="invalid_request"))
            response.headers.update(error.headers or {})
            return response
        case _:
            return _error_response(internal_error())
