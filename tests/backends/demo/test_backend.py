"""DemoBackend: batches and delays. ScriptedBackend: steps of a script."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.backends.demo.conversation import request
from toolrelay.backends.base import discover
from toolrelay.backends.demo import BACKEND, DemoBackend, ScriptedBackend, ScriptStep, respond
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.request import Request
from toolrelay.errors import BackendError
from toolrelay.settings import Environment, ModelSettings


async def collect(backend: DemoBackend | ScriptedBackend, asked: Request) -> list[list[StreamEvent]]:
    return [batch async for batch in backend.stream(asked)]


def test_discovery_finds_the_package_as_provider_demo() -> None:
    assert discover()["demo"] is BACKEND
    backend = BACKEND.open(ModelSettings(provider="demo"), Environment(data_dir=Path("nowhere")))
    assert isinstance(backend, DemoBackend)
    asyncio.run(backend.close())


def test_streamed_request_yields_one_event_per_batch() -> None:  # bug 4
    asked = request("Hello", stream=True)
    batches = asyncio.run(collect(DemoBackend(delay=0), asked))
    assert [event for batch in batches for event in batch] == respond(asked)
    assert {len(batch) for batch in batches} == {1}


def test_long_stream_is_sent_in_larger_batches() -> None:
    asked = request("count to 10000", stream=True)
    batches = asyncio.run(collect(DemoBackend(delay=0), asked))
    assert len(batches) <= 401
    assert [event for batch in batches for event in batch] == respond(asked)


def test_request_without_stream_is_answered_without_delay() -> None:
    asked = request("Hello")
    assert asyncio.run(collect(DemoBackend(delay=3600), asked)) == [respond(asked)]


def test_stream_can_be_cancelled_during_a_delay() -> None:
    async def run() -> None:
        stream = DemoBackend(delay=3600).stream(request("Hello", stream=True))
        assert await anext(stream) == [AnswerStarted(model="toolrelay-demo")]
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not following.done()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(run())


END = AnswerFinished(finish="stop")
HELLO: list[ScriptStep] = [AnswerStarted(), [TextDelta("a"), TextDelta("b")], END]


def test_script_plays_answers_in_order_and_repeats_the_last() -> None:
    def echo(asked: Request) -> list[ScriptStep]:
        return [TextDelta(asked.model), AnswerFinished(finish="stop")]

    async def run() -> None:
        backend = ScriptedBackend([HELLO, echo])
        asked = [request("one"), request("two"), request("three")]
        first = await collect(backend, asked[0])
        assert first == [[AnswerStarted()], [TextDelta("a"), TextDelta("b")], [AnswerFinished(finish="stop")]]
        for again in asked[1:]:
            assert await collect(backend, again) == [[TextDelta("demo")], [AnswerFinished(finish="stop")]]
        assert backend.requests == asked
        assert not backend.abandoned.is_set()

    asyncio.run(run())


def test_scripted_respond_records_requests() -> None:
    backend = ScriptedBackend([respond])
    asked = request("Hello")
    batches = asyncio.run(collect(backend, asked))
    assert [event for batch in batches for event in batch] == respond(asked)
    assert backend.requests == [asked]


def test_script_waits_for_an_event_step() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        stream = ScriptedBackend([[TextDelta("a"), gate, TextDelta("b")]]).stream(request("go"))
        assert await anext(stream) == [TextDelta("a")]
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not following.done()
        gate.set()
        assert await following == [TextDelta("b")]
        await stream.aclose()

    asyncio.run(run())


def test_script_fails_at_an_exception_step() -> None:
    async def run() -> None:
        error = BackendError("gone")
        assert await collect(ScriptedBackend([[TextDelta("a"), error]]), request("go")) == [
            [TextDelta("a")],
            [AnswerFailed(error)],
        ]
        with pytest.raises(RuntimeError, match="a bug"):
            await collect(ScriptedBackend([[RuntimeError("a bug")]]), request("go"))

    asyncio.run(run())


def test_closed_answer_sets_abandoned_unless_finished() -> None:  # bug 44
    async def run() -> None:
        closed = ScriptedBackend([HELLO])
        cancelled = ScriptedBackend([[asyncio.Event()]])
        finished = ScriptedBackend([[END]])
        stream = closed.stream(request("go"))
        await anext(stream)
        await stream.aclose()
        assert closed.abandoned.is_set()
        waiting = asyncio.ensure_future(collect(cancelled, request("go")))
        await asyncio.sleep(0)
        waiting.cancel()
        await cancelled.abandoned.wait()
        stream = finished.stream(request("go"))
        await anext(stream)
        await stream.aclose()
        assert not finished.abandoned.is_set()

    asyncio.run(run())
