"""ScriptedBackend: steps of a script."""

from __future__ import annotations

import asyncio

import pytest

from tests.backends.demo.conversation import request
from tests.scripted_backend import ScriptedBackend, ScriptStep
from toolrelay.backends.demo import respond
from toolrelay.core.events import AnswerFailed, AnswerFinished, AnswerStarted, StreamEvent, TextDelta
from toolrelay.core.request import Request
from toolrelay.errors import BackendError


async def collect(backend: ScriptedBackend, asked: Request) -> list[list[StreamEvent]]:
    return [batch async for batch in backend.stream(asked)]


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
