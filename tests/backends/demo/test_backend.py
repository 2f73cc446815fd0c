"""DemoBackend: batches and delays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.backends.demo.conversation import request
from toolrelay.backends.base import discover
from toolrelay.backends.demo import BACKEND, DemoBackend, respond
from toolrelay.core.events import AnswerStarted, StreamEvent
from toolrelay.core.request import Request
from toolrelay.settings import Environment, ModelSettings


async def collect(backend: DemoBackend, asked: Request) -> list[list[StreamEvent]]:
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
