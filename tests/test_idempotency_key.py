"""A request that is sent again with its Idempotency-Key gets the turn that it started, and no tool runs again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.durable import TIMEOUT_SECONDS, Workshop
from tests.gateway import Gateway
from tests.model_server import error, frames
from tests.raw_client import RawClient
from tests.tool_rounds import Round, play, play_by_text, results
from tests.upstream import Player, ReceivedRequest, Script, Upstream
from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN

DONE = Round(text=("All ", "done."))


def fail_after_a_tool(status: int) -> Player:
    """Return a model that calls a tool, then fails once, then answers."""
    answers = play(Round(calls=(("once", {"number": 1}),)), DONE)
    failures = [error(status)]

    def respond(received: ReceivedRequest) -> Script:
        has_results = bool(results(received.body))
        return [failures.pop()] if has_results and failures else answers(received)

    return respond


MODEL = play_by_text(
    {
        "once": play(Round(calls=(("once", {"number": 1}),)), DONE),
        "wait": play(Round(text=("Wait.",), calls=(("once", {"number": 1}),)), Round(calls=(("wait", {}),)), DONE),
        "talk": play(DONE),
        "fail 500": fail_after_a_tool(500),
        "fail 400": fail_after_a_tool(400),
    }
)
KEYS = "".join(
    f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\ntoolsets = ["mine"]\n' for name in ("ann", "bob")
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(MODEL) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[tuple[Workshop, Gateway]]:
    workshop = Workshop(tmp_path_factory.mktemp("keys"), upstream, config=KEYS)
    with workshop.start() as gateway:
        yield workshop, gateway


@pytest.fixture
def workshop(shared: tuple[Workshop, Gateway]) -> Workshop:
    shared[0].clear()
    return shared[0]


@pytest.fixture
def gateway(shared: tuple[Workshop, Gateway]) -> Gateway:
    return shared[1]


@pytest.fixture
def key() -> str:
    return uuid4().hex


def body(text: str, **members: Any) -> dict[str, Any]:
    return {"model": "fast", "messages": [{"role": "user", "content": text}], **members}


def send(gateway: Gateway, key: str, text: str, owner: str = "ann", **members: Any) -> httpx.Response:
    headers = {"idempotency-key": key, "authorization": f"Bearer {owner}"}
    content = json.dumps(body(text, **members)).encode()  # byte for byte as RawClient sends it
    return httpx.post(f"{gateway.v1}/chat/completions", content=content, headers=headers, timeout=TIMEOUT_SECONDS)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    if response.headers["content-type"] == "application/json":
        return str(response.json()["choices"][0]["message"]["content"])
    assert '"error"' not in response.text, response.text
    return "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames(response.content) if frame["choices"])


STREAM = pytest.mark.parametrize("stream", [False, True])


@STREAM
def test_finished_turn_is_shown_again(
    workshop: Workshop, gateway: Gateway, upstream: Upstream, key: str, *, stream: bool
) -> None:
    first = send(gateway, key, "once", stream=stream)
    asked = len(upstream.requests)
    second = send(gateway, key, "once", stream=stream)
    assert text_of(first) == text_of(second) == "All done."
    assert len(upstream.requests) == asked
    assert workshop.lines() == ["once 1"]


@STREAM
def test_repeated_request_follows_the_running_turn(workshop: Workshop, gateway: Gateway, key: str, *, stream: bool) -> None:
    with ThreadPoolExecutor() as threads:
        first = threads.submit(send, gateway, key, "wait", stream=stream)
        workshop.await_line("wait")
        second = threads.submit(send, gateway, key, "wait", stream=stream)
        workshop.let_go()
        assert text_of(first.result()) == text_of(second.result()) == "Wait.\n\nAll done."
    assert workshop.lines() == ["once 1", "wait"]


def test_first_client_may_leave_if_another_follows(workshop: Workshop, gateway: Gateway, key: str) -> None:
    lines = f"idempotency-key: {key}", "authorization: Bearer ann"
    with RawClient(gateway.port) as first, RawClient(gateway.port) as second:
        first.post("/v1/chat/completions", body("wait", stream=True), *lines)
        workshop.await_line("wait")
        second.post("/v1/chat/completions", body("wait", stream=True), *lines)
        second.read_until(b"Wait.")
        first.close()
        assert gateway.get("/healthz").status_code == 200  # the gateway has noticed it
        workshop.let_go()
        second.read_until(b"[DONE]")
    assert workshop.lines() == ["once 1", "wait"]


@pytest.mark.parametrize("text", ["once", "talk"])
def test_other_body_is_refused_once_a_tool_has_run(gateway: Gateway, key: str, text: str) -> None:
    assert send(gateway, key, text).status_code == 200
    response = send(gateway, key, text, temperature=0.5)
    assert response.status_code == (422 if text == "once" else 200)
    if text == "once":
        assert response.json()["error"]["code"] == "idempotency_key_reused"


def test_key_of_another_owner_is_another_key(workshop: Workshop, gateway: Gateway, key: str) -> None:
    assert text_of(send(gateway, key, "once", owner="ann")) == "All done."
    assert text_of(send(gateway, key, "once", owner="bob", temperature=0.5)) == "All done."
    assert workshop.lines() == ["once 1", "once 1"]


def test_turn_without_tool_runs_is_not_remembered(gateway: Gateway, upstream: Upstream, key: str) -> None:
    asked = len(upstream.requests)
    for _ in range(2):
        assert text_of(send(gateway, key, "talk")) == "All done."
    assert len(upstream.requests) == asked + 2


def test_plain_relay_ignores_the_header(gateway: Gateway, upstream: Upstream, key: str) -> None:
    asked = len(upstream.requests)
    headers = {"idempotency-key": key, "authorization": "Bearer ann", "x-toolrelay-tools": "off"}
    for temperature in (0, 1):
        response = httpx.post(f"{gateway.v1}/chat/completions", json=body("talk", temperature=temperature), headers=headers)
        assert text_of(response) == "All done."
    assert len(upstream.requests) == asked + 2


@STREAM
def test_turn_whose_client_has_left_goes_on_when_the_request_is_repeated(
    workshop: Workshop, gateway: Gateway, upstream: Upstream, key: str, *, stream: bool
) -> None:
    with RawClient(gateway.port) as client:
        lines = f"idempotency-key: {key}", "authorization: Bearer ann"
        client.post("/v1/chat/completions", body("wait", stream=stream), *lines)
        workshop.await_line("wait")
    workshop.await_line("cancelled")
    workshop.let_go()
    assert text_of(send(gateway, key, "wait", stream=stream)) == "Wait.\n\nAll done."
    assert workshop.lines() == ["once 1", "wait", "cancelled"]
    assert results(upstream.requests[-1].body) == ["once 1 is done", OUTCOME_UNKNOWN]
    assert text_of(send(gateway, key, "wait", stream=stream)) == "Wait.\n\nAll done."


def test_turn_that_failed_goes_on_when_the_request_is_repeated_if_that_may_help(
    workshop: Workshop, gateway: Gateway, upstream: Upstream, key: str
) -> None:
    assert send(gateway, key, "fail 500").status_code == 500
    assert text_of(send(gateway, key, "fail 500")) == "All done."
    assert results(upstream.requests[-1].body) == ["once 1 is done"]
    assert workshop.lines() == ["once 1"]


def test_turn_that_failed_for_good_is_shown_again(workshop: Workshop, gateway: Gateway, upstream: Upstream, key: str) -> None:
    first, asked = send(gateway, key, "fail 400"), len(upstream.requests)
    assert (first.status_code, send(gateway, key, "fail 400").json()) == (400, first.json())
    assert len(upstream.requests) == asked
    assert workshop.lines() == ["once 1"]


@STREAM
def test_turn_goes_on_after_kill_9_when_the_request_is_repeated(tmp_path: Path, upstream: Upstream, *, stream: bool) -> None:
    workshop = Workshop(tmp_path, upstream)
    with workshop.start() as gateway, RawClient(gateway.port) as client:
        client.post("/v1/chat/completions", body("wait", stream=stream), "idempotency-key: k")
        workshop.await_line("wait")
        workshop.kill(gateway)
    with workshop.start() as gateway:
        asked = len(upstream.requests)
        assert text_of(send(gateway, "k", "wait", stream=stream)) == "Wait.\n\nAll done."
        assert workshop.lines() == ["once 1", "wait"]
        assert len(upstream.requests) == asked + 1
        assert results(upstream.requests[-1].body) == ["once 1 is done", OUTCOME_UNKNOWN]
        assert workshop.statuses() == ["finished"]
