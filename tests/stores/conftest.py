"""A store of each kind, and stories that are played with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store

VARIANTS = {"file": StoreSettings(), "memory": StoreSettings(record="none")}


class Play(Protocol):
    def __call__(self, story: Callable[[Store], Awaitable[Any]]) -> None: ...


@pytest.fixture(params=VARIANTS)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Run a story with an empty store of each kind."""

    def play(story: Callable[[Store], Awaitable[Any]]) -> None:
        async def main() -> None:
            store = open_store(VARIANTS[request.param], tmp_path / "data")
            await store.open()
            try:
                await story(store)
            finally:
                await store.close()

        asyncio.run(main())

    return play
