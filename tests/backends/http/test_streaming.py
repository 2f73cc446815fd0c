"""Streaming with backpressure: nothing more is delivered while a batch is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from tests.backends.http.plain_wire import DONE, STREAMED, backend_for
from tests.upstream import LAST_CHUNK, Gate, Upstream, chunk, result_of, stream_head
from toolrelay.backends.base import Wanted, deliver_batch
from toolrelay.core.events import StreamEvent, TextDelta


def test_no_batch_is_delivered_while_the_last_is_awaited() -> None:
    first, second = Gate(), Gate()

    async def main(upstream: Upstream) -> None:
        received, room = asyncio.Event(), asyncio.Event()
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> Awaitable[None] | None:
            events.extend(batch)
            received.set()
            return None if room.is_set() else wait()

        async def wait() -> None:
            await room.wait()

        async with backend_for(upstream) as (backend, _):
            streaming = asyncio.ensure_future(backend.stream_into(STREAMED, deliver))
            await received.wait()
            first.open()
            await result_of(second.reached)
            assert events == [TextDelta("a")]
            room.set()
            second.open()
            await streaming
            assert events == [TextDelta("a"), TextDelta("b"), DONE]

    with Upstream((stream_head() + chunk(b"a\n"), first, chunk(b"b\n"), second, chunk(b"[DONE]\n") + LAST_CHUNK)) as upstream:
        asyncio.run(main(upstream))


@pytest.mark.parametrize("at", ["a", "b"])
def test_error_of_deliver_is_raised_and_closes_upstream(at: str) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        def deliver(batch: list[StreamEvent]) -> Awaitable[None] | None:
            gate.open()
            if TextDelta(at) in batch:
                raise ValueError(at)
            return None

        async with backend_for(upstream) as (backend, _):
            with pytest.raises(ValueError, match=at):
                await backend.stream_into(STREAMED, deliver)
            await result_of(upstream.connections[0].closed)

    with Upstream((stream_head() + chunk(b"a\n"), gate, chunk(b"b\n"), Gate())) as upstream:
        asyncio.run(main(upstream))


def test_cancelled_stream_closes_upstream() -> None:
    async def main(upstream: Upstream) -> None:
        received = asyncio.Event()

        def deliver(batch: list[StreamEvent]) -> Awaitable[None] | None:
            received.set()
            return None

        async with backend_for(upstream) as (backend, _):
            streaming = asyncio.ensure_future(backend.stream_into(STREAMED, deliver))
            await received.wait()
            streaming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await streaming
            await result_of(upstream.connections[0].closed)

    with Upstream((stream_head() + chunk(b"a\n"), Gate())) as upstream:
        asyncio.run(main(upstream))


def test_deliver_batch_returns_all_for_none() -> None:
    assert asyncio.run(deliver_batch(lambda _: None, [])) is Wanted.ALL


def test_upstream_is_closed_once_nothing_more_is_wanted() -> None:
    async def main(upstream: Upstream) -> None:
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> Wanted:
            events.extend(batch)
            return Wanted.NOTHING

        async with backend_for(upstream) as (backend, _):
            await backend.stream_into(STREAMED, deliver)
            await result_of(upstream.connections[0].closed)
        assert events == [TextDelta("a")]

    with Upstream((stream_head() + chunk(b"a\n"), Gate())) as upstream:
        asyncio.run(main(upstream))
