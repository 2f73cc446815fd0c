"""Keys of clients in the store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.stores.conftest import Play
from tests.stores.test_sessions import ADA as SESSION
from toolrelay.errors import StoreConflictError
from toolrelay.stores.access import KeyRow
from toolrelay.stores.base import Store

ADA = KeyRow(
    id="key_1",
    name='<b>"Ada"</b> é',
    sha256="a" * 64,
    approve=True,
    models=("fast", "home-*"),
    toolsets=(),
    requests_per_minute=60,
    created_at=1000.0,
)
BOB = replace(ADA, id="key_2", name="123", sha256="b" * 64, approve=False, models=("*",), toolsets=("x",), created_at=2000.0)


def test_keys_are_listed_oldest_first(play: Play) -> None:
    async def story(store: Store) -> None:
        assert await store.list_keys() == []
        await store.add_key(BOB)
        await store.add_key(ADA)
        assert await store.list_keys() == [ADA, BOB]

    play(story)


def test_rotated_key_keeps_its_id(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_key(ADA)
        assert await store.rotate_key("key_1", "c" * 64, 3000.0)
        assert await store.list_keys() == [replace(ADA, sha256="c" * 64, rotated_at=3000.0)]
        assert not await store.rotate_key("key_9", "d" * 64, 3000.0)

    play(story)


def test_revoked_key_stays_and_cannot_be_changed(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_key(ADA)
        assert await store.revoke_key("key_1", 3000.0)
        assert not await store.revoke_key("key_1", 4000.0)
        assert not await store.rotate_key("key_1", "c" * 64, 4000.0)
        assert await store.list_keys() == [replace(ADA, revoked_at=3000.0)]

    play(story)


def test_last_use_is_kept(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_key(ADA)
        await store.touch_key("key_1", 3000.0)
        assert [key.last_used_at for key in await store.list_keys()] == [3000.0]

    play(story)


@pytest.mark.parametrize("changed", [{"name": ADA.name}, {"sha256": ADA.sha256}, {"id": ADA.id}])
def test_id_name_and_hash_are_unique_also_among_revoked_keys(play: Play, changed: dict[str, str]) -> None:
    async def story(store: Store) -> None:
        await store.add_key(ADA)
        await store.revoke_key(ADA.id, 3000.0)
        with pytest.raises(StoreConflictError):
            await store.add_key(replace(BOB, **changed))

    play(story)


@pytest.mark.parametrize("rotates", [True, False])
def test_changed_key_ends_its_sessions_and_no_others(play: Play, *, rotates: bool) -> None:
    async def story(store: Store) -> None:
        await store.add_key(ADA)
        await store.add_session(replace(SESSION, owner=ADA.id))
        await store.add_session(replace(SESSION, id="sess_2", digest="d2", owner="local"))
        assert await (store.rotate_key(ADA.id, "c" * 64, 1.0) if rotates else store.revoke_key(ADA.id, 1.0))
        assert [each.id for each in await store.list_sessions()] == ["sess_2"]

    play(story)


def test_export_has_keys_without_their_hashes(play: Play) -> None:
    async def story(store: Store) -> None:
        for number in range(101):
            await store.add_key(replace(ADA, id=f"key_{number:03}", name=f"n{number}", sha256=f"{number:064}"))
        records = [record async for record in store.export() if record["type"] == "key"]
        assert [record["name"] for record in records] == [f"n{number}" for number in range(101)]
        assert "sha256" not in records[0]
        assert records[0]["models"] == ["fast", "home-*"]

    play(story)


def test_pruning_keeps_keys(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_key(ADA)
        await store.prune(1e12)
        assert await store.list_keys() == [ADA]

    play(story)
