"""Connections on which no request comes, or none in time."""

from __future__ import annotations

import asyncio
import contextlib
import json

from tests.scripted import scripted, serving
from tests.stage import FRONTS
from tests.visitor import request
from toolrelay import log
from toolrelay.backends.demo import DemoBackend
from toolrelay.core.events import AnswerFinished, AnswerStarted, TextDelta

SOON = 0.2
CHAT = FRONTS["openai_chat"]


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
                with contextlib.suppress(ConnectionError):
                    while True:
                        writer.write(b"x-drop: 1\r\n")
                        await writer.drain()
                        await asyncio.sleep(SOON / 20)

            dripping = asyncio.create_task(drip())
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            dripping.cancel()
            writer.close()

    asyncio.run(story())


def test_a_turn_may_take_longer_than_an_idle_connection_is_kept() -> None:
    async def story() -> None:
        over = asyncio.Event()
        backend = DemoBackend(script=[[AnswerStarted(), TextDelta("Hello"), over, AnswerFinished(finish="stop")]])
        async with serving(scripted(backend), idle=1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("POST", CHAT.path, json.dumps(CHAT.ask(stream=True)).encode()))
            await reader.readuntil(b"\n\n")
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await idle.read() == b""
            idle_writer.close()
            over.set()
            await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            writer.close()

    with log.captured():
        asyncio.run(story())
