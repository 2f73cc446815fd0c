"""Routing by method and path, CORS and error responses."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import TypeAlias

from toolrelay import log
from toolrelay.core.identity import make_token
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.web.auth import Authenticator
from toolrelay.web.http.exchange import JSON, Exchange, header_line
from toolrelay.wires.errors import encode_error

Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]

_ID_PREFIX = "req_"


class Router:
    """The application that the HTTP server runs.

    Routes are written without /v1, which is optional in a request. A route that ends in / matches all paths below it; the rest
    of the path is then in `exchange.path_suffix`.
    """

    def __init__(self, handlers: Mapping[tuple[str, str], Handler], authenticator: Authenticator) -> None:
        self._handlers = dict(handlers)
        self._routes = {route for _, route in handlers}
        self._prefixes = sorted({route for route in self._routes if route.endswith("/") and route != "/"}, key=len, reverse=True)
        exact = self._routes.difference(self._prefixes)
        self._exact = {route: route for route in exact} | {f"/v1{route}": route for route in exact}
        self._authenticator = authenticator

    def new_request_id(self) -> str:
        return _ID_PREFIX + make_token(os.urandom(10))

    async def handle(self, exchange: Exchange) -> None:
        route, exchange.path_suffix = self._match(exchange.path)
        is_allowed_origin = self._add_cors_headers(exchange)
        if exchange.method == "OPTIONS" and route in self._routes:
            self._respond_options(exchange, route, is_allowed_origin=is_allowed_origin)
            return
        handler = self._handlers.get(("GET" if exchange.method == "HEAD" else exchange.method, route))
        if handler is None:
            self._respond_unrouted(exchange, route)
            return
        try:
            await handler(exchange)
        except ToolrelayError as error:
            respond_error(exchange, error)
        except Exception:  # noqa: BLE001 -- the client gets a response in any case
            log.exception("internal_error", turn=turn_token_of(exchange), path=exchange.path)
            respond_error(exchange, InternalError("Something went wrong in the gateway. Its log says more."))

    def refuse(self, exchange: Exchange, error: ClientError) -> None:
        log.info("refused", turn=turn_token_of(exchange), status=error.status, code=error.code)
        respond_error(exchange, error)

    def _match(self, path: str) -> tuple[str, str]:
        """Return the route and the path's suffix. Users paste base URLs with and without /v1, and with extra slashes."""
        route = self._exact.get(path)
        if route is not None:
            return route, ""
        path = "/" + "/".join(filter(None, path.split("/")))
        if path == "/v1" or path.startswith("/v1/"):
            path = path[3:] or "/"
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return prefix, path[len(prefix) :]
        return path, ""

    def _methods(self, route: str) -> list[str]:
        return sorted(method for method, each in self._handlers if each == route)

    def _respond_unrouted(self, exchange: Exchange, route: str) -> None:
        path, methods = exchange.path, self._methods(route)
        if methods:
            exchange.response_headers += _allow(methods)
            message = f"{path} takes {' or '.join(methods)}, not {exchange.method}."
            error = ClientError(message, status=405, code="method_not_allowed")
        else:
            error = ClientError(f"There is nothing at {path}. The API is below /v1.", status=404, code="not_found")
        respond_error(exchange, error)

    def _add_cors_headers(self, exchange: Exchange) -> bool:
        """Return whether the request names an origin that may read the response."""
        origin = exchange.headers.get(b"origin")
        if origin is None or not self._authenticator.allows_origin(origin.decode("latin-1")):
            return False
        exchange.response_headers += header_line(b"access-control-allow-origin", origin)
        exchange.response_headers += b"access-control-expose-headers: x-request-id, retry-after\r\nvary: origin\r\n"
        return True

    def _respond_options(self, exchange: Exchange, route: str, *, is_allowed_origin: bool) -> None:
        """Answer a CORS preflight. Without its headers the browser refuses."""
        methods = self._methods(route)
        headers = _allow(methods)
        if is_allowed_origin:
            requested = exchange.headers.get(b"access-control-request-headers", b"authorization, content-type")
            headers += header_line(b"access-control-allow-methods", ", ".join(methods).encode())
            headers += header_line(b"access-control-allow-headers", requested)
            headers += b"access-control-allow-private-network: true\r\naccess-control-max-age: 86400\r\n"
        exchange.respond(204, headers, b"")


def turn_token_of(exchange: Exchange) -> str:
    """Return the token that names the request's turn in the log and in the ids of its response."""
    return exchange.request_id[len(_ID_PREFIX) :]


def respond_error(exchange: Exchange, error: ToolrelayError, encode: Callable[[ToolrelayError], bytes] = encode_error) -> None:
    """Respond with an error, by default in OpenAI's format."""
    headers = JSON
    if error.retry_after is not None:
        headers += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after))
    if error.status == 401:
        headers += b"www-authenticate: Bearer\r\n"
    if error.status == 408 and isinstance(error, ClientError):  # the late rest of the body would be read as the next request
        exchange.keep_alive = False
    exchange.respond(error.status, headers, encode(error))


def _allow(methods: list[str]) -> bytes:
    implied = {"OPTIONS", "HEAD"} if "GET" in methods else {"OPTIONS"}
    return b"allow: %b\r\n" % ", ".join(sorted(implied.union(methods))).encode()
