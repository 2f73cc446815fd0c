from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.runtime.stores import locked, opened
from tests.stores.rows import ACCEPTED, ANSWERED, FINISHED, PLANNED, RAN, STARTED, turn
from toolrelay.core.steps import StepEvent, TurnFailed
from toolrelay.errors import StoreConflictError, StoreError
from toolrelay.runtime.ledger import TurnLedger
from toolrelay.stores.base import Store
from toolrelay.stores.turns import StoredTurn

LOST = TurnFailed(code="store_error", message="locked")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toolrelay.db"


async def write(ledger: TurnLedger, *steps: StepEvent) -> None:
    for step in steps:
        ledger.add(step)
    await ledger.flush()


async def load(store: Store, name: str = "t1") -> StoredTurn:
    found = await store.load_turn(name)
    assert found is not None
    return found


def recorded(stored: StoredTurn) -> list[StepEvent]:
    assert [each.seq for each in stored.steps] == list(range(len(stored.steps)))
    return [each.step for each in stored.steps]


def test_steps_and_status_are_durable_after_flush(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            ledger = TurnLedger(store, turn(background=True))
            await write(ledger, ACCEPTED)
            assert (await load(store)).row.status == "running"
            await write(ledger, ANSWERED, FINISHED)
            stored = await load(store)
            assert recorded(stored) == [ACCEPTED, ANSWERED, FINISHED]
            assert stored.row.status == "finished"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "status"), [("cancelled", "cancelled"), ("client_gone", "cancelled"), ("store_error", "failed"), (None, "failed")]
)
def test_status_tells_a_cancelled_turn_from_a_failed_one(path: Path, code: str | None, status: str) -> None:
    async def main() -> None:
        async with opened(path) as store:
            await write(TurnLedger(store, turn(background=True)), ACCEPTED, TurnFailed(code=code, message=""))
            assert (await load(store)).row.status == status

    asyncio.run(main())


def test_steps_that_could_not_be_written_are_written_with_the_next_ones(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            ledger = TurnLedger(store, turn(background=True))
            await write(ledger, ACCEPTED)
            with locked(path), pytest.raises(StoreError, match="locked by another program"):
                await write(ledger, ANSWERED)
            await write(ledger, LOST)
            stored = await load(store)
            assert recorded(stored) == [ACCEPTED, ANSWERED, LOST]
            assert stored.row.status == "failed"
            messages = [record["role"] async for record in store.export() if record["type"] == "message"]
            assert messages == ["user", "assistant"]

    asyncio.run(main())


def test_turn_that_could_not_be_created_is_created_with_the_next_steps(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            ledger = TurnLedger(store, turn(background=True))
            with locked(path), pytest.raises(StoreError):
                await write(ledger, ACCEPTED)
            await write(ledger, LOST)
            assert recorded(await load(store)) == [ACCEPTED, LOST]

    asyncio.run(main())


def test_cancelled_flush_is_finished_before_the_next_one(path: Path) -> None:
    async def main() -> None:
        async with opened(path, busy_seconds=30) as store:
            ledger = TurnLedger(store, turn(background=True))
            await write(ledger, ACCEPTED)
            with locked(path):
                flushing = asyncio.create_task(write(ledger, ANSWERED))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                flushing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await flushing
            await write(ledger, LOST)
            assert recorded(await load(store)) == [ACCEPTED, ANSWERED, LOST]

    asyncio.run(main())


def test_second_turn_with_an_idempotency_key_must_not_start_a_tool_and_is_recorded_as_failed(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            first, second = (TurnLedger(store, turn(name, idempotency_key="k", request_digest="d")) for name in ("t1", "t2"))
            await write(first, ACCEPTED, ANSWERED, PLANNED)
            await write(second, ACCEPTED, ANSWERED, PLANNED)
            await write(first, STARTED)
            with pytest.raises(StoreConflictError, match="Idempotency-Key"):
                await write(second, STARTED)
            await write(second, LOST)
            await write(first, RAN, FINISHED)
            assert recorded(await load(store, "t2")) == [ACCEPTED, ANSWERED, PLANNED, LOST]
            assert recorded(await load(store, "t1")) == [ACCEPTED, ANSWERED, PLANNED, STARTED, RAN, FINISHED]
            assert [(await load(store, name)).row.status for name in ("t1", "t2")] == ["finished", "failed"]

    asyncio.run(main())
