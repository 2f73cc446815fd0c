"""Signs of life while a stream has no value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from toolrelay.web.keep_alive import with_keep_alive


class Source:
    """Yields numbers; before each it waits until the test lets it go on."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)
        self.is_closed = False

    async def values(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                await self.gate.acquire()
                yield number
        finally:
            self.is_closed = True


def test_silence_is_none_and_no_value_is_lost() -> None:
    async def main() -> None:
        source = Source()
        stream = with_keep_alive(source.values(), 0.001)
        seen: list[int | None] = [await anext(stream), await anext(stream)]
        source.gate.release()
        seen += [each async for each in _until(stream, 0)]
        for _ in range(2):
            source.gate.release()
        rest = [each async for each in stream if each is not None]
        assert (seen[:2], seen[-1], rest, source.is_closed) == ([None, None], 0, [1, 2], True)

    asyncio.run(main())


def test_without_a_limit_only_values_come() -> None:
    async def main() -> None:
        source = Source()
        for _ in range(3):
            source.gate.release()
        assert [each async for each in with_keep_alive(source.values(), 0)] == [0, 1, 2]

    asyncio.run(main())


def test_source_is_closed_with_the_stream() -> None:
    async def main() -> None:
        source = Source()
        stream = with_keep_alive(source.values(), 0.001)
        assert await anext(stream) is None
        await stream.aclose()
        assert source.is_closed

    asyncio.run(main())


async def _until(stream: AsyncGenerator[int | None, None], last: int) -> AsyncGenerator[int | None, None]:
    async for each in stream:
        yield each
        if each == last:
            return
