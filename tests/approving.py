"""A client that asks in a thread, and an approver, for tests of gateways whose tools need a person's yes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.gateway import Gateway

TIMEOUT_SECONDS = 60  # only a test that hangs reaches it


def without_time(question: dict[str, Any]) -> dict[str, Any]:
    """Return the question without the seconds that it is still open."""
    return {name: value for name, value in question.items() if name != "expires_in"}


class Approver:
    """Answers questions over REST, with the token of the data directory or with a key."""

    def __init__(self, gateway: Gateway, key: str | None = None) -> None:
        self._url = gateway.url
        token = (gateway.data_dir / "approver.token").read_text().strip() if key is None else key
        self.headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str = "/approvals") -> httpx.Response:
        return httpx.get(f"{self._url}{path}", headers=self.headers, timeout=TIMEOUT_SECONDS)

    def post(self, approval: str, **verdict: Any) -> httpx.Response:
        url = f"{self._url}/approvals/{approval}"
        return httpx.post(url, json=verdict, headers=self.headers, timeout=TIMEOUT_SECONDS)

    def delete(self, path: str) -> httpx.Response:
        return httpx.delete(f"{self._url}{path}", headers=self.headers, timeout=TIMEOUT_SECONDS)

    def pending(self) -> list[dict[str, Any]]:
        response = self.get("/approvals?status=pending")
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["approvals"]
        return found

    def question(self, tool: str | None = None) -> dict[str, Any]:
        """Wait for the open question, about this tool."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while not (found := [each for each in self.pending() if tool in (None, each["tool"])]):
            assert time.monotonic() < until, "nobody asks"
            time.sleep(0.005)
        (question,) = found
        return question

    def allow(self, tool: str | None = None, **verdict: Any) -> dict[str, Any]:
        """Allow the open question, and return it as it is then."""
        return self._answer(tool, verdict="allow", **verdict)

    def deny(self, tool: str | None = None, **verdict: Any) -> dict[str, Any]:
        return self._answer(tool, verdict="deny", **verdict)

    def _answer(self, tool: str | None, **verdict: Any) -> dict[str, Any]:
        response = self.post(self.question(tool)["id"], **verdict)
        assert response.status_code == 200, response.text
        answered: dict[str, Any] = response.json()
        return answered

    @contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        """Listen to the live events, as name and question."""
        url = f"{self._url}/approvals/events"
        with httpx.stream("GET", url, headers=self.headers, timeout=TIMEOUT_SECONDS) as response:
            assert response.status_code == 200
            lines = response.iter_lines()
            assert next(lines).startswith(":")  # it listens
            yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


class Asking:
    """Sends requests in threads, because they last until somebody answers."""

    def __init__(self, gateway: Gateway, headers: dict[str, str] | None = None) -> None:
        self._gateway = gateway
        self._headers = headers or {}
        self._threads = ThreadPoolExecutor(8)

    def chat(self, text: str = "Go.", **members: Any) -> Future[httpx.Response]:
        body = {"model": "fast", "messages": [{"role": "user", "content": text}], **members}
        return self.send("/v1/chat/completions", body)

    def responses(self, text: str = "Go.", **members: Any) -> Future[httpx.Response]:
        return self.send("/v1/responses", {"model": "fast", "input": text, **members})

    def send(self, path: str, body: dict[str, Any]) -> Future[httpx.Response]:
        url = f"{self._gateway.url}{path}"
        return self._threads.submit(httpx.post, url, json=body, headers=self._headers, timeout=TIMEOUT_SECONDS)


def chat_text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


def output_items(response: httpx.Response, kind: str) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [item for item in response.json()["output"] if item["type"] == kind]


def write_notes(folder: Path, notes: dict[str, str]) -> None:
    for path, text in notes.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
