"""Connections on which no request comes, or none in time."""

from __future__ import annotations

import asyncio

from tests.scripted import scripted, serving
from toolrelay.backends.demo import DemoBackend

SOON = 0.2


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def story() -> None:
        async with serving(scripted(DemoBackend()), idle=SOON) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(story())


def test_a_head_that_comes_drop_by_drop_is_not_waited_for_for_ever() -> None:
    async def story() -> None:
        async with serving(scripted(DemoBackend()), idle=SOON) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")

            async def drip() -> None:
                while True:
                    writer.write(b"x-drop: 1\r\n")
                    await writer.drain()
                    await asyncio.sleep(SOON / 20)

            dripping = asyncio.create_task(drip())
            assert await reader.read() == b""
            dripping.cancel()
            writer.close()

    asyncio.run(story())


def test_a_turn_may_take_longer_than_an_idle_connection_is_kept() -> None:
    async def story() -> None:
        async with serving(scripted(DemoBackend(pace=SOON / 5)), idle=SOON) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = b'{"model": "fast", "stream": true, "messages": [{"role": "user", "content": "count to 10"}]}'
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            assert (await reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            writer.close()

    asyncio.run(story())
