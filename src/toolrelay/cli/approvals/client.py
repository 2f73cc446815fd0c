"""A client of the gateway's approvals: requests, live events, and where the gateway is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from toolrelay.cli._output import FAILED, MISUSED, UNREACHABLE, CommandError
from toolrelay.cli.approvals.text import escape_controls
from toolrelay.config import from_environment
from toolrelay.runtime.approver import read_approver_token
from toolrelay.settings import Settings, is_loopback

Question: TypeAlias = dict[str, Any]  # as the gateway describes it
Rule: TypeAlias = dict[str, Any]

TIMEOUT_SECONDS = 30.0
STREAM_TIMEOUT_SECONDS = 60.0  # the gateway sends a comment every 15 seconds, unless server.keepalive_seconds says otherwise
MAX_LISTED = 1000  # the gateway's own limit
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


class Event(NamedTuple):
    """What happened to a question: asked, answered, withdrawn or expired."""

    name: str
    question: Question


class Client:
    """Sends requests to one gateway, never through a proxy. Redirects are not followed: the credential stays with the gateway."""

    def __init__(self, url: str, credential: str | None) -> None:
        self.url = url.rstrip("/")
        self._address = _split_url(self.url)
        if credential is not None and not _CREDENTIAL.fullmatch(credential):
            raise CommandError("The key has blanks or characters that no key has.", MISUSED)
        self._headers = {"accept": "application/json", "user-agent": "toolrelay-approvals"}
        if credential is not None:
            self._headers["authorization"] = f"Bearer {credential}"

    def list_questions(self, status: str | None = "pending") -> list[Question]:
        """Return questions, the oldest first. None: whatever their status is."""
        query = f"limit={MAX_LISTED}" + (f"&status={status}" if status else "")
        found: list[Question] = self._request("GET", f"/approvals?{query}")["approvals"]
        return sorted(found, key=lambda question: (question["created_at"], question["id"]))

    def retrieve(self, question: str) -> Question:
        return self._request("GET", f"/approvals/{_segment(question)}")

    def answer(self, question: str, decision: dict[str, Any]) -> Question:
        return self._request("POST", f"/approvals/{_segment(question)}", decision)

    def list_rules(self) -> list[Rule]:
        found: list[Rule] = self._request("GET", "/approvals/rules")["rules"]
        return sorted(found, key=lambda rule: (rule["created_at"], rule["id"]))

    def delete_rule(self, rule: str) -> None:
        self._request("DELETE", f"/approvals/rules/{_segment(rule)}")

    def events(self) -> Iterator[Event | None]:
        """Yield what happens from now on. None: a sign of life, the first one at once. Raise UnreachableError at the end."""
        connection = self._connect(STREAM_TIMEOUT_SECONDS)
        with closing(connection):
            response = self._send(connection, "GET", "/approvals/events", None)
            if response.status != 200:
                raise _refusal(response.status, self._read(response))
            name, lines = "", list[str]()
            while True:
                line = self._read_line(response)
                if line.startswith(":"):
                    yield None
                elif line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    lines.append(line[5:].removeprefix(" "))
                elif not line and lines:
                    yield Event(name, self._decode("\n".join(lines).encode()))
                    name, lines = "", []

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with closing(self._connect(TIMEOUT_SECONDS)) as connection:
            response = self._send(connection, method, path, body)
            content = self._read(response)
        if response.status != 200:
            raise _refusal(response.status, content)
        return self._decode(content)

    def _connect(self, timeout: float) -> HTTPConnection:
        address = self._address
        kind = HTTPSConnection if address.is_tls else HTTPConnection
        return kind(address.host, address.port, timeout=timeout)

    def _send(self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None) -> HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers if content is None else {**self._headers, "content-type": "application/json"}
        try:
            connection.request(method, self._address.prefix + path, content, headers)
            return connection.getresponse()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None

    def _read(self, response: HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None

    def _read_line(self, response: HTTPResponse) -> str:
        try:
            line = response.readline()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        if not line:
            raise UnreachableError(f"The gateway at {self.url} ended the connection.")
        return line.decode(errors="replace").rstrip("\r\n")

    def _decode(self, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise CommandError(f"What answers at {self.url} is not a gateway of this version.", UNREACHABLE)
        return value

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


def connect(*, url: str | None, key: str | None, config: str | None, data_dir: str | None) -> Client:
    """Return a client of the gateway that the options name; without them, of the one that the configuration describes."""
    if url is not None and key is not None:
        return Client(url, key)
    settings = from_environment(config, data_dir=data_dir)
    own_url = _configured_url(settings) if url is None else url
    return Client(own_url, key if key is not None else _approver_token(settings, own_url))


def _approver_token(settings: Settings, url: str) -> str | None:
    """Return the token of the data directory. It is sent only to this machine."""
    if not is_loopback(_split_url(url).host):
        raise CommandError(f"The gateway at {url} is on another machine. Give a key with --key or TOOLRELAY_KEY.", MISUSED)
    if settings.keys:
        raise CommandError(
            "The gateway has keys. Give one with approve = true: set TOOLRELAY_KEY, or use --key, which other users of this "
            "machine may see in the list of processes.",
            MISUSED,
        )
    return read_approver_token(settings.environment.data_dir)


def _configured_url(settings: Settings) -> str:
    server = settings.server
    if server.port == 0:
        raise CommandError("The gateway has a random port (server.port = 0). Name its URL with --url.", MISUSED)
    host = _ANY_ADDRESS.get(server.host, server.host)
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def _split_url(url: str) -> _Address:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_clean = parts.username is None and not parts.query and not parts.fragment and url.isascii() and url.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_clean or " " in url:
        raise CommandError("--url: expected a URL such as http://127.0.0.1:8787.", MISUSED)
    return _Address(parts.scheme == "https", parts.hostname, port, parts.path)


def _segment(name: str) -> str:
    return quote(name, safe="")


def _refusal(status: int, content: bytes) -> RefusedError:
    """Return the gateway's error. Its text may quote what a client or a model chose."""
    try:
        message = str(json.loads(content)["error"]["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"The gateway answered with status {status}."
    if status == 401:
        message += " Here: set TOOLRELAY_KEY to a key, or name the gateway's data directory with --data-dir."
    return RefusedError(status, escape_controls(message))
