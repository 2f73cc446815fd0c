"""Clients that leave a turn whose tool runs, and a gateway that is told to stop."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.durable import Workshop
from tests.gateway import Gateway
from tests.raw_client import RawClient
from tests.tool_rounds import Round, play, play_by_text, results
from tests.upstream import Gate, Upstream
from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN

DONE = Round(text=("All ", "done."))
MODEL = {"wait": play(Round(calls=(("once", {"number": 1}),)), Round(calls=(("wait", {}),)), DONE)}
CHAT = "/v1/chat/completions", {"model": "fast", "messages": [{"role": "user", "content": "wait"}]}
RESPONSES = "/v1/responses", {"model": "fast", "input": "wait"}
UNSTORED = "/v1/responses", {"model": "fast", "input": "wait", "store": False}
BACKGROUND = {"model": "fast", "input": "wait", "background": True}
FOREGROUND = pytest.mark.parametrize(("path", "body"), [CHAT, RESPONSES, UNSTORED], ids=["chat", "stored", "unstored"])
STREAM = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workshop, Gateway]]:
    with Upstream(play_by_text(MODEL)) as upstream:
        workshop = Workshop(tmp_path_factory.mktemp("leaving"), upstream)
        with workshop.start() as gateway:
            yield workshop, gateway


@pytest.fixture
def workshop(shared: tuple[Workshop, Gateway]) -> Workshop:
    shared[0].clear()
    return shared[0]


@pytest.fixture
def gateway(shared: tuple[Workshop, Gateway]) -> Gateway:
    return shared[1]


def await_status(workshop: Workshop, *expected: str) -> None:
    """Wait until the last turns have these statuses."""
    workshop.await_that(lambda: workshop.statuses()[-len(expected) :] == [*expected], workshop.statuses)


@FOREGROUND
@STREAM
def test_client_that_leaves_cancels_the_turn_and_its_tool(
    workshop: Workshop, gateway: Gateway, path: str, body: dict[str, Any], *, stream: bool
) -> None:
    with RawClient(gateway.port) as client:
        client.post(path, {**body, "stream": stream})
        workshop.await_line("wait")
    workshop.await_line("cancelled")
    await_status(workshop, "cancelled")
    assert workshop.lines() == ["once 1", "wait", "cancelled"]


@STREAM
def test_client_that_leaves_during_an_answer_closes_the_upstream(tmp_path: Path, *, stream: bool) -> None:
    gate = Gate()
    with Upstream(play(Round(text=("Hel",), gate=gate))) as upstream:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            for path, body in (CHAT, RESPONSES):
                asked = len(upstream.requests)
                with RawClient(gateway.port) as client:
                    client.post(path, {**body, "stream": stream})
                    number = upstream.request(asked).result(30).connection
                upstream.connections[number].closed.result(30)
                await_status(workshop, "cancelled")


@STREAM
def test_background_turn_goes_on_when_its_client_leaves(workshop: Workshop, gateway: Gateway, *, stream: bool) -> None:
    with RawClient(gateway.port) as client:
        client.post("/v1/responses", {**BACKGROUND, "stream": stream})
        workshop.await_line("wait")
    workshop.let_go()
    await_status(workshop, "finished")
    assert workshop.lines() == ["once 1", "wait"]


@STREAM
def test_cancelled_background_turn_cancels_its_tool_and_ends_its_stream(
    workshop: Workshop, gateway: Gateway, *, stream: bool
) -> None:
    with RawClient(gateway.port) as client:
        client.post("/v1/responses", {**BACKGROUND, "stream": stream})
        workshop.await_line("wait")
        turn = workshop.last_turn()
        cancelled = gateway.post(f"/v1/responses/resp_{turn}/cancel", {}).json()
        assert cancelled["status"] == "cancelled"
        workshop.await_line("cancelled")
        if stream:
            client.read_until(b"[DONE]")
    assert gateway.get(f"/v1/responses/resp_{turn}").json() == cancelled
    streamed = gateway.get(f"/v1/responses/resp_{turn}?stream=true").text
    numbers = [json.loads(line[6:])["sequence_number"] for line in streamed.splitlines() if line.startswith("data: {")]
    assert numbers == list(range(len(numbers)))
    assert workshop.statuses()[-1] == "cancelled"


# SIGTERM


@FOREGROUND
def test_foreground_turn_is_finished_before_the_gateway_stops(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    with Upstream(play_by_text(MODEL)) as upstream, ThreadPoolExecutor() as threads:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            response = threads.submit(gateway.post, path, body)
            workshop.await_line("wait")
            stopped = threads.submit(gateway.stop)
            workshop.let_go()
            assert "All done." in response.result().text
            assert stopped.result() == 0
        assert workshop.statuses() == ["finished"]


def test_background_turn_is_parked_and_goes_on_after_the_next_start(tmp_path: Path) -> None:
    with Upstream(play_by_text(MODEL)) as upstream:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            identifier = gateway.post("/v1/responses", BACKGROUND).json()["id"]
            workshop.await_line("wait")
            gateway.process.send_signal(signal.SIGTERM)
            workshop.await_that(gateway.refuses_connections, str)
            assert gateway.stop() == 0  # the second signal: nobody waits for the tool
        assert workshop.statuses() == ["running"]
        assert workshop.lines() == ["once 1", "wait", "cancelled"]
        with workshop.start() as gateway:
            await_status(workshop, "finished")
            response = gateway.get(f"/v1/responses/{identifier}").json()
            assert response["status"] == "completed"
            assert response["output"][-1]["content"][0]["text"] == "All done."
        assert results(upstream.requests[-1].body) == ["once 1 is done", OUTCOME_UNKNOWN]
        assert workshop.lines() == ["once 1", "wait", "cancelled"]


def test_tool_of_a_background_turn_is_finished_before_the_gateway_stops(tmp_path: Path) -> None:
    with Upstream(play_by_text(MODEL)) as upstream, ThreadPoolExecutor() as threads:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            gateway.post("/v1/responses", BACKGROUND)
            workshop.await_line("wait")
            stopped = threads.submit(gateway.stop)
            workshop.await_that(gateway.refuses_connections, str)
            workshop.let_go()
            assert stopped.result() == 0
        assert workshop.statuses() == ["running"]
        assert "cancelled" not in workshop.lines()
        with workshop.start():
            await_status(workshop, "finished")
        assert OUTCOME_UNKNOWN not in results(upstream.requests[-1].body)
        assert workshop.lines().count("wait") == 1


def test_second_signal_stops_the_gateway_at_once_and_the_turn_fails(tmp_path: Path) -> None:
    with Upstream(play_by_text(MODEL)) as upstream, ThreadPoolExecutor() as threads:
        workshop = Workshop(tmp_path, upstream)
        with workshop.start() as gateway:
            response = threads.submit(gateway.post, *CHAT)
            workshop.await_line("wait")
            gateway.process.send_signal(signal.SIGTERM)
            workshop.await_that(gateway.refuses_connections, str)
            assert gateway.stop() == 0
            assert response.result().status_code == 503
            assert response.result().json()["error"]["code"] == "shutting_down"
        assert workshop.statuses() == ["failed"]
        assert workshop.lines() == ["once 1", "wait", "cancelled"]
