from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.runtime.stores import locked, opened
from tests.stores.rows import ACCEPTED, REQUEST, steps, turn
from toolrelay.core.events import AnswerStarted, TextDelta
from toolrelay.errors import StoreError
from toolrelay.runtime.frames import FrameLog, read_stored
from toolrelay.stores.base import Store
from toolrelay.wires.base import Envelope
from toolrelay.wires.json import decode
from toolrelay.wires.responses.encoder import ResponsesEncoder

ENVELOPE = Envelope(token="t1", created=1, model="fast", request=REQUEST)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toolrelay.db"


async def open_log(store: Store) -> FrameLog:
    await store.create_turn(turn(background=True), steps(ACCEPTED))
    return FrameLog(store, "t1", ResponsesEncoder(ENVELOPE))


async def put(frame_log: FrameLog, *texts: str) -> None:
    waiting = frame_log.put([AnswerStarted(), *map(TextDelta, texts)])
    assert waiting is not None
    await waiting


def numbers(stream: bytes) -> list[object]:
    """Return the sequence numbers of the frames."""
    events = [decode(line.removeprefix(b"data: ")) for line in stream.split(b"\n") if line.startswith(b"data: ")]
    return [event["sequence_number"] for event in events if isinstance(event, dict)]


async def stored(store: Store) -> list[object]:
    return numbers(b"".join([data async for data in read_stored(store, "t1", -1)]))


def test_frames_are_stored_before_readers_get_them(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            frame_log = await open_log(store)
            reader = frame_log.read(-1)
            with locked(path), pytest.raises(StoreError):
                await put(frame_log, "a")
            following = asyncio.ensure_future(anext(reader))
            await put(frame_log, "b")
            read = numbers(await following)
            assert read == await stored(store)
            assert read == list(range(len(read)))
            await reader.aclose()

    asyncio.run(main())


def test_reader_starts_after_its_number_and_ends_with_the_turn(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            frame_log = await open_log(store)
            await put(frame_log, "a", "b")
            count = len(await stored(store))
            reading = asyncio.create_task(_read(frame_log, after=2))
            await put(frame_log, "c")
            frame_log.end()
            assert await reading == list(range(3, count + 1))
            assert await _read(frame_log, after=10_000) == []

    asyncio.run(main())


def test_stream_is_started_once_and_not_after_its_end(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            frame_log = await open_log(store)
            for _ in range(2):
                await frame_log.start()
            assert await stored(store) == [0, 1]
            await put(frame_log, "a")
            frame_log.end()
            count = len(await stored(store))
            await frame_log.start()
            assert await stored(store) == list(range(count))

    asyncio.run(main())


async def _read(frame_log: FrameLog, after: int) -> list[object]:
    return numbers(b"".join([data async for data in frame_log.read(after)]))


def test_cancelled_write_is_finished_before_the_next_one(path: Path) -> None:
    async def main() -> None:
        async with opened(path, busy_seconds=30) as store:
            frame_log = await open_log(store)
            await put(frame_log, "a")
            with locked(path):
                writing = asyncio.create_task(put(frame_log, "b"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                writing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await writing
            await put(frame_log, "c")
            found = await stored(store)
            assert found == list(range(len(found)))
            frame_log.end()
            assert await _read(frame_log, after=-1) == found

    asyncio.run(main())


def test_readers_get_frames_that_could_not_be_stored_at_the_end(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            frame_log = await open_log(store)
            await put(frame_log, "a")
            count = len(await stored(store))
            with locked(path), pytest.raises(StoreError):
                await put(frame_log, "b")
            frame_log.end()
            assert await _read(frame_log, after=-1) == list(range(count + 1))
            assert await stored(store) == list(range(count))

    asyncio.run(main())
