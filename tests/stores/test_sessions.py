"""Sessions in the store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.stores.conftest import Play
from toolrelay.errors import StoreConflictError
from toolrelay.stores.access import SessionRow
from toolrelay.stores.base import Store

ADA = SessionRow(
    id="sess_1",
    digest="d1",
    owner="ada",
    credential="c",
    may_approve=True,
    user_agent="Firefox",
    created_at=1000.0,
    last_used_at=1000.0,
    expires_at=2000.0,
)
BOB = replace(ADA, id="sess_2", digest="d2", owner="bob", may_approve=False, created_at=1500.0)


def test_session_is_found_by_its_digest(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_session(ADA)
        assert await store.find_session("d1") == ADA
        assert await store.find_session("d2") is None
        await store.touch_session("sess_1", 1200.0)
        assert await store.find_session("d1") == replace(ADA, last_used_at=1200.0)

    play(story)


def test_sessions_are_listed_by_owner_newest_first(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_session(ADA)
        await store.add_session(BOB)
        assert await store.list_sessions() == [BOB, ADA]
        assert await store.list_sessions("ada") == [ADA]
        assert await store.list_sessions("eve") == []

    play(story)


def test_session_of_another_owner_is_not_deleted(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_session(ADA)
        assert not await store.delete_session("sess_1", "bob")
        assert await store.delete_session("sess_1", "ada")
        assert not await store.delete_session("sess_1")
        assert await store.find_session("d1") is None

    play(story)


def test_new_session_deletes_expired_ones(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_session(ADA)
        await store.add_session(replace(BOB, created_at=2000.0, expires_at=3000.0))
        assert [each.id for each in await store.list_sessions()] == ["sess_2"]

    play(story)


def test_second_session_of_a_token_is_a_conflict(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_session(ADA)
        with pytest.raises(StoreConflictError):
            await store.add_session(replace(BOB, digest="d1"))

    play(story)
