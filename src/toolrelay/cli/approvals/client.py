"""A client of the gateway's approvals: questions, rules and live events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from toolrelay.cli._gateway import GatewayClient, approver_token, configured_url, segment
from toolrelay.config import from_environment
from toolrelay.web.tls import make_own_client_context

Question: TypeAlias = dict[str, Any]  # as the gateway describes it
Rule: TypeAlias = dict[str, Any]

MAX_LISTED = 1000  # the gateway's own limit


class Event(NamedTuple):
    """What happened to a question: asked, answered, withdrawn or expired."""

    name: str
    question: Question


class Client(GatewayClient):
    agent = "toolrelay-approvals"
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
        for event in self.open_stream("GET", "/approvals/events"):
            yield None if event is None else Event(event.name, self.decode(event.data))


def connect(*, url: str | None, key: str | None, config: str | None, data_dir: str | None) -> Client:
    """Return a client of the gateway that the options name; without them, of the one that the configuration describes."""
    if url is not None and key is not None:
        return Client(url, key)
    settings = from_environment(config, data_dir=data_dir)
    own_url = configured_url(settings) if url is None else url
    context = make_own_client_context(settings) if url is None else None
    return Client(own_url, key if key is not None else approver_token(settings, own_url), context)
