"""Routing by method and path, after the checks of every request; CORS and error responses."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from math import ceil
from typing import Protocol, TypeAlias

from toolrelay import log
from toolrelay.core.identity import make_ordered_token
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.web.auth import Authenticator
from toolrelay.web.guards import RequestGuard
from toolrelay.web.http.exchange import Exchange, header_line
from toolrelay.wires.errors import encode_error

Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]
ErrorEncoder: TypeAlias = Callable[[ToolrelayError], bytes]

_ID_PREFIX = "req_"
_ROOT = "/v1"
# Pages for people, which links of other sites may open.
_LINKABLE_PATHS = frozenset({"/", _ROOT, "/approvals-inbox", "/console/sign-in"})


_SERVED = (
    "This is Toolrelay, a gateway to language models. Of OpenAI's API it has, below /v1: POST /chat/completions, /responses, "
    "/responses/input_tokens, /responses/compact, /embeddings and /completions, GET /models, and the state of responses and "
    "conversations. Of Anthropic's API: POST /messages and /messages/count_tokens."
)
# Endpoints whose paths look like the page of a response with that id.
_NOT_IDS = frozenset(f"{root}/responses/{name}" for root in ("", _ROOT) for name in ("compact", "input_tokens"))


class Pages(Protocol):
    def methods(self, path: str) -> set[str]:
        """Return the methods of a path, except HEAD and OPTIONS. There are none if there is no such page."""
        ...

    async def handle(self, exchange: Exchange, path: str, root_path: str) -> None:
        """Respond with the page at `path`, which starts with `root_path`."""
        ...


class Router:
    """The application that the HTTP server runs: endpoints, which are all POST, and pages.

    Paths are written without /v1, which is optional in a request. `paths` are those of the endpoints. `error_encoders` are for
    endpoints whose errors are not in OpenAI's format.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Handler],
        pages: Pages,
        authenticator: Authenticator,
        error_encoders: Mapping[str, ErrorEncoder] | None = None,
    ) -> None:
        self.paths = tuple(endpoints)
        encoders = (error_encoders or {}).items()
        self._error_encoders = {f"{root}{path}": encoder for path, encoder in encoders for root in ("", _ROOT)}
        self._endpoints = {f"{root}{path}": handler for path, handler in endpoints.items() for root in ("", _ROOT)}
        self._websockets: dict[str, Handler] = {}
        self._pages = pages
        self._last_time = 0
        self._authenticator = authenticator
        self._guard = RequestGuard(authenticator.allows_origin, linkable_paths=_LINKABLE_PATHS)

    def new_request_id(self) -> str:
        """Return an id that never repeats: no two requests have the same time."""
        self._last_time = now = max(time.time_ns() // 1000, self._last_time + 1)
        return _ID_PREFIX + make_ordered_token(now, os.urandom(3))

    def add_websocket(self, path: str, handler: Handler) -> None:
        """Give WebSocket handshakes for this path to the handler."""
        self._websockets |= {f"{root}{path}": handler for root in ("", _ROOT)}

    async def handle(self, exchange: Exchange) -> None:
        path = exchange.path if exchange.path in self._endpoints else _normalize(exchange.path)
        try:
            self._guard.check(exchange, path)
        except ToolrelayError as error:
            self.refuse(exchange, error, self._error_encoders.get(path, encode_error))
            return
        is_allowed_origin = self._add_cors_headers(exchange)
        try:
            if exchange.method == "POST" and path in self._endpoints:
                await self._endpoints[path](exchange)
            else:
                await self._handle_page(exchange, path, is_allowed_origin=is_allowed_origin)
        except ToolrelayError as error:
            respond_error(exchange, error, self._error_encoders.get(path, encode_error))
        except Exception:  # noqa: BLE001 -- the client gets a response in any case
            log.exception("internal_error", turn=turn_token_of(exchange), path=exchange.path)
            respond_error(exchange, internal_error(), self._error_encoders.get(path, encode_error))

    async def _handle_page(self, exchange: Exchange, path: str, *, is_allowed_origin: bool) -> None:
        root_path = _ROOT if path == _ROOT or path.startswith(f"{_ROOT}/") else ""
        methods = set() if path in _NOT_IDS else self._pages.methods(path[len(root_path) :] or "/")
        if path in self._endpoints:
            methods.add("POST")
        allowed = sorted(methods)
        if exchange.headers.get(b"upgrade", b"").lower() == b"websocket":
            if path not in self._websockets or not exchange.is_handshake:
                raise _no_websocket(self._websockets)
            await self._websockets[path](exchange)
            return
        if not allowed:
            raise nothing_at(exchange.path)
        if exchange.method == "OPTIONS":
            self._respond_options(exchange, allowed, is_allowed_origin=is_allowed_origin)
        elif ("GET" if exchange.method == "HEAD" else exchange.method) in methods:
            await self._pages.handle(exchange, f"{path}/" if path == root_path else path, root_path)
        else:
            exchange.response_headers += _allow(allowed)
            message = f"{exchange.path} takes {' or '.join(allowed)}, not {exchange.method}."
            raise ClientError(message, status=405, code="method_not_allowed")

    def refuse(self, exchange: Exchange, error: ToolrelayError, encode: ErrorEncoder = encode_error) -> None:
        log.info("refused", turn=turn_token_of(exchange), status=error.status, code=error.code)
        respond_error(exchange, error, encode)

    def _add_cors_headers(self, exchange: Exchange) -> bool:
        """Return whether the request names an origin that may read the response."""
        origin = exchange.headers.get(b"origin")
        if origin is None or not self._authenticator.allows_origin(origin.decode("latin-1")):
            return False
        exchange.response_headers += header_line(b"access-control-allow-origin", origin)
        exchange.response_headers += (
            b"access-control-expose-headers: x-request-id, retry-after, x-should-retry\r\nvary: origin\r\n"
        )
        return True

    def _respond_options(self, exchange: Exchange, methods: list[str], *, is_allowed_origin: bool) -> None:
        """Answer a CORS preflight. Without its headers the browser refuses."""
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


def add_request_id(exchange: Exchange, name: str | None) -> None:
    """Send the request's id also under the name that an API has for it."""
    if name is not None:
        exchange.response_headers += b"%b: %b\r\n" % (name.encode(), exchange.request_id.encode())


def respond_error(exchange: Exchange, error: ToolrelayError, encode: ErrorEncoder = encode_error) -> None:
    """Respond with an error, by default in OpenAI's format."""
    headers = error_headers(error)
    if "connection" in headers:
        exchange.keep_alive = False
        del headers["connection"]
    exchange.respond(error.status, b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()), encode(error))


def error_headers(error: ToolrelayError) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, ceil(error.retry_after)))
    if error.should_retry is not None:
        headers["x-should-retry"] = str(error.should_retry).lower()
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 408 and isinstance(error, ClientError):  # the late rest of the body would be read as the next request
        headers["connection"] = "close"
    return headers


def nothing_at(path: str) -> ClientError:
    message = f"There is nothing at {path}. {_SERVED}"
    return ClientError(message, status=404, code="not_found")


def _no_websocket(served: Collection[str]) -> ClientError:
    """426 makes Codex fall back to HTTP at once; after other statuses it tries again."""
    message = "There is no WebSocket here. Send the request over plain HTTP: POST, with stream true for events."
    if served:
        message += f" A WebSocket is at {max(served, key=len)}."
    return ClientError(message, status=426, code="websocket_not_supported")


def internal_error() -> InternalError:
    return InternalError("Something went wrong in the gateway. Its log says more.")


def _normalize(path: str) -> str:
    """Remove extra slashes: users paste base URLs with them."""
    return "/" + "/".join(filter(None, path.split("/")))


def _allow(methods: list[str]) -> bytes:
    implied = {"OPTIONS", "HEAD"} if "GET" in methods else {"OPTIONS"}
    return b"allow: %b\r\n" % ", ".join(sorted(implied.union(methods))).encode()
