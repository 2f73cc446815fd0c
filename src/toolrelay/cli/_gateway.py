"""A client of a running gateway: requests, streams of events, and where the gateway is."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from msgspec import structs

from toolrelay.cli._output import FAILED, MISUSED, UNREACHABLE, CommandError
from toolrelay.cli._text import escape_controls
from toolrelay.runtime.approver import read_approver_token
from toolrelay.settings import Settings, is_loopback

TIMEOUT_SECONDS = 30.0
PROBE_SECONDS = 5.0
STREAM_TIMEOUT_SECONDS = 60.0  # the gateway sends a comment every 15 seconds, unless server.keepalive_seconds says otherwise
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- where to connect to a gateway that listens everywhere
_CREDENTIAL = re.compile(r"[\x21-\x7e]+")


class UnreachableError(CommandError):
    """No gateway answers, or the connection broke. `is_refused`: nothing listens there."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message, UNREACHABLE)
        self.is_refused = is_refused


class RefusedError(CommandError):
    """The gateway answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, FAILED)
        self.status = status


class ServerEvent(NamedTuple):
    """A server-sent event. `data` is JSON."""

    name: str
    data: str


class GatewayClient:
    """Sends requests to one gateway, never through a proxy. Redirects are not followed: the credential stays with the gateway.

    `advice` is added to what the gateway says if it does not know the credential.
    """

    agent = "toolrelay"
    advice = "Here: name the gateway's data directory with --data-dir."
    timeout = TIMEOUT_SECONDS

    def __init__(self, url: str, credential: str | None, context: ssl.SSLContext | None = None) -> None:
        """`context` is for https; by default the certificates that this machine trusts count."""
        self._context = context
        self.url = url.rstrip("/")
        self._address = split_url(self.url)
        if credential is not None and not _CREDENTIAL.fullmatch(credential):
            raise CommandError("The key has blanks or characters that no key has.", MISUSED)
        self._headers = {"accept": "application/json", "user-agent": self.agent}
        if credential is not None:
            self._headers["authorization"] = f"Bearer {credential}"

    @property
    def host(self) -> str:
        return self._address.host

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with closing(self._connect(self.timeout)) as connection:
            response = self._send(connection, method, path, body)
            content = self._read(response)
        if response.status != 200:
            raise self._refusal(response.status, content)
        return self.decode(content)

    def open_stream(self, method: str, path: str, body: dict[str, Any] | None = None) -> EventStream:
        with ExitStack() as stack:
            connection = stack.enter_context(closing(self._connect(STREAM_TIMEOUT_SECONDS)))
            response = self._send(connection, method, path, body)
            if response.status != 200:
                raise self._refusal(response.status, self._read(response))
            return EventStream(self, response, stack.pop_all())

    def decode(self, content: bytes | str) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise CommandError(f"What answers at {self.url} is not a gateway of this version.", UNREACHABLE)
        return value

    def unreachable(self, error: Exception) -> UnreachableError:
        if isinstance(error, ConnectionRefusedError):
            return UnreachableError(f"No gateway answers at {self.url}. Start it with toolrelay serve.", is_refused=True)
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        message = f"No gateway answers at {self.url} ({reason}). Is it running (toolrelay serve), and is this its URL?"
        return UnreachableError(escape_controls(message))

    def _connect(self, timeout: float) -> HTTPConnection:
        address = self._address
        if address.is_tls:
            return HTTPSConnection(address.host, address.port, timeout=timeout, context=self._context)
        return HTTPConnection(address.host, address.port, timeout=timeout)

    def _send(self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None) -> HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers if content is None else {**self._headers, "content-type": "application/json"}
        try:
            connection.request(method, self._address.prefix + path, content, headers)
            return connection.getresponse()
        except (OSError, HTTPException) as error:
            raise self.unreachable(error) from None

    def _refusal(self, status: int, content: bytes) -> RefusedError:
        """Return the gateway's error. Its text may quote what a client or a model chose."""
        try:
            message = str(json.loads(content)["error"]["message"])
        except (ValueError, LookupError, TypeError, RecursionError):
            message = f"{self.url} answered with status {status}, and not as a gateway of Toolrelay does. Is this its address?"
        if status == 401:
            message += f" {self.advice}"
        return RefusedError(status, escape_controls(message))

    def _read(self, response: HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, HTTPException) as error:
            raise self.unreachable(error) from None


class GatewayProbe(GatewayClient):
    """Finds out whether a gateway answers: another program on its port may never do so."""

    timeout = PROBE_SECONDS


class EventStream:
    """The events of an open connection. Another thread may end it with `close`."""

    def __init__(self, client: GatewayClient, response: HTTPResponse, opened: ExitStack) -> None:
        self._client = client
        self._response = response
        self._opened = opened
        self._socket = opened.enter_context(socket.socket(fileno=os.dup(response.fileno())))

    def __iter__(self) -> Iterator[ServerEvent | None]:
        """Yield events, and None for a comment. Raise UnreachableError at the end."""
        with self._opened, closing(self._response):
            name, lines = "", list[str]()
            while True:
                line = self._read_line()
                if line.startswith(":"):
                    yield None
                elif line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    lines.append(line[5:].removeprefix(" "))
                elif not line and lines:
                    yield ServerEvent(name, "\n".join(lines))
                    name, lines = "", []

    def close(self) -> None:
        """End the stream: its reader gets an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read_line(self) -> str:
        try:
            line = self._response.readline()
        except (OSError, HTTPException, ValueError) as error:  # ValueError: closed meanwhile
            raise self._client.unreachable(error) from None
        if not line:
            raise UnreachableError(f"The gateway at {self._client.url} ended the connection.")
        return line.decode(errors="replace").rstrip("\r\n")


class Address(NamedTuple):
    is_tls: bool
    host: str
    port: int | None
    prefix: str


def approver_token(settings: Settings, url: str) -> str | None:
    """Return the token of the data directory. It is sent only to this machine."""
    if not is_loopback(split_url(url).host):
        raise CommandError(f"The gateway at {url} is on another machine. Give a key with --key or TOOLRELAY_KEY.", MISUSED)
    if settings.keys:
        raise CommandError(
            "The gateway has keys. Give one with approve = true: set TOOLRELAY_KEY, or use --key, which other users of this "
            "machine may see in the list of processes.",
            MISUSED,
        )
    return read_approver_token(settings.environment.data_dir)


def configured_url(settings: Settings, *, option: str = "--url") -> str:
    """Return the URL of the gateway with these settings. `option` would name another."""
    server = settings.server
    if server.port == 0:
        raise CommandError(f"The gateway has a random port (server.port = 0). Name the one it has with {option}.", MISUSED)
    return structs.replace(server, host=_ANY_ADDRESS.get(server.host, server.host)).url


def split_url(url: str) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_clean = parts.username is None and not parts.query and not parts.fragment and url.isascii() and url.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_clean or " " in url:
        raise CommandError("--url: expected a URL such as http://127.0.0.1:8787.", MISUSED)
    return Address(parts.scheme == "https", parts.hostname, port, parts.path)


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")
