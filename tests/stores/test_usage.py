"""Usage in the store: latencies are added up, sums by time and name."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.conftest import Play
from tests.stores.test_migrations import FIXTURE_NAMES, FIXTURES, use
from toolrelay.core.events import MAX_TOKENS
from toolrelay.stores.base import Store
from toolrelay.stores.sqlite import FILE_NAME
from toolrelay.stores.usage import UsageQuery, UsageRow, UsageShare

QUERY = UsageQuery(first=0, end=20, step=10)


def test_latencies_of_the_same_minute_are_added_up(play: Play) -> None:
    async def story(store: Store) -> None:
        row = UsageRow(minute=5, model="m", key="k", denials=1, first_latencies="3:1", turn_latencies="7:1 9:2")
        await store.add_usage([row, row])
        await store.add_usage([UsageRow(minute=5, model="m", key="k", turn_latencies="9:1")])
        await store.add_usage([UsageRow(minute=5, model="m", key="k")])
        (found,) = await store.sum_usage(QUERY, ["m"])
        assert (found.denials, found.first.counts, found.turn.counts) == (2, {3: 2}, {7: 2, 9: 5})

    play(story)


def test_sums_are_by_step_and_name(play: Play) -> None:
    async def story(store: Store) -> None:
        rows = [(0, "a", "x"), (9, "a", "y"), (10, "a", "x"), (19, "b", "x"), (19, "c", "x"), (20, "a", "x")]
        await store.add_usage([UsageRow(minute=minute, model=model, key=key, turns=1) for minute, model, key in rows])
        sums = [(each.start, each.name, each.turns) for each in await store.sum_usage(QUERY, ["a"])]
        assert sorted(sums, key=str) == [(0, "a", 2), (10, "a", 1), (10, None, 2)]
        by_key = UsageQuery(first=0, end=20, step=20, by="key", model="a")
        assert [(each.name, each.turns) for each in await store.sum_usage(by_key, ["x", "y"])] == [("x", 2), ("y", 1)]
        own = UsageQuery(first=0, end=20, step=20, key="y")
        assert [(each.name, each.turns) for each in await store.sum_usage(own, [])] == [(None, 1)]
        assert await store.list_usage_shares(QUERY) == [
            UsageShare("a", "x", 2),
            UsageShare("a", "y", 1),
            UsageShare("b", "x", 1),
            UsageShare("c", "x", 1),
        ]
        assert await store.list_usage_shares(own) == [UsageShare("a", "y", 1)]

    play(story)


def test_sum_of_absurd_figures_is_limited(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_usage([UsageRow(minute=0, model="m", key=f"{key}", input=MAX_TOKENS) for key in range(2000)])
        (found,) = await store.sum_usage(QUERY, ["m"])
        assert found.input == MAX_TOKENS

    play(story)


@pytest.mark.parametrize("name", FIXTURE_NAMES)
def test_rows_of_an_earlier_version_have_no_latencies(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.executescript((FIXTURES / name).read_text("utf-8"))

    async def story(store: Store) -> None:
        (found,) = await store.sum_usage(QUERY, ["fast"])
        assert (found.turns, found.input, found.denials, found.first.counts, found.turn.counts) == (1, 10, 0, {}, {})
        await store.add_usage([UsageRow(minute=16, model="fast", key="me", denials=1, turn_latencies="5:1")])
        (found,) = await store.sum_usage(QUERY, ["fast"])
        assert (found.turns, found.denials, found.turn.counts) == (1, 1, {5: 1})

    asyncio.run(use(tmp_path, story))
