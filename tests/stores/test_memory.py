"""The bounded store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.stores.rows import conversation, items, steps, turn
from toolrelay.core.messages import Message
from toolrelay.core.request import Request
from toolrelay.core.steps import TurnAccepted
from toolrelay.errors import StoreError
from toolrelay.stores.base import Store
from toolrelay.stores.sql.store import SqlStore
from toolrelay.stores.sqlite import SqliteDatabase
from toolrelay.stores.turns import Frame, TurnStatus
from toolrelay.stores.usage import UsageRow

MEGABYTE = 1024 * 1024


def play(story: Callable[[Store], Awaitable[Any]], megabytes: int = 4) -> None:
    async def main() -> None:
        store = SqlStore(SqliteDatabase(None, max_bytes=megabytes * MEGABYTE), has_readers=False)
        await store.open()
        await story(store)
        await store.close()

    asyncio.run(main())


async def add(store: Store, name: str, *, at: float, status: TurnStatus = "finished", size: int = 100_000) -> None:
    request = Request(wire="w", model="m", items=(Message(role="user", content="x" * size),))
    accepted = TurnAccepted(request=request)
    await store.create_turn(turn(name, created_at=at, status=status), steps(accepted))


async def fill(store: Store) -> int:
    """Add turns that wait until there is no room left. Return how many."""
    for number in range(1000):
        try:
            await add(store, f"open {number:03}", at=1000 + number, status="parked")
        except StoreError as error:
            assert "The store in memory is full of turns that are not finished" in error.message  # noqa: PT017 -- it is awaited
            return number
    raise AssertionError("it is never full")


async def names(store: Store) -> list[str]:
    return [str(record["id"]) async for record in store.export() if record["type"] == "turn"]


def test_oldest_finished_turns_are_dropped_first() -> None:
    async def story(store: Store) -> None:
        for number in range(200):
            await add(store, f"{number:03}", at=number)
        kept = await names(store)
        assert kept == [f"{number:03}" for number in range(200 - len(kept), 200)]
        assert 10 < len(kept) < 42

    play(story)


@pytest.mark.parametrize("status", ["parked", "running"])
def test_unfinished_turns_are_never_dropped(status: TurnStatus) -> None:
    async def story(store: Store) -> None:
        for number in range(20):
            await add(store, f"open {number}", at=number, status=status)
        for number in range(100):
            await add(store, f"{number}", at=1000 + number)
        assert [each.row.id for each in await store.load_unfinished()] == [f"open {number}" for number in range(20)]
        assert await store.load_turn("99") is not None

    play(story)


def test_store_full_of_open_questions_refuses_more_and_loses_none() -> None:
    async def story(store: Store) -> None:
        count = await fill(store)
        assert count > 30
        assert len(await store.load_unfinished()) == count
        await store.set_status("open 000", "cancelled")
        await add(store, "next", at=count, status="parked")
        assert len(await store.load_unfinished()) == count

    play(story)


def test_write_larger_than_the_store_is_refused() -> None:
    async def story(store: Store) -> None:
        with pytest.raises(StoreError, match="full"):
            await add(store, "huge", at=1, size=5 * MEGABYTE)
        await add(store, "small", at=1)
        assert await names(store) == ["small"]

    play(story)


def test_large_write_makes_as_much_room_as_it_needs() -> None:
    async def story(store: Store) -> None:
        for number in range(30):
            await add(store, f"{number}", at=number)
        await add(store, "large", at=100, size=3 * MEGABYTE)
        assert "large" in await names(store)

    play(story)


def test_many_writes_at_once_are_all_taken() -> None:
    async def story(store: Store) -> None:
        await asyncio.gather(*(add(store, f"{number:03}", at=number) for number in range(200)))
        assert (await names(store))[-1] == "199"

    play(story)


def test_frames_and_steps_of_a_running_turn_displace_finished_ones() -> None:
    async def story(store: Store) -> None:
        for number in range(35):
            await add(store, f"{number}", at=number)
        await add(store, "running", at=100, status="running", size=10)
        for number in range(30):
            await store.append_frames("running", [Frame(number, b"x" * 100_000)])
        assert len(await store.load_frames("running")) == 30

    play(story)


def test_conversations_and_usage_are_dropped_last() -> None:
    async def story(store: Store) -> None:
        await store.add_usage([UsageRow(minute=1, model="m", key="k")])
        await store.create_conversation(conversation(), items("a"))
        for number in range(100):
            await add(store, f"{number:03}", at=number)
        kinds = {record["type"] async for record in store.export()}
        assert kinds == {"turn", "conversation", "usage"}
        await fill(store)
        assert {record["type"] async for record in store.export()} == {"turn"}

    play(story)
