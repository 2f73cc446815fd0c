"""A client of the running gateway, and where that is."""

from __future__ import annotations

import json
import re
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from toolrelay.cli._output import FAILED, MISUSED, UNREACHABLE, CommandError
from toolrelay.cli.approvals.text import escape_controls
from toolrelay.settings import Settings

TIMEOUT_SECONDS = 30.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- where to connect to a gateway that listens everywhere
_CREDENTIAL = re.compile(r"[\x21-\x7e]+")


class UnreachableError(CommandError):
    """No gateway answers, or the connection broke."""

    def __init__(self, message: str) -> None:
        super().__init__(message, UNREACHABLE)


class RefusedError(CommandError):
    """The gateway answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, FAILED)
        self.status = status


class GatewayClient:
    """Sends requests to one gateway, never through a proxy. Redirects are not followed: the credential stays with the gateway.

    `advice` is added to what the gateway says if it does not know the credential.
    """

    advice = "Here: name the gateway's data directory with --data-dir."

    def __init__(self, url: str, credential: str | None) -> None:
        self.url = url.rstrip("/")
        self._address = split_url(self.url)
        if credential is not None and not _CREDENTIAL.fullmatch(credential):
            raise CommandError("The key has blanks or characters that no key has.", MISUSED)
        self._headers = {"accept": "application/json", "user-agent": "toolrelay-cli"}
        if credential is not None:
            self._headers["authorization"] = f"Bearer {credential}"

    @property
    def host(self) -> str:
        return self._address.host

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with closing(self.connect(TIMEOUT_SECONDS)) as connection:
            response = self.send(connection, method, path, body)
            content = self.read(response)
        if response.status != 200:
            raise self.refusal(response.status, content)
        return self.decode(content)

    def connect(self, timeout: float) -> HTTPConnection:
        address = self._address
        kind = HTTPSConnection if address.is_tls else HTTPConnection
        return kind(address.host, address.port, timeout=timeout)

    def send(self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None) -> HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers if content is None else {**self._headers, "content-type": "application/json"}
        try:
            connection.request(method, self._address.prefix + path, content, headers)
            return connection.getresponse()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None

    def read(self, response: HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None

    def read_line(self, response: HTTPResponse) -> str:
        try:
            line = response.readline()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        if not line:
            raise UnreachableError(f"The gateway at {self.url} ended the connection.")
        return line.decode(errors="replace").rstrip("\r\n")

    def decode(self, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise CommandError(f"What answers at {self.url} is not a gateway of this version.", UNREACHABLE)
        return value

    def refusal(self, status: int, content: bytes) -> RefusedError:
        """Return the gateway's error. Its text may quote what a client or a model chose."""
        try:
            message = str(json.loads(content)["error"]["message"])
        except (ValueError, LookupError, TypeError, RecursionError):
            message = f"The gateway answered with status {status}."
        if status == 401:
            message += f" {self.advice}"
        return RefusedError(status, escape_controls(message))

    def _unreachable(self, error: Exception) -> UnreachableError:
        if isinstance(error, ConnectionRefusedError):
            return UnreachableError(f"No gateway answers at {self.url}. Start it with toolrelay serve.")
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        message = f"No gateway answers at {self.url} ({reason}). Is it running (toolrelay serve), and is this its URL?"
        return UnreachableError(escape_controls(message))


class _Address(NamedTuple):
    is_tls: bool
    host: str
    port: int | None
    prefix: str


def configured_url(settings: Settings, *, option: str) -> str:
    """Return the URL of the gateway with these settings. `option` would name another."""
    server = settings.server
    if server.port == 0:
        raise CommandError(f"The gateway has a random port (server.port = 0). Name the one it has with {option}.", MISUSED)
    host = _ANY_ADDRESS.get(server.host, server.host)
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def split_url(url: str) -> _Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_clean = parts.username is None and not parts.query and not parts.fragment and url.isascii() and url.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_clean or " " in url:
        raise CommandError("--url: expected a URL such as http://127.0.0.1:8787.", MISUSED)
    return _Address(parts.scheme == "https", parts.hostname, port, parts.path)


def segment(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")
