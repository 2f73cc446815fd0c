"""Codex as a backend when clients leave, processes die and upstreams break: the real binary against a scripted upstream."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.backends.codex.play import (
    BUILT_IN,
    DONE,
    PARIS,
    ROME,
    STARTED,
    WEATHER,
    Play,
    ending,
    error_of,
    fold,
    request,
    seen_by_the_client,
    text,
    told,
)
from tests.backends.codex.stage import KEY, place_at, surveyed
from tests.backends.codex.upstream import (
    begun,
    breaks_off,
    call,
    calls,
    completed,
    failed,
    head,
    holds,
    incomplete,
    reasoning,
    refuses,
    says,
    stops_short,
)
from tests.upstream import CUT, Gate, Script, seen
from toolrelay.backends.base import Wanted
from toolrelay.backends.codex import CodexBackend
from toolrelay.backends.codex.pool import Pool
from toolrelay.core.events import StreamEvent, TextDelta

# Who leaves


def test_letting_go_of_an_answer_lets_go_of_the_upstream(play: Play) -> None:  # bug 44
    gate = Gate()
    play.script(holds(gate, "one", "two"))

    async def main() -> None:
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> Wanted:
            events.extend(batch)
            return Wanted.NOTHING

        await play.native.stream_into(request(), deliver)
        assert text(events) == "one"
        await left(play)

    play.run(main())


def test_a_client_that_leaves_before_the_first_word_lets_go_of_the_upstream(play: Play) -> None:  # bug 44
    gate = Gate()
    play.script((head(), gate))

    async def main() -> None:
        asking = asyncio.create_task(told(play.native, request()))
        await seen(play.upstream.request(0))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await left(play)

    play.run(main())


async def left(play: Play) -> None:
    received = await seen(play.upstream.request(0))
    async with asyncio.timeout(10):
        await seen(play.upstream.links[received.link].left)


def test_many_clients_that_leave_at_any_moment_leave_nothing_behind(play: Play) -> None:  # bug 44
    """Each stays a little longer, until some have got as far as the upstream, which would never end its answer."""
    play.script((head() + begun(*"abcdefgh"), Gate()))
    upstream = play.upstream

    async def main() -> None:
        turns = 0
        while len(upstream.requests) < 5:
            asking = asyncio.create_task(told(play.native, request()))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            turns += 25 + turns // 8
        async with asyncio.timeout(10):
            for received in upstream.requests:
                await seen(upstream.links[received.link].left)

    play.run(main())
    (seat,) = play.pool._seats
    assert seat.turns == 0
    assert seat.process.channels == {}
    assert text(play.ask(request(), says("ok"))) == "ok"
    assert len(play.requests) == 1


# Who dies


def test_a_process_that_dies_before_it_said_anything_is_not_noticed(play: Play) -> None:
    gate = Gate()
    play.script((head(), gate), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(play.native, request()))
        await seen(play.upstream.request(0))
        play.kill()
        return await asking

    assert seen_by_the_client(play.run(main())) == [STARTED, TextDelta("Hello"), DONE]


def test_a_turn_of_which_only_the_log_has_heard_is_tried_again(play: Play) -> None:
    play.script(calls(BUILT_IN[0]), (head(), Gate()), says("Hello"))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(play.native, request()))
        await seen(play.upstream.request(1))
        play.kill()
        return await asking

    assert seen_by_the_client(play.run(main())) == [STARTED, TextDelta("Hello"), DONE]


def test_a_process_that_dies_twice_is_an_error(play: Play) -> None:
    play.script((head(), Gate()), (head(), Gate()))

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(play.native, request()))
        for place in range(2):
            await seen(play.upstream.request(place))
            play.kill()
        return await asking

    error = error_of(play.run(main()))
    assert (error.status, error.code) == (502, "upstream_cut")
    assert "Codex" in error.message


@pytest.mark.parametrize("begins", [begun("Hel"), reasoning("Hm"), call(PARIS)], ids=["text", "reasoning", "a call"])
def test_a_process_that_dies_in_the_middle_is_an_error_and_is_replaced(play: Play, begins: bytes) -> None:  # bug 38
    play.script((head() + begins, Gate()))

    async def main() -> list[StreamEvent]:
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> None:
            if not events:
                play.kill()
            events.extend(batch)

        await play.native.stream_into(request(tools=(WEATHER,)), deliver)
        return events

    error = error_of(play.run(main()))
    assert (error.status, error.code) == (502, "upstream_cut")
    assert text(play.ask(request(), says("ok"))) == "ok"


def test_a_process_that_dies_between_turns_is_replaced(play: Play) -> None:
    play.ask(request(), says("one"))
    play.kill()
    assert text(play.ask(request(), says("two"))) == "two"


# An upstream that breaks


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
        ((CUT,), 502, "upstream_cut"),
        (breaks_off("Hel"), 502, "upstream_cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_upstream_says_goes_on_to_the_client(play: Play, script: Any, status: int, code: str) -> None:
    events = play.ask(request(), script)
    error = error_of(events)
    assert (error.status, error.code) == (status, code)
    assert "sk-secret" not in error.message
    assert KEY not in str(error) + error.message
    assert play.upstream.url not in error.message
    assert len(play.requests) == 1


def test_a_rate_limit_says_when_it_is_lifted(play: Play) -> None:
    script = (head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),)
    assert error_of(play.ask(request(), script)).retry_after == 1.5


def test_an_upstream_that_is_not_there_is_an_error_and_no_client_learns_where(play: Play, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    pool = Pool(replace(place_at(tmp_path, play.upstream), base_url=url), size=1)
    pool._binary = surveyed()
    backend = CodexBackend(play.settings, pool)
    try:
        error = error_of(play.run(told(backend, request())))
    finally:
        play.run(backend.close())
    assert (error.status, error.code) == (502, "upstream_unreachable")
    assert url not in error.message


@pytest.mark.parametrize(
    ("script", "finish"),
    [(stops_short("Hel"), "length"), ((head() + begun("Hel") + incomplete("content_filter"),), "content_filter")],
)
def test_an_answer_that_was_cut_short_has_an_end(play: Play, script: Script, finish: str) -> None:  # bug 5
    events = play.ask(request(), script)
    assert text(events) == "Hel"
    assert ending(events).finish == finish
    usage = ending(events).usage
    assert usage is not None
    assert usage.estimated


def test_an_upstream_that_breaks_off_while_a_call_waits_is_found_out(play: Play) -> None:  # bug 38
    script = (head() + call(PARIS), CUT)
    error = error_of(play.ask(request(tools=(WEATHER,)), script, backend=play.backend(probe_after=0.05)))
    assert error.code == "upstream_cut"


def test_a_model_that_takes_its_time_between_calls_is_waited_for(play: Play) -> None:
    gate = Gate()
    play.script((head() + call(PARIS), gate, call(ROME) + completed()), says("never"))
    backend = play.backend(probe_after=0.01)

    async def main() -> list[StreamEvent]:
        asking = asyncio.create_task(told(backend, request(tools=(WEATHER,))))
        await seen(gate.reached)
        await asyncio.sleep(0.05)  # it is looked after several times
        gate.open()
        return await asking

    assert [json.loads(call.arguments)["city"] for call in fold(play.run(main())).calls] == ["Paris", "Rome"]


def test_a_model_that_says_nothing_for_too_long_is_an_error(play: Play) -> None:
    error = error_of(play.ask(request(), (head(), Gate()), backend=play.backend(timeout_seconds=0.2)))
    assert (error.status, error.code) == (504, "upstream_timeout")
