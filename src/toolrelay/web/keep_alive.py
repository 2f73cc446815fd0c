"""Waiting for the next value of a stream, with signs of life while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def with_keep_alive(source: AsyncGenerator[T, None], seconds: float) -> AsyncGenerator[T | None, None]:
    """Yield the values of a source, and None whenever there was none for so many seconds (0: never). Close it at the end."""
    following: asyncio.Future[T] | None = None
    async with aclosing(source):
        try:
            while True:
                following = following or asyncio.ensure_future(anext(source))
                done, _ = await asyncio.wait([following], timeout=seconds if seconds > 0 else None)
                if not done:
                    yield None
                    continue
                try:
                    value = following.result()
                except StopAsyncIteration:
                    return
                following = None
                yield value
        finally:
            if following is not None and not following.done():
                following.cancel()
                await asyncio.wait([following])
