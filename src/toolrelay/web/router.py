"""What is at which address: a small router with CORS, and the pages that need no door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import TypeAlias

from toolrelay import log
from toolrelay.errors import ClientError, InternalError, ToolrelayError
from toolrelay.web.auth import Authenticator
from toolrelay.web.http.exchange import JSON, Exchange, header_line
from toolrelay.wires.errors import encode_error

Page: TypeAlias = Callable[[Exchange], Awaitable[None]]


class Router:
    """`pages` by method and path. Paths come without /v1, which is optional; one that ends in / takes what follows it."""

    def __init__(self, pages: Mapping[tuple[str, str], Page], gatekeeper: Authenticator) -> None:
        self._pages = dict(pages)
        self._paths = {path for _, path in pages}
        self._prefixes = sorted({path for path in self._paths if path.endswith("/") and path != "/"}, key=len, reverse=True)
        whole = self._paths.difference(self._prefixes)
        self._addresses = {path: path for path in whole} | {f"/v1{path}": path for path in whole}
        self._gatekeeper = gatekeeper

    async def __call__(self, exchange: Exchange) -> None:
        path, exchange.rest = self._locate(exchange.path)
        method = exchange.method
        shared = self._share(exchange)
        if method == "OPTIONS" and path in self._paths:
            self._preflight(exchange, path, allowed=shared)
            return
        page = self._pages.get(("GET" if method == "HEAD" else method, path))
        if page is None:
            self._respond_nothing(exchange, path)
            return
        try:
            await page(exchange)
        except ToolrelayError as error:
            respond_error(exchange, error)
        except Exception:  # noqa: BLE001 -- whatever it is, the client gets an answer and the log the reason
            log.exception("internal_error", turn=exchange.token, path=exchange.path)
            respond_error(exchange, InternalError("Something went wrong in the gateway. Its log says more."))

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

    def _respond_nothing(self, exchange: Exchange, path: str) -> None:
        asked, methods = exchange.path, self._methods(path)
        if methods:
            exchange.lines += _allow(methods)
            message = f"{asked} takes {' or '.join(methods)}, not {exchange.method}."
            error = ClientError(message, status=405, code="method_not_allowed")
        else:
            error = ClientError(f"There is nothing at {asked}. The API is below /v1.", status=404, code="not_found")
        respond_error(exchange, error)

    def _share(self, exchange: Exchange) -> bool:
        """Whether the answer may be read by the origin that asks, if one does."""
        origin = exchange.headers.get(b"origin")
        if origin is None or not self._gatekeeper.allows_origin(origin.decode("latin-1")):
            return False
        exchange.lines += header_line(b"access-control-allow-origin", origin)
        exchange.lines += b"access-control-expose-headers: x-request-id, retry-after\r\nvary: origin\r\n"
        return True

    def _preflight(self, exchange: Exchange, path: str, *, allowed: bool) -> None:
        """A foreign origin is told nothing: its browser takes that for a no."""
        methods = self._methods(path)
        lines = _allow(methods)
        if allowed:
            asked = exchange.headers.get(b"access-control-request-headers", b"authorization, content-type")
            lines += header_line(b"access-control-allow-methods", ", ".join(methods).encode())
            lines += header_line(b"access-control-allow-headers", asked)
            lines += b"access-control-allow-private-network: true\r\naccess-control-max-age: 86400\r\n"
        exchange.respond(204, lines, b"")


def _allow(methods: list[str]) -> bytes:
    implied = {"OPTIONS", "HEAD"} if "GET" in methods else {"OPTIONS"}
    return b"allow: %b\r\n" % ", ".join(sorted(implied.union(methods))).encode()


def respond_error(exchange: Exchange, error: ToolrelayError, encode: Callable[[ToolrelayError], bytes] = encode_error) -> None:
    """An error, in OpenAI's shape unless the wire has one of its own."""
    lines = JSON
    if error.retry_after is not None:
        lines += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after))
    if error.status == 401:
        lines += b"www-authenticate: Bearer\r\n"
    if error.status == 408 and isinstance(error, ClientError):  # what comes late would be in the way of the next request
        exchange.keep_alive = False
    exchange.respond(error.status, lines, encode(error))
