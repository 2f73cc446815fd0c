"""A program that appends steps to many turns at once, and prints each when the store has acknowledged it, until it is killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from tests.stores.rows import ACCEPTED, RAN, steps, turn
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.stores.messages import message_rows

TURNS = 20


async def run_turn(store: Store, name: str) -> None:
    await store.create_turn(turn(name), steps(ACCEPTED), message_rows(ACCEPTED))
    for seq in itertools.count():
        os.write(1, f"{name} {seq}\n".encode())
        await store.append_steps(name, steps(RAN, start=seq + 1), messages=message_rows(RAN))


async def main() -> None:
    store = open_store(StoreSettings(), Path(sys.argv[1]))
    await store.open()
    await asyncio.gather(*(run_turn(store, f"t{number}") for number in range(TURNS)))


if __name__ == "__main__":
    asyncio.run(main())
