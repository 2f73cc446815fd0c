"""Answers taken where they arrive, and nothing more while somebody must be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from tests.backends.http.plain_wire import DONE, STREAMED, backend_for
from tests.upstream import LAST_CHUNK, Gate, Upstream, chunk, seen, stream_head
from toolrelay.backends.base import Wanted, delivered
from toolrelay.core.events import StreamEvent, TextDelta


def test_nothing_more_is_taken_while_the_last_batch_is_waited_for() -> None:
    first, second = Gate(), Gate()

    async def main(upstream: Upstream) -> None:
        heard, room = asyncio.Event(), asyncio.Event()
        events: list[StreamEvent] = []

        def take(batch: list[StreamEvent]) -> Awaitable[None] | None:
            events.extend(batch)
            heard.set()
            return None if room.is_set() else wait()

        async def wait() -> None:
            await room.wait()

        async with backend_for(upstream) as (backend, _):
            relaying = asyncio.ensure_future(backend.stream_into(STREAMED, take))
            await heard.wait()
            first.open()
            await seen(second.reached)
            assert events == [TextDelta("a")]
            room.set()
            second.open()
            await relaying
            assert events == [TextDelta("a"), TextDelta("b"), DONE]

    with Upstream((stream_head() + chunk(b"a\n"), first, chunk(b"b\n"), second, chunk(b"[DONE]\n") + LAST_CHUNK)) as upstream:
        asyncio.run(main(upstream))


@pytest.mark.parametrize("at", ["a", "b"])
def test_what_the_taker_raises_is_raised_and_lets_the_upstream_go(at: str) -> None:
    gate = Gate()

    async def main(upstream: Upstream) -> None:
        def take(batch: list[StreamEvent]) -> Awaitable[None] | None:
            gate.open()
            if TextDelta(at) in batch:
                raise ValueError(at)
            return None

        async with backend_for(upstream) as (backend, _):
            with pytest.raises(ValueError, match=at):
                await backend.stream_into(STREAMED, take)
            await seen(upstream.links[0].left)

    with Upstream((stream_head() + chunk(b"a\n"), gate, chunk(b"b\n"), Gate())) as upstream:
        asyncio.run(main(upstream))


def test_a_cancelled_relay_lets_the_upstream_go() -> None:
    async def main(upstream: Upstream) -> None:
        heard = asyncio.Event()

        def take(batch: list[StreamEvent]) -> Awaitable[None] | None:
            heard.set()
            return None

        async with backend_for(upstream) as (backend, _):
            relaying = asyncio.ensure_future(backend.stream_into(STREAMED, take))
            await heard.wait()
            relaying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await relaying
            await seen(upstream.links[0].left)

    with Upstream((stream_head() + chunk(b"a\n"), Gate())) as upstream:
        asyncio.run(main(upstream))


def test_a_batch_that_need_not_be_waited_for_is_taken_at_once() -> None:
    assert asyncio.run(delivered(lambda _: None, [])) is Wanted.ALL


def test_upstream_is_closed_once_nothing_more_is_wanted() -> None:
    async def main(upstream: Upstream) -> None:
        events: list[StreamEvent] = []

        def deliver(batch: list[StreamEvent]) -> Wanted:
            events.extend(batch)
            return Wanted.NOTHING

        async with backend_for(upstream) as (backend, _):
            await backend.stream_into(STREAMED, deliver)
            await seen(upstream.links[0].left)
        assert events == [TextDelta("a")]

    with Upstream((stream_head() + chunk(b"a\n"), Gate())) as upstream:
        asyncio.run(main(upstream))
