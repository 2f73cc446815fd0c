"""HTTP proxies for upstreams, from HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

    upstream     the request
    ----------   -------------------------------------------------------------
    https://…    through a tunnel (CONNECT); the proxy sees only host and port
    http://…     to the proxy, with the whole URL in the request line

A loopback address never goes through a proxy. The variables may be written in lower case, which has precedence.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from toolrelay.backends.http.errors import ConnectError
from toolrelay.backends.http.origin import Origin
from toolrelay.errors import ConfigurationError
from toolrelay.settings import is_loopback

MAX_HEAD = 16 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")


class Proxy(Struct, frozen=True, kw_only=True):
    """`authorization` is the value of Proxy-Authorization, or empty."""

    host: str
    port: int
    authorization: str = ""

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def header(self) -> str:
        return f"proxy-authorization: {self.authorization}\r\n" if self.authorization else ""

    def __repr__(self) -> str:
        return f"Proxy({self.address})"


def find_proxy(origin: Origin, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for an upstream, or raise ConfigurationError for a variable that is no proxy's URL."""
    name = "HTTPS_PROXY" if origin.secure else "HTTP_PROXY"
    value = _variable(environ, name)
    if not value or is_loopback(origin.host) or _is_excluded(origin, _variable(environ, "NO_PROXY")):
        return None
    problem = ConfigurationError(f"{name}: expected a proxy such as http://proxy.example:3128 or http://USER:PASSWORD@HOST:PORT.")
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise problem from None
    if parts.scheme != "http" or not host or not re.fullmatch(r"[A-Za-z0-9._:%-]+", host):
        raise problem
    authorization = ""
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(credentials.encode()).decode()}"
    return Proxy(host=host, port=port or 80, authorization=authorization)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name.lower()) or environ.get(name) or "").strip()


def _is_excluded(origin: Origin, no_proxy: str) -> bool:
    """Return whether NO_PROXY names the host, a domain that it is in, or everything (`*`). An entry may have a port."""
    host = origin.host.lower()
    for entry in re.split(r"[\s,]+", no_proxy.lower()):
        name, _, port = entry.rpartition(":") if re.fullmatch(r"[^:]+:[0-9]+", entry) else (entry, "", "")
        name = name.removeprefix("*").removeprefix(".").strip("[]")
        if entry == "*" or (name and (host == name or host.endswith(f".{name}")) and port in ("", str(origin.port))):
            return True
    return False


class _Handshake(asyncio.Protocol):
    """Reads the proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.status.done():
            return
        if b"\r\n\r\n" in self._head:
            found = _STATUS.match(self._head)
            self.status.set_result(int(found[1]) if found is not None else 0)
        elif len(self._head) > MAX_HEAD:
            self.status.set_result(0)

    def connection_lost(self, _: Exception | None) -> None:
        if not self.status.done():
            self.status.set_result(0)


async def open_tunnel(proxy: Proxy, origin: Origin) -> asyncio.Transport:
    """Return a transport to the origin through the proxy. Raise OSError or ConnectError."""
    target = origin.address
    loop = asyncio.get_running_loop()
    transport, handshake = await loop.create_connection(_Handshake, proxy.host, proxy.port)
    try:
        transport.write(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{proxy.header}\r\n".encode("latin-1"))
        status = await handshake.status
    except BaseException:
        transport.abort()
        raise
    if 200 <= status < 300:
        return transport
    transport.abort()
    reason = f"answered CONNECT with status {status}" if status else "did not answer CONNECT in HTTP/1.1"
    raise ConnectError(f"the proxy at {proxy.address} {reason}", retryable=False)
