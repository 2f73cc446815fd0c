"""The demo model as a backend: how it streams, and how it plays scripts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.backends.demo_talk import request
from toolrelay.backends._demo_mind import think
from toolrelay.backends.base import discover
from toolrelay.backends.demo import BACKEND, DemoBackend, Step
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.request import Request
from toolrelay.errors import BackendError
from toolrelay.settings import Environment, ModelSettings


async def collect(backend: DemoBackend, asked: Request) -> list[list[StreamEvent]]:
    return [batch async for batch in backend.stream(asked)]


def test_it_is_found_as_the_provider_demo() -> None:
    assert discover()["demo"] is BACKEND
    backend = BACKEND.open(ModelSettings(provider="demo"), Environment(data_dir=Path("nowhere")))
    assert isinstance(backend, DemoBackend)
    asyncio.run(backend.close())


def test_a_stream_comes_piece_by_piece_and_spells_the_same_answer() -> None:  # bug 4
    asked = request("Hello", stream=True)
    batches = asyncio.run(collect(DemoBackend(pace=0), asked))
    assert [event for batch in batches for event in batch] == think(asked)
    assert {len(batch) for batch in batches} == {1}


def test_a_long_stream_comes_in_larger_batches() -> None:
    asked = request("count to 10000", stream=True)
    batches = asyncio.run(collect(DemoBackend(pace=0), asked))
    assert len(batches) <= 401
    assert [event for batch in batches for event in batch] == think(asked)


def test_an_answer_that_is_not_streamed_is_not_paced() -> None:
    asked = request("Hello")
    assert asyncio.run(collect(DemoBackend(pace=3600), asked)) == [think(asked)]


def test_a_paced_stream_can_be_cancelled() -> None:
    async def story() -> None:
        stream = DemoBackend(pace=3600).stream(request("Hello", stream=True))
        assert await anext(stream) == [AnswerStarted(model="toolrelay-demo")]
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not following.done()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(story())


END = AnswerFinished(finish="stop")
HELLO: list[Step] = [AnswerStarted(), [TextDelta("a"), TextDelta("b")], END]


def test_a_script_plays_its_answers_in_order_and_the_last_one_again() -> None:
    def echo(asked: Request) -> list[Step]:
        return [TextDelta(asked.model), AnswerFinished(finish="stop")]

    async def story() -> None:
        backend = DemoBackend(script=[HELLO, echo])
        asked = [request("one"), request("two"), request("three")]
        first = await collect(backend, asked[0])
        assert first == [[AnswerStarted()], [TextDelta("a"), TextDelta("b")], [AnswerFinished(finish="stop")]]
        for again in asked[1:]:
            assert await collect(backend, again) == [[TextDelta("demo")], [AnswerFinished(finish="stop")]]
        assert backend.requests == asked
        assert not backend.abandoned.is_set()

    asyncio.run(story())


def test_a_script_with_the_mind_in_it_records_what_it_is_asked() -> None:
    backend = DemoBackend(script=[think])
    asked = request("Hello")
    batches = asyncio.run(collect(backend, asked))
    assert [event for batch in batches for event in batch] == think(asked)
    assert backend.requests == [asked]


def test_a_script_waits_where_it_is_told_to() -> None:
    async def story() -> None:
        gate = asyncio.Event()
        stream = DemoBackend(script=[[TextDelta("a"), gate, TextDelta("b")]]).stream(request("go"))
        assert await anext(stream) == [TextDelta("a")]
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not following.done()
        gate.set()
        assert await following == [TextDelta("b")]
        await stream.aclose()

    asyncio.run(story())


def test_a_script_fails_where_it_is_told_to() -> None:
    async def story() -> None:
        error = BackendError("gone")
        assert await collect(DemoBackend(script=[[TextDelta("a"), error]]), request("go")) == [
            [TextDelta("a")],
            [AnswerFailed(error)],
        ]
        with pytest.raises(RuntimeError, match="a bug"):
            await collect(DemoBackend(script=[[RuntimeError("a bug")]]), request("go"))

    asyncio.run(story())


def test_a_script_knows_when_its_answer_was_let_go() -> None:  # bug 44
    async def story() -> None:
        closed = DemoBackend(script=[HELLO])
        cancelled = DemoBackend(script=[[asyncio.Event()]])
        finished = DemoBackend(script=[[END]])
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

    asyncio.run(story())
