"""What is at which address: a small router with CORS, and the pages that need no door."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import TypeAlias

from toolrelay import log
from toolrelay.core.identity import token
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.web.asgi import JSON, Headers, Receive, Scope, Send, header, read_body, respond
from toolrelay.web.auth import Gatekeeper, Identity
from toolrelay.wires._errors import encode_error

Page: TypeAlias = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request and the way to answer it. `headers` go with whatever is answered; `rest` is what follows a page's path.

    `token` names the request in the log and, as x-request-id, in the answer.
    """

    __slots__ = ("_gatekeeper", "_identity", "headers", "receive", "rest", "scope", "send", "token")

    def __init__(self, scope: Scope, receive: Receive, send: Send, gatekeeper: Gatekeeper, rest: str = "") -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.rest = rest
        self.token = token(secrets.token_bytes(10))
        self.headers: Headers = [(b"x-request-id", b"req_" + self.token.encode())]
        self._gatekeeper = gatekeeper
        self._identity: Identity | None = None

    def identify(self) -> Identity:
        """Who asks; raises where that may not be."""
        if self._identity is None:
            self._identity = self._gatekeeper.identify(self.scope)
        return self._identity

    async def body(self, limit: int) -> bytes:
        return await read_body(self.scope, self.receive, limit)


class Site:
    """`pages` by method and path. Paths come without /v1, which is optional; one that ends in / takes what follows it."""

    def __init__(self, pages: Mapping[tuple[str, str], Page], gatekeeper: Gatekeeper) -> None:
        self._pages = dict(pages)
        self._paths = {path for _, path in pages}
        self._prefixes = sorted({path for path in self._paths if path.endswith("/") and path != "/"}, key=len, reverse=True)
        whole = self._paths.difference(self._prefixes)
        self._addresses = {path: path for path in whole} | {f"/v1{path}": path for path in whole}
        self._gatekeeper = gatekeeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, rest = self._locate(scope["path"])
        exchange = Exchange(scope, receive, send, self._gatekeeper, rest)
        origin = header(scope, b"origin")
        shared = [] if origin is None else self._cors(origin)
        exchange.headers += shared
        method = scope["method"]
        if method == "OPTIONS" and path in self._paths:
            await self._preflight(exchange, path, allowed=bool(shared))
            return
        page = self._pages.get(("GET" if method == "HEAD" else method, path))
        if page is None:
            await self._respond_nothing(exchange, path)
            return
        try:
            await page(exchange)
        except ToolrelayError as error:
            await respond_error(exchange, error)
        except Exception:  # noqa: BLE001 -- whatever it is, the client gets an answer and the log the reason
            log.exception("internal_error", turn=exchange.token, path=scope["path"])
            await respond_error(exchange, InternalError("Something went wrong in the gateway. Its log says more."))

    def _locate(self, path: str) -> tuple[str, str]:
        """The page's path, and what follows it. Base URLs are pasted with and without /v1, and with slashes to spare."""
        found = self._addresses.get(path)
        if found is not None:
            return found, ""
        path = "/" + "/".join(filter(None, path.split("/")))
        if path == "/v1" or path.startswith("/v1/"):
            path = path[3:] or "/"
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return prefix, path[len(prefix) :]
        return path, ""

    def _methods(self, path: str) -> list[str]:
        return sorted(method for method, place in self._pages if place == path)

    async def _respond_nothing(self, exchange: Exchange, path: str) -> None:
        asked, methods = exchange.scope["path"], self._methods(path)
        if methods:
            exchange.headers.append(_allow(methods))
            message = f"{asked} takes {' or '.join(methods)}, not {exchange.scope['method']}."
            error = ClientError(message, status=405, code="method_not_allowed")
        else:
            error = ClientError(f"There is nothing at {asked}. The API is below /v1.", status=404, code="not_found")
        await respond_error(exchange, error)

    def _cors(self, origin: str) -> Headers:
        if not self._gatekeeper.allows_origin(origin):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"x-request-id, retry-after"),
            (b"vary", b"origin"),
        ]

    async def _preflight(self, exchange: Exchange, path: str, *, allowed: bool) -> None:
        """A foreign origin is told nothing: its browser takes that for a no."""
        methods = self._methods(path)
        headers = [*exchange.headers, _allow(methods)]
        if allowed:
            asked = header(exchange.scope, b"access-control-request-headers") or "authorization, content-type"
            headers += [
                (b"access-control-allow-methods", ", ".join(methods).encode()),
                (b"access-control-allow-headers", asked.encode("latin-1")),
                (b"access-control-allow-private-network", b"true"),
                (b"access-control-max-age", b"86400"),
            ]
        await respond(exchange.send, 204, headers, b"")


def _allow(methods: list[str]) -> tuple[bytes, bytes]:
    implied = {"OPTIONS", "HEAD"} if "GET" in methods else {"OPTIONS"}
    return b"allow", ", ".join(sorted(implied.union(methods))).encode()


async def respond_error(
    exchange: Exchange, error: ToolrelayError, encode: Callable[[ToolrelayError], bytes] = encode_error
) -> None:
    """An error, in OpenAI's shape unless the wire has one of its own."""
    headers = [*exchange.headers, JSON]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, ceil(error.retry_after))).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 408 and isinstance(error, ClientError):  # what comes late would be in the way of the next request
        headers.append((b"connection", b"close"))
    await respond(exchange.send, error.status, headers, encode(error))
