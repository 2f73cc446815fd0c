"""Checks of every request before an endpoint or a page gets it: one well-formed host, no ambiguous headers, no foreign page."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv6Address

from toolrelay.errors import ClientError, PolicyError
from toolrelay.web.http.exchange import Exchange

MAX_CACHED_HOSTS = 64  # the client chooses the port, so a cache of hosts needs a limit

# Two of them would mean what the first reader makes of them: a proxy may take one, and the gateway the other.
SINGLE_HEADERS = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"sec-fetch-site"})

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::([0-9]{1,5}))?")
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_MAX_PORT = 65535


class RequestGuard:
    """Refuses requests whose sender or addressee is ambiguous, and those that a browser sends for a foreign page.

    A page is foreign if the browser says so (`Sec-Fetch-Site: cross-site`) and its origin is not allowed. `linkable_paths` may
    be opened by a link on any page: such a page cannot see the response. Programs other than browsers send no such header.
    """

    def __init__(self, allows_origin: Callable[[str], bool], *, linkable_paths: frozenset[str] = frozenset()) -> None:
        self._allows_origin = allows_origin
        self._linkable_paths = linkable_paths
        self._valid_hosts: set[bytes] = set()

    def check(self, exchange: Exchange, path: str) -> None:
        """Raise the error for a request that is refused. `path` is without extra slashes."""
        headers = exchange.headers
        if exchange.repeated_headers:
            _check_repeated(exchange)
        host = headers.get(b"host")
        if host not in self._valid_hosts:
            self._check_host(host, is_required=exchange.is_http_1_1)
        if not exchange.target.startswith(b"/"):
            _check_target(exchange.target, host)
        if headers.get(b"sec-fetch-site") == b"cross-site":
            self._check_cross_site(exchange, path)

    def _check_host(self, host: bytes | None, *, is_required: bool) -> None:
        if host is None:
            if is_required:
                raise _invalid_host("The request has no Host header, which HTTP/1.1 requires.")
            return
        if parse_host(host) is None:
            raise _invalid_host("The Host header is malformed. Expected NAME or NAME:PORT, such as localhost:8787.")
        if len(self._valid_hosts) < MAX_CACHED_HOSTS:
            self._valid_hosts.add(host)

    def _check_cross_site(self, exchange: Exchange, path: str) -> None:
        headers = exchange.headers
        origin = headers.get(b"origin")
        if origin is not None and self._allows_origin(origin.decode("latin-1")):
            return
        is_link = (
            exchange.method == "GET"
            and headers.get(b"sec-fetch-mode") == b"navigate"
            and headers.get(b"sec-fetch-dest") == b"document"  # not a frame, which the foreign page could cover
        )
        if is_link and path in self._linkable_paths:
            return
        raise PolicyError(
            "A web page of another site sent this request. If it may use the gateway, add its origin to server.cors_origins.",
            code="cross_site",
        )


def parse_host(value: bytes) -> str | None:
    """Return the host without port and IPv6 brackets, or None if the value of a Host header is malformed."""
    found = _HOST.fullmatch(value)
    if found is None or int(found[3] or b"0") > _MAX_PORT:
        return None
    if found[2] is not None:
        return found[2].decode("ascii")
    address = found[1].decode("ascii")
    try:
        IPv6Address(address)
    except ValueError:
        return None
    return address


def _check_repeated(exchange: Exchange) -> None:
    for name, _ in exchange.repeated_headers:
        if name in SINGLE_HEADERS:
            message = f"The header '{name.decode()}' is in the request more than once. Send it once."
            raise ClientError(message, code="repeated_header")


def _check_target(target: bytes, host: bytes | None) -> None:
    """Refuse a target that is a whole URL, as proxies get it, unless its host is that of the Host header."""
    found = _AUTHORITY.match(target)
    if found is not None and (host is None or found[1].lower() != host.lower()):
        raise _invalid_host("The host in the request's URL is not the one in its Host header.")


def _invalid_host(message: str) -> ClientError:
    return ClientError(message, code="invalid_host")
