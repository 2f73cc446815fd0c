"""Disconnecting clients, dying processes and failing upstreams: the real binary against a scripted upstream."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.backends.codex.app_server import KEY, location_in, probed_binary
from tests.backends.codex.harness import (
    BUILT_IN,
    DONE,
    PARIS,
    ROME,
    STARTED,
    WEATHER,
    CodexHarness,
    client_events,
    collect,
    error_of,
    finish_of,
    fold,
    request,
    text,
)
from tests.backends.codex.upstream import (
    call_frames,
    calls,
    completed,
    disconnects,
    failed,
    head,
    holds,
    incomplete,
    reasoning,
    refuses,
    says,
    truncates,
    unfinished_message,
)
from tests.upstream import CLOSE, Gate, Script, result_of
from toolrelay.backends.base import Wanted
from toolrelay.backends.codex import CodexBackend
from toolrelay.backends.codex.pool import ProcessPool
from toolrelay.core.events import StreamEvent, TextDelta

# Cancellation


def test_unwanted_answer_closes_upstream_connection(codex: CodexHarness) -> None:  # bug 44
    gate = Gate()
    codex.script(holds(gate, "one", "two"))

    async def main() -> None:
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> Wanted:
            events.extend(batch)
            return Wanted.NOTHING

        await codex.native.stream_into(request(), deliver)
        assert text(events) == "one"
        await left(codex)

    codex.run(main())


def test_cancel_before_first_delta_closes_upstream_connection(codex: CodexHarness) -> None:  # bug 44
    gate = Gate()
    codex.script((head(), gate))

    async def main() -> None:
        asking = asyncio.create_task(collect(codex.native, request()))
        await result_of(codex.upstream.request(0))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await left(codex)

    codex.run(main())


async def left(codex: CodexHarness) -> None:
    received = await result_of(codex.upstream.request(0))
    async with asyncio.timeout(60):
        await result_of(codex.upstream.connections[received.connection].closed)


def test_cancel_at_any_moment_leaves_no_turn_running(codex: CodexHarness) -> None:  # bug 44
    """Cancel each request a little later, until some have reached the upstream, which never ends its answer."""
    codex.script((head() + unfinished_message(*"abcdefgh"), Gate()))
    upstream = codex.upstream

    async def main() -> None:
        turns = 0
        while len(upstream.requests) < 5:
            asking = asyncio.create_task(collect(codex.native, request()))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            turns += 25 + turns // 8
        async with asyncio.timeout(60):
            for received in upstream.requests:
                await result_of(upstream.connections[received.connection].closed)

    codex.run(main())
    (pooled,) = codex.pool.processes
    assert pooled.turns == 0
    assert pooled.process.channels == {}
    assert text(codex.ask(request(), says("ok"))) == "ok"
    assert len(codex.requests) == 1


# Killed processes


def test_process_killed_before_first_delta_is_retried(codex: CodexHarness) -> None:
    gate = Gate()
    codex.script((head(), gate), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(collect(codex.native, request()))
        await result_of(codex.upstream.request(0))
        codex.kill()
        return await asking

    assert client_events(codex.run(main())) == [STARTED, TextDelta("Hello"), DONE]


def test_turn_with_only_log_events_is_retried(codex: CodexHarness) -> None:
    codex.script(calls(BUILT_IN[0]), (head(), Gate()), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(collect(codex.native, request()))
        await result_of(codex.upstream.request(1))
        codex.kill()
        return await asking

    assert client_events(codex.run(main())) == [STARTED, TextDelta("Hello"), DONE]


def test_process_killed_twice_is_an_error(codex: CodexHarness) -> None:
    codex.script((head(), Gate()), (head(), Gate()))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(collect(codex.native, request()))
        for attempt in range(2):
            await result_of(codex.upstream.request(attempt))
            codex.kill()
        return await asking

    error = error_of(codex.run(main()))
    assert (error.status, error.code) == (502, "upstream_cut")
    assert "Codex" in error.message


@pytest.mark.parametrize(
    "begins", [unfinished_message("Hel"), reasoning("Hm"), call_frames(PARIS)], ids=["text", "reasoning", "a call"]
)
def test_process_killed_mid_answer_is_an_error_and_is_replaced(codex: CodexHarness, begins: bytes) -> None:  # bug 38
    codex.script((head() + begins, Gate()))

    async def main() -> list[StreamEvent]:
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> None:
            if not events:
                codex.kill()
            events.extend(batch)

        await codex.native.stream_into(request(tools=(WEATHER,)), deliver)
        return events

    error = error_of(codex.run(main()))
    assert (error.status, error.code) == (502, "upstream_cut")
    assert text(codex.ask(request(), says("ok"))) == "ok"


def test_process_killed_between_turns_is_replaced(codex: CodexHarness) -> None:
    codex.ask(request(), says("one"))
    codex.kill()
    assert text(codex.ask(request(), says("two"))) == "two"


# Upstream failures


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (refuses(401, "Incorrect API key provided: sk-secret"), 502, "upstream_auth"),
        (refuses(403, f"The key {KEY} may not do this."), 403, "upstream_error"),
        (refuses(404, "No such model"), 404, "upstream_error"),
        (refuses(429, "Slow down"), 429, "rate_limit_exceeded"),
        (refuses(500), 500, "upstream_error"),
        (refuses(503), 503, "upstream_error"),
        (refuses(400, "Too long", "context_length_exceeded"), 400, "context_length_exceeded"),
        ((head() + failed("context_length_exceeded", "Too long"),), 400, "context_length_exceeded"),
        ((head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),), 429, "rate_limit_exceeded"),
        ((head() + failed("insufficient_quota", "Pay."),), 429, "insufficient_quota"),
        ((head() + failed("server_error", "Sorry."),), 502, "upstream_cut"),
        ((CLOSE,), 502, "upstream_cut"),
        (disconnects("Hel"), 502, "upstream_cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_upstream_errors_are_mapped(codex: CodexHarness, script: Any, status: int, code: str) -> None:
    events = codex.ask(request(), script)
    error = error_of(events)
    assert (error.status, error.code) == (status, code)
    assert "sk-secret" not in error.message
    assert KEY not in str(error) + error.message
    assert codex.upstream.url not in error.message
    assert len(codex.requests) == 1


def test_rate_limit_has_retry_after(codex: CodexHarness) -> None:
    script = (head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),)
    assert error_of(codex.ask(request(), script)).retry_after == 1.5


def test_unreachable_upstream_is_an_error_without_its_url(codex: CodexHarness, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    pool = ProcessPool(replace(location_in(tmp_path, codex.upstream), base_url=url), size=1, binary=probed_binary())
    backend = CodexBackend(codex.settings, pool)
    try:
        error = error_of(codex.run(collect(backend, request())))
    finally:
        codex.run(backend.close())
    assert (error.status, error.code) == (502, "upstream_unreachable")
    assert url not in error.message


@pytest.mark.parametrize(
    ("script", "finish"),
    [(truncates("Hel"), "length"), ((head() + unfinished_message("Hel") + incomplete("content_filter"),), "content_filter")],
)
def test_truncated_answer_has_a_finish(codex: CodexHarness, script: Script, finish: str) -> None:  # bug 5
    events = codex.ask(request(), script)
    assert text(events) == "Hel"
    assert finish_of(events).finish == finish
    usage = finish_of(events).usage
    assert usage is not None
    assert usage.estimated


def test_upstream_disconnect_while_a_call_waits_is_detected(codex: CodexHarness) -> None:  # bug 38
    script = (head() + call_frames(PARIS), CLOSE)
    error = error_of(codex.ask(request(tools=(WEATHER,)), script, backend=codex.backend(probe_seconds=0.05)))
    assert error.code == "upstream_cut"


def test_slow_parallel_calls_all_arrive(codex: CodexHarness) -> None:
    gate = Gate()
    codex.script((head() + call_frames(PARIS), gate, call_frames(ROME) + completed()), says("never"))
    backend = codex.backend(probe_seconds=0.01)

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(collect(backend, request(tools=(WEATHER,))))
        await result_of(gate.reached)
        await asyncio.sleep(0.05)  # several probes
        gate.open()
        return await asking

    assert [json.loads(call.arguments)["city"] for call in fold(codex.run(main())).calls] == ["Paris", "Rome"]


def test_silent_model_times_out(codex: CodexHarness) -> None:
    error = error_of(codex.ask(request(), (head(), Gate()), backend=codex.backend(timeout_seconds=0.2)))
    assert (error.status, error.code) == (504, "upstream_timeout")
