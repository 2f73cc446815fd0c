"""Nothing that was acknowledged is lost, and many may write at once."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores import acknowledging
from tests.stores.rows import ACCEPTED, FINISHED, RAN, steps, turn
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import PruneResult, Store, open_store
from toolrelay.stores.turns import Frame

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("number", range(5))
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", acknowledging.__name__, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = list(itertools.islice(process.stdout, random.randrange(1, 3000)))
        process.kill()
        lines += process.stdout
    acknowledged: dict[str, int] = {}
    for line in lines:
        if line.endswith("\n"):
            name, seq = line.split()
            acknowledged[name] = int(seq)

    async def check() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        found = {each.row.id: each.steps for each in await store.load_unfinished()}
        for name, seq in acknowledged.items():
            assert [each.seq for each in found[name]] == list(range(len(found[name])))
            assert len(found[name]) in {seq + 1, seq + 2}  # at most one more was on its way
            assert [each.step for each in found[name]] == [ACCEPTED, *[RAN] * (len(found[name]) - 1)]
        messages = [record["turn"] async for record in store.export() if record["type"] == "message"]
        assert {name: messages.count(name) for name in found} == {name: len(each) for name, each in found.items()}
        await store.close()

    asyncio.run(check())


def test_50_writers_and_readers_never_find_the_database_locked(tmp_path: Path) -> None:
    async def run_turn(store: Store, name: str) -> None:
        await store.create_turn(turn(name), steps(ACCEPTED))
        for seq in range(1, 10):
            await store.append_steps(name, steps(RAN, start=seq))
            await store.append_frames(name, [Frame(seq, b"x")])
            found = await store.load_turn(name)
            assert found is not None
            assert len(found.steps) == seq + 1
        await store.append_steps(name, steps(FINISHED, start=10), status="finished")

    async def main() -> None:
        stores = [open_store(StoreSettings(), tmp_path) for _ in range(2)]  # the second one as another process would
        await stores[0].open()
        await stores[1].open()
        pruning = asyncio.create_task(stores[1].prune(0))
        await asyncio.gather(*(run_turn(stores[number % 2], f"t{number}") for number in range(50)))
        assert await pruning == PruneResult()
        assert await stores[0].load_unfinished() == []
        assert [len(await stores[1].load_frames(f"t{number}")) for number in range(50)] == [9] * 50
        for store in stores:
            await store.close()

    asyncio.run(main())
