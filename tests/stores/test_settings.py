"""Settings in the store."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from tests.stores.conftest import Play
from toolrelay.stores.base import SettingRow, Store

PATH = SettingRow(path="toolsets.vault.path", value='"~/Notes"', changed_at=1000.0, changed_by="local")
TOOLSETS = SettingRow(path="models.demo.toolsets", value='["vault"]', changed_at=1000.0, changed_by="local")


def test_settings_are_listed_by_path(play: Play) -> None:
    async def story(store: Store) -> None:
        assert await store.load_settings() == []
        await store.change_settings([PATH, TOOLSETS])
        assert await store.load_settings() == [TOOLSETS, PATH]

    play(story)


def test_setting_is_replaced_and_removed(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.change_settings([PATH, TOOLSETS])
        moved = replace(PATH, value='"/else"', changed_at=2000.0)
        await store.change_settings([moved], ["models.demo.toolsets", "models.gone.toolsets"])
        assert await store.load_settings() == [moved]

    play(story)


def test_pruning_keeps_settings(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.change_settings([PATH])
        await store.prune(9000.0)
        assert await store.load_settings() == [PATH]

    play(story)


def test_settings_are_exported(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.change_settings([PATH])
        assert [record async for record in store.export()] == [{"type": "setting", **asdict(PATH)}]

    play(story)
