"""What is at which address: a small router with CORS, and the pages that need no door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import structlog
from structlog.typing import FilteringBoundLogger

from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.web.asgi import JSON, Headers, Receive, Scope, Send, header, read_body, respond
from toolrelay.web.auth import Gatekeeper, Identity
from toolrelay.wires._errors import encode_error

Page: TypeAlias = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request and the way to answer it. `headers` go with whatever is answered; `rest` is what follows a page's path."""

    __slots__ = ("_gatekeeper", "_identity", "headers", "receive", "rest", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send, gatekeeper: Gatekeeper, rest: str = "") -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.rest = rest
        self.headers: Headers = []
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
        self._prefixes = sorted({path for _, path in pages if path.endswith("/") and path != "/"}, key=len, reverse=True)
        self._paths = {path for _, path in pages}
        self._gatekeeper = gatekeeper
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, rest = self._locate(scope["path"])
        exchange = Exchange(scope, receive, send, self._gatekeeper, rest)
        origin = header(scope, b"origin")
        if origin is not None:
            exchange.headers += self._cors(origin)
        method = scope["method"]
        if method == "OPTIONS" and path in self._paths:
            await self._preflight(exchange, path)
            return
        page = self._pages.get(("GET" if method == "HEAD" else method, path))
        if page is None:
            await respond_error(exchange, self._nothing(method, path, scope["path"]))
            return
        try:
            await page(exchange)
        except ToolrelayError as error:
            await respond_error(exchange, error)
        except Exception:  # noqa: BLE001 -- whatever it is, the client gets an answer and the log the reason
            self._log.exception("internal_error", path=scope["path"])
            await respond_error(exchange, InternalError("Something went wrong in the gateway. Its log says more."))

    def _locate(self, path: str) -> tuple[str, str]:
        if path.startswith("/v1/"):
            path = path[3:]
        if path in self._paths:
            return path, ""
        path = path.rstrip("/") or "/"
        if path in self._paths:
            return path, ""
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return prefix, path[len(prefix) :]
        return path, ""

    def _nothing(self, method: str, path: str, asked: str) -> ClientError:
        allowed = sorted(known for known, place in self._pages if place == path)
        if allowed:
            return ClientError(f"{asked} takes {' or '.join(allowed)}, not {method}.", status=405, code="method_not_allowed")
        return ClientError(f"There is nothing at {asked}. The API is below /v1.", status=404, code="not_found")

    def _cors(self, origin: str) -> Headers:
        if not self._gatekeeper.allows_origin(origin):
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"x-request-id, retry-after"),
            (b"vary", b"origin"),
        ]

    async def _preflight(self, exchange: Exchange, path: str) -> None:
        methods = sorted(method for method, place in self._pages if place == path)
        asked = header(exchange.scope, b"access-control-request-headers") or "authorization, content-type"
        headers = [
            *exchange.headers,
            (b"access-control-allow-methods", ", ".join([*methods, "OPTIONS"]).encode()),
            (b"access-control-allow-headers", asked.encode("latin-1")),
            (b"access-control-allow-private-network", b"true"),
            (b"access-control-max-age", b"86400"),
        ]
        await respond(exchange.send, 204, headers, b"")


async def respond_error(
    exchange: Exchange, error: ToolrelayError, encode: Callable[[ToolrelayError], bytes] = encode_error
) -> None:
    """An error, in OpenAI's shape unless the wire has one of its own."""
    headers = [*exchange.headers, JSON]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await respond(exchange.send, error.status, headers, encode(error))
