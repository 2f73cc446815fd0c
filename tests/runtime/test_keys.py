"""The keys of the file and of the store, and who may use which toolset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.runtime.toolsets import Caller, settings_for
from tests.toolsets import modules
from tests.toolsets.modules import WriteModule
from toolrelay.errors import ClientError, StoreError
from toolrelay.runtime import keys as module
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.runtime.keys import TOUCH_SECONDS, KeyRing, NewKey
from toolrelay.settings import Environment, KeySettings, StoreSettings
from toolrelay.stores.base import Store, open_store

write_module = modules.write_module  # pytest finds fixtures by the names of the module

FILED = KeySettings(name="filed", sha256=sha256(b"filed").hexdigest(), toolsets=("mine",))


def play(folder: Path, story: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = open_store(StoreSettings(), folder)
        await store.open()
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(main())


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def test_key_is_found_by_its_hash_until_it_is_changed(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        keys = KeyRing([FILED], store)
        await keys.load()
        text, made = await keys.create(NewKey(name="laptop"))
        assert keys.find(digest(text)) == made
        assert keys.find(digest("filed")) is not None
        rotated, same = await keys.rotate(made.id)
        assert (keys.find(digest(text)), same.id) == (None, made.id)
        await keys.revoke(made.id)
        assert keys.find(digest(rotated)) is None
        assert (keys.name_of(made.id), keys.name_of("filed"), keys.name_of("local")) == ("laptop", "filed", "local")

    play(tmp_path, story)


def test_toolsets_of_a_key_count_until_it_is_revoked(write_module: WriteModule, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        keys = KeyRing([FILED], store)
        settings = settings_for(
            write_module("@tool\ndef get_time() -> str: ..."), Environment(data_dir=tmp_path, config_dir=tmp_path)
        )
        tools = GatewayTools(settings, keys)
        await tools.open()
        fast = settings.models["fast"]
        _, made = await keys.create(NewKey(name="laptop", toolsets=("m*",)))
        _, other = await keys.create(NewKey(name="phone"))
        assert [bool(tools.granted(fast, Caller(key))) for key in (made.id, other.id, "filed", None)] == [True, False, True, True]
        assert tools.keys_with("mine") == ["laptop", "filed"]
        await keys.revoke(made.id)
        assert not tools.granted(fast, Caller(made.id))
        assert tools.find("get_time", model="fast", key=made.id) is None
        await tools.close()

    play(tmp_path / "data", story)


def test_number_of_keys_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 2)
    monkeypatch.setattr(module, "MAX_ROWS", 3)

    async def story(store: Store) -> None:
        keys = KeyRing([], store)
        made = [(await keys.create(NewKey(name=name)))[1] for name in ("a", "b")]
        with pytest.raises(ClientError, match="too many keys"):
            await keys.create(NewKey(name="c"))
        await keys.revoke(made[0].id)
        _, third = await keys.create(NewKey(name="c"))
        await keys.revoke(third.id)
        with pytest.raises(ClientError, match="too many keys"):
            await keys.create(NewKey(name="d"))

    play(tmp_path, story)


def test_keys_made_at_the_same_time_with_one_name_are_one(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        rings = [KeyRing([], store) for _ in range(4)]
        outcomes = await asyncio.gather(*(ring.create(NewKey(name="a")) for ring in rings), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, ClientError)]
        assert [each.code for each in refused] == ["key_name_taken"] * 3
        assert [row.name for row in await store.list_keys()] == ["a"]

    play(tmp_path, story)


def test_last_use_is_written_rarely_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "FOLLOW_SECONDS", 0.001)

    async def story(store: Store) -> None:
        async def written() -> float | None:
            return (await store.list_keys())[0].last_used_at

        nonlocal now
        keys = KeyRing([], store, clock=lambda: now)
        _, made = await keys.create(NewKey(name="a"))
        keys.note_use(made.id)
        keys.follow()
        while await written() is None:
            pass
        now += TOUCH_SECONDS
        keys.note_use(made.id)
        assert [key.last_used_at for key in keys.list_all()] == [now]
        await keys.close()
        assert await written() == now

    play(tmp_path, story)


def test_keys_stay_as_they_were_while_the_store_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLLOW_SECONDS", 0.001)

    async def story(store: Store) -> None:
        async def fail() -> None:
            failed.set()
            raise StoreError("locked")

        failed = asyncio.Event()
        keys = KeyRing([], store)
        text, _ = await keys.create(NewKey(name="a"))
        monkeypatch.setattr(store, "list_keys", fail)
        keys.follow()
        await failed.wait()
        assert keys.find(digest(text)) is not None
        await keys.close()

    play(tmp_path, story)
