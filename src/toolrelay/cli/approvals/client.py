"""A client of the gateway's approvals: requests and live events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple, TypeAlias

from toolrelay.cli._gateway import GatewayClient, configured_url, segment, split_url
from toolrelay.cli._output import MISUSED, CommandError
from toolrelay.config import from_environment
from toolrelay.runtime.approver import read_approver_token
from toolrelay.settings import Settings, is_loopback

Question: TypeAlias = dict[str, Any]  # as the gateway describes it
Rule: TypeAlias = dict[str, Any]

STREAM_TIMEOUT_SECONDS = 60.0  # the gateway sends a comment every 15 seconds, unless server.keepalive_seconds says otherwise
MAX_LISTED = 1000  # the gateway's own limit


class Event(NamedTuple):
    """What happened to a question: asked, answered, withdrawn or expired."""

    name: str
    question: Question


class Client(GatewayClient):
    advice = "Here: set TOOLRELAY_KEY to a key, or name the gateway's data directory with --data-dir."

    def list_questions(self, status: str | None = "pending") -> list[Question]:
        """Return questions, the oldest first. None: whatever their status is."""
        query = f"limit={MAX_LISTED}" + (f"&status={status}" if status else "")
        found: list[Question] = self.request("GET", f"/approvals?{query}")["approvals"]
        return sorted(found, key=lambda question: (question["created_at"], question["id"]))

    def retrieve(self, question: str) -> Question:
        return self.request("GET", f"/approvals/{segment(question)}")

    def answer(self, question: str, decision: dict[str, Any]) -> Question:
        return self.request("POST", f"/approvals/{segment(question)}", decision)

    def list_rules(self) -> list[Rule]:
        found: list[Rule] = self.request("GET", "/approvals/rules")["rules"]
        return sorted(found, key=lambda rule: (rule["created_at"], rule["id"]))

    def delete_rule(self, rule: str) -> None:
        self.request("DELETE", f"/approvals/rules/{segment(rule)}")

    def events(self) -> Iterator[Event | None]:
        """Yield what happens from now on. None: a sign of life, the first one at once. Raise UnreachableError at the end."""
        connection = self.connect(STREAM_TIMEOUT_SECONDS)
        with closing(connection):
            response = self.send(connection, "GET", "/approvals/events", None)
            if response.status != 200:
                raise self.refusal(response.status, self.read(response))
            name, lines = "", list[str]()
            while True:
                line = self.read_line(response)
                if line.startswith(":"):
                    yield None
                elif line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    lines.append(line[5:].removeprefix(" "))
                elif not line and lines:
                    yield Event(name, self.decode("\n".join(lines).encode()))
                    name, lines = "", []


def connect(*, url: str | None, key: str | None, config: str | None, data_dir: str | None) -> Client:
    """Return a client of the gateway that the options name; without them, of the one that the configuration describes."""
    if url is not None and key is not None:
        return Client(url, key)
    settings = from_environment(config, data_dir=data_dir)
    own_url = configured_url(settings, option="--url") if url is None else url
    return Client(own_url, key if key is not None else _approver_token(settings, own_url))


def _approver_token(settings: Settings, url: str) -> str | None:
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
