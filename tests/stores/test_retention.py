"""Usage, pruning and export, in every kind of store."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.stores.conftest import Play
from tests.stores.rows import ACCEPTED, ANSWERED, ASKED, FINISHED, PLANNED, RAN, conversation, items, steps, turn
from tests.stores.test_approvals import ALLOWED, QUESTION
from toolrelay import log
from toolrelay.core.messages import Message
from toolrelay.core.steps import AnswerReceived, VerdictGiven
from toolrelay.errors import StoreError
from toolrelay.stores.base import PruneResult, Store
from toolrelay.stores.messages import message_rows
from toolrelay.stores.retention import DAY_SECONDS, prune_regularly
from toolrelay.stores.sql.export import PAGE
from toolrelay.stores.sql.store import PRUNE_AT_ONCE
from toolrelay.stores.turns import Frame, MessageRow, TurnStatus
from toolrelay.stores.usage import UsageRow

DONE = AnswerReceived(items=(Message(role="assistant", content="18 °C."),), finish="stop")


async def exported(store: Store, *kinds: str) -> list[dict[str, Any]]:
    records = [record async for record in store.export()]
    assert msgspec.json.decode(msgspec.json.encode(records)) == records
    return [record for record in records if not kinds or record["type"] in kinds]


async def turn_ids(store: Store) -> list[str]:
    return [record["id"] for record in await exported(store, "turn")]


async def add_turn(store: Store, name: str, at: float, status: TurnStatus = "finished", **members: Any) -> None:
    await store.create_turn(turn(name, created_at=at, status=status, **members), steps(ACCEPTED, FINISHED, at=at))


# Usage


def test_usage_is_added_up_by_minute_model_and_key(play: Play) -> None:
    row = UsageRow(minute=5, model="m", key="k", turns=1, failed=0, input=10, output=2, cached=3, tool_runs=1)

    async def story(store: Store) -> None:
        await store.add_usage([row, msgspec.structs.replace(row, minute=6), msgspec.structs.replace(row, model="n")])
        await store.add_usage([row, msgspec.structs.replace(row, key="other", failed=1)])
        assert await exported(store, "usage") == [
            {
                "type": "usage",
                **msgspec.structs.asdict(msgspec.structs.replace(row, turns=2, input=20, output=4, cached=6, tool_runs=2)),
            },
            {"type": "usage", **msgspec.structs.asdict(msgspec.structs.replace(row, key="other", failed=1))},
            {"type": "usage", **msgspec.structs.asdict(msgspec.structs.replace(row, model="n"))},
            {"type": "usage", **msgspec.structs.asdict(msgspec.structs.replace(row, minute=6))},
        ]

    play(story)


# Pruning


def test_prune_deletes_old_turns_with_all_that_is_theirs(play: Play) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "old", 999.9)
        await store.append_frames("old", [Frame(0, b"x")])
        await add_turn(store, "new", 1000.0)
        assert await store.prune(1000.0) == PruneResult(turns=1)
        assert await turn_ids(store) == ["new"]
        assert await store.load_frames("old") == []
        assert await store.prune(1000.0) == PruneResult()

    play(story)


@pytest.mark.parametrize("status", ["running", "parked", "finished", "failed", "cancelled"])
def test_prune_skips_running_turns(play: Play, status: TurnStatus) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "old", 1.0, status)
        await store.prune(1000.0)
        assert await turn_ids(store) == (["old"] if status == "running" else [])

    play(story)


def test_prune_keeps_a_parked_turn_whose_question_is_open(play: Play) -> None:
    async def story(store: Store) -> None:
        row = turn("old", created_at=1.0, status="parked", conversation="conv_1")
        question = replace(QUESTION, turn="old", conversation="conv_1", created_at=1.0, expires_at=2.0)
        await store.create_turn(row, steps(ACCEPTED, ANSWERED, PLANNED, ASKED, at=1.0), approvals=[question])
        await add_turn(store, "done", 1.0, conversation="conv_1")
        assert await store.prune(1000.0) == PruneResult()
        verdict = steps(VerdictGiven(call_id="call_1", verdict="allow"), start=4, at=2.0)
        await store.append_steps("old", verdict, approvals=[ALLOWED])
        assert await store.prune(1000.0) == PruneResult(turns=2, conversations=1)

    play(story)


def test_turn_ages_from_its_last_step(play: Play) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "old", 1.0, "parked")
        await store.append_steps("old", steps(RAN, start=2, at=1000.0), status="finished")
        assert await store.prune(1000.0) == PruneResult()
        assert await store.prune(1000.1) == PruneResult(turns=1)

    play(story)


def test_prune_keeps_the_chain_of_a_kept_turn(play: Play) -> None:
    async def story(store: Store) -> None:
        for number in range(4):
            await add_turn(store, f"kept{number}", 1.0 + number, previous=f"kept{number - 1}" if number else None)
            await add_turn(store, f"gone{number}", 1.0 + number, previous=f"gone{number - 1}" if number else None)
        await add_turn(store, "branch", 3.5, previous="kept1")
        await add_turn(store, "new", 2000.0, previous="kept3")
        assert await store.prune(1000.0) == PruneResult(turns=5)
        assert await turn_ids(store) == ["kept0", "kept1", "kept2", "kept3", "new"]
        assert await store.prune(3000.0) == PruneResult(turns=5)

    play(story)


def test_prune_keeps_the_tombstone_in_a_kept_chain(play: Play) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "deleted", 1.0)
        await add_turn(store, "new", 2000.0, previous="deleted")
        await store.delete_response("deleted", "me")
        await store.prune(1000.0)
        assert await store.was_deleted("deleted", "me")
        await store.prune(3000.0)
        assert not await store.was_deleted("deleted", "me")

    play(story)


def test_conversations_age_by_last_use(play: Play) -> None:
    async def story(store: Store) -> None:
        for name, at in (("conv_1", 1.0), ("conv_2", 2.0)):
            await store.create_conversation(conversation(name, created_at=at, last_used_at=at), items("a"))
            await add_turn(store, f"old {name}", at, conversation=name)
        await add_turn(store, "new", 2000.0, conversation="conv_2")
        assert await store.prune(1000.0) == PruneResult(turns=1, conversations=1)
        assert await store.load_conversation("conv_1", "me") is None
        assert await store.load_conversation("conv_2", "me") is not None
        assert await turn_ids(store) == ["old conv_2", "new"]

    play(story)


def test_conversation_with_a_running_turn_is_kept(play: Play) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "done", 1.0, conversation="conv_1")
        await add_turn(store, "running", 2.0, "running", conversation="conv_1")
        assert await store.prune(1000.0) == PruneResult()
        await store.set_status("running", "cancelled")
        assert await store.prune(1000.0) == PruneResult(turns=2, conversations=1)

    play(story)


def test_turn_of_a_deleted_conversation_ages_by_itself(play: Play) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "old", 1.0, conversation="conv_1")
        await store.delete_conversation("conv_1", "me")
        assert await store.prune(1000.0) == PruneResult(turns=1)

    play(story)


def test_prune_deletes_more_than_one_transaction_takes(play: Play) -> None:
    count = 2 * PRUNE_AT_ONCE + 1

    async def story(store: Store) -> None:
        await asyncio.gather(*(add_turn(store, f"t{number}", 1.0, conversation=f"c{number}") for number in range(count)))
        assert await store.prune(1000.0) == PruneResult(turns=count, conversations=count)

    play(story)


def test_prune_deletes_old_usage(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.add_usage([UsageRow(minute=minute, model="m", key="k", turns=1) for minute in (9, 10, 11)])
        assert await store.prune(10 * 60.0) == PruneResult(usage=1)
        assert [record["minute"] for record in await exported(store, "usage")] == [10, 11]

    play(story)


# The daily prune


class Clock:
    """A clock that a sleeper advances, until it has slept often enough."""

    def __init__(self, sleeps: int) -> None:
        self.time = 100 * DAY_SECONDS + 0.5
        self.sleeps = sleeps

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if self.sleeps == 0:
            raise asyncio.CancelledError
        self.sleeps -= 1
        self.time += seconds


def test_daily_prune_deletes_what_has_come_of_age(play: Play) -> None:
    async def story(store: Store) -> None:
        for day in range(65, 75):
            await add_turn(store, f"day {day}", day * DAY_SECONDS)
        clock = Clock(sleeps=2)
        with pytest.raises(asyncio.CancelledError):
            await prune_regularly(store, 30, clock, clock.sleep)
        assert await turn_ids(store) == ["day 73", "day 74"]

    play(story)


def test_daily_prune_of_0_days_keeps_everything(play: Play) -> None:
    async def story(store: Store) -> None:
        await add_turn(store, "old", 1.0)
        clock = Clock(sleeps=2)
        await prune_regularly(store, 0, clock, clock.sleep)
        assert await turn_ids(store) == ["old"]

    play(story)


def test_daily_prune_goes_on_after_a_failure(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.close()  # so that every prune fails
        clock = Clock(sleeps=3)
        with pytest.raises(asyncio.CancelledError):
            await prune_regularly(store, 30, clock, clock.sleep)
        assert clock.sleeps == 0
        with pytest.raises(StoreError):
            await store.prune(0)

    with log.captured() as lines:
        play(story)
    assert [line["event"] for line in lines].count("store_not_pruned") == 4


def test_daily_prune_goes_on_after_an_unforeseen_failure(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def prune(_: float) -> PruneResult:
        raise OverflowError

    async def story(store: Store) -> None:
        monkeypatch.setattr(store, "prune", prune)
        clock = Clock(sleeps=1)
        with pytest.raises(asyncio.CancelledError):
            await prune_regularly(store, 30, clock, clock.sleep)

    with log.captured() as lines:
        play(story)
    assert [line["event"] for line in lines].count("store_not_pruned") == 2


# Export


def test_export_gives_turns_messages_conversations_and_usage(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(metadata={"a": "b"}), items("i1", "i2"))
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED), message_rows(ACCEPTED))
        await store.append_steps("t1", steps(RAN, DONE, start=1, at=1001.5), messages=[*message_rows(RAN), *message_rows(DONE)])
        await store.append_steps("t1", [], messages=[MessageRow(role="user", content_json='[{"x":1}]', tool_calls="[]")])
        turn_record, *messages = await exported(store, "turn", "message")
        assert turn_record == {
            "type": "turn",
            **msgspec.structs.asdict(turn(conversation="conv_1")),
            "steps": [
                {"seq": seq, "at": at, "step": msgspec.json.decode(msgspec.json.encode(step))}
                for seq, at, step in [(0, 1000.0, ACCEPTED), (1, 1001.5, RAN), (2, 1001.5, DONE)]
            ],
        }
        empty = dict.fromkeys(("content", "content_json", "tool_calls", "tool_call_id", "function_call"))
        common = {"type": "message", "turn": "t1", **empty}
        assert messages == [
            {**common, "position": 0, "at": 1000.0, "role": "user", "content": "Weather in Rome?"},
            {**common, "position": 1, "at": 1001.5, "role": "tool", "content": "18 °C", "tool_call_id": "call_1"},
            {**common, "position": 2, "at": 1001.5, "role": "assistant", "content": "18 °C."},
            {**common, "position": 3, "at": 1001.5, "role": "user", "content_json": [{"x": 1}], "tool_calls": []},
        ]
        assert await exported(store, "conversation") == [
            {
                "type": "conversation",
                **msgspec.structs.asdict(conversation(metadata={"a": "b"})),
                "items": [{"type": "message", "id": "i1"}, {"type": "message", "id": "i2"}],
            }
        ]

    play(story)


@pytest.mark.parametrize("count", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_export_has_every_page(play: Play, count: int) -> None:
    async def story(store: Store) -> None:
        names = [f"{number:04}" for number in range(count)]
        await asyncio.gather(*(add_turn(store, name, 1.0, conversation=name) for name in names))
        await store.add_usage([UsageRow(minute=1, model=name, key="k") for name in names])
        assert await turn_ids(store) == names
        assert [record["id"] for record in await exported(store, "conversation")] == names
        assert [record["model"] for record in await exported(store, "usage")] == names

    play(story)
