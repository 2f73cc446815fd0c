"""Turns, in every kind of store."""

from __future__ import annotations

import asyncio

import pytest

from tests.stores.conftest import Play
from tests.stores.rows import ACCEPTED, ANSWERED, ASKED, FINISHED, PLANNED, RAN, STARTED, conversation, steps, turn
from toolrelay.errors import StoreConflictError, StoreError
from toolrelay.stores.base import Store
from toolrelay.stores.turns import Frame, StoredTurn, TurnStatus


def test_turn_is_loaded_as_it_was_written(play: Play) -> None:
    row = turn(
        conversation="conv_1",
        previous="t0",
        stored=True,
        background=True,
        idempotency_key="k",
        request_digest="d",
        created_at=1234.5678,
    )

    async def story(store: Store) -> None:
        await store.create_turn(row, steps(ACCEPTED))
        await store.append_steps("t1", steps(ANSWERED, PLANNED, STARTED, start=1, at=1001.25))
        await store.append_steps("t1", steps(RAN, start=4, at=1002.5))
        assert await store.load_turn("t1") == StoredTurn(
            row=row,
            steps=(*steps(ACCEPTED), *steps(ANSWERED, PLANNED, STARTED, start=1, at=1001.25), *steps(RAN, start=4, at=1002.5)),
        )

    play(story)


def test_unknown_turn_is_none(play: Play) -> None:
    async def story(store: Store) -> None:
        assert await store.load_turn("t1") is None

    play(story)


def test_turn_of_another_owner_does_not_exist(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(owner="me"), steps(ACCEPTED))
        assert await store.load_turn("t1", "you") is None
        assert await store.load_turn("t1", "me") is not None
        assert not await store.delete_response("t1", "you")
        assert await store.load_turn("t1") is not None

    play(story)


def test_second_writer_of_a_step_gets_a_conflict_and_changes_nothing(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        await store.append_steps("t1", steps(ANSWERED, start=1))
        with pytest.raises(StoreConflictError):
            await store.append_steps("t1", steps(FINISHED, start=2) + steps(PLANNED, start=1), status="finished")
        found = await store.load_turn("t1")
        assert found is not None
        assert found.row.status == "running"
        assert [each.step for each in found.steps] == [ACCEPTED, ANSWERED]

    play(story)


def test_of_many_writers_of_one_step_exactly_one_succeeds(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        outcomes = await asyncio.gather(
            *(store.append_steps("t1", steps(FINISHED, start=1)) for _ in range(20)), return_exceptions=True
        )
        assert outcomes.count(None) == 1
        assert sum(isinstance(outcome, StoreConflictError) for outcome in outcomes) == 19

    play(story)


def test_conflict_in_a_group_leaves_the_others_alone(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        writes = [store.create_turn(turn(f"n{number}" if number % 2 else "t1"), steps(ACCEPTED)) for number in range(20)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [outcome is None for outcome in outcomes] == [number % 2 == 1 for number in range(20)]
        assert [await store.load_turn(f"n{number}") is not None for number in range(20)] == [n % 2 == 1 for n in range(20)]

    play(story)


def test_second_turn_with_an_id_is_a_conflict(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(model="first"), steps(ACCEPTED))
        with pytest.raises(StoreConflictError):
            await store.create_turn(turn(model="second"), steps(ACCEPTED))
        found = await store.load_turn("t1")
        assert found is not None
        assert found.row.model == "first"

    play(story)


def test_steps_of_an_unknown_turn_are_a_conflict(play: Play) -> None:
    async def story(store: Store) -> None:
        for write in (
            store.append_steps("nope", steps(FINISHED)),
            store.append_steps("nope", steps(FINISHED), status="finished"),
            store.set_status("nope", "failed"),
            store.append_frames("nope", [Frame(0, b"x")]),
        ):
            with pytest.raises(StoreConflictError, match="nope does not exist"):
                await write

    play(story)


@pytest.mark.parametrize("status", ["running", "parked", "finished", "failed", "cancelled"])
def test_only_running_and_parked_turns_are_unfinished(play: Play, status: TurnStatus) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        await store.set_status("t1", status)
        expected = [StoredTurn(row=turn(status=status), steps=tuple(steps(ACCEPTED)))] if status in {"running", "parked"} else []
        assert await store.load_unfinished() == expected

    play(story)


def test_unfinished_turns_come_oldest_first(play: Play) -> None:
    async def story(store: Store) -> None:
        for name, at in (("b", 2.0), ("c", 3.0), ("a", 1.0)):
            await store.create_turn(turn(name, created_at=at), steps(ACCEPTED))
        assert [each.row.id for each in await store.load_unfinished()] == ["a", "b", "c"]

    play(story)


def test_status_is_set_with_the_steps(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        await store.append_steps("t1", steps(FINISHED, start=1), status="finished")
        found = await store.load_turn("t1")
        assert found is not None
        assert found.row.status == "finished"

    play(story)


# Idempotency keys (decision 11)


@pytest.mark.parametrize("step", [STARTED, ASKED], ids=["run", "question"])
def test_idempotency_key_counts_once_a_tool_was_run_or_asked_about(play: Play, step: object) -> None:
    row = turn(idempotency_key="k", request_digest="d")

    async def story(store: Store) -> None:
        await store.create_turn(row, steps(ACCEPTED))
        await store.append_steps("t1", steps(ANSWERED, PLANNED, start=1))
        assert await store.find_idempotent("me", "k") is None
        await store.append_steps("t1", steps(STARTED if step is STARTED else ASKED, start=3))
        assert await store.find_idempotent("me", "k") == row
        assert await store.find_idempotent("you", "k") is None
        assert await store.find_idempotent("me", "other") is None

    play(story)


def test_second_turn_with_a_key_may_not_run_a_tool(play: Play) -> None:
    async def story(store: Store) -> None:
        for name in ("t1", "t2", "t3"):
            await store.create_turn(turn(name, idempotency_key="k"), steps(ACCEPTED))
        await store.create_turn(turn("other", owner="you", idempotency_key="k"), steps(ACCEPTED, STARTED))
        outcomes = await asyncio.gather(
            *(store.append_steps(name, steps(STARTED, start=1)) for name in ("t1", "t2", "t3")), return_exceptions=True
        )
        assert outcomes[0] is None
        assert all(isinstance(outcome, StoreConflictError) for outcome in outcomes[1:])
        second = await store.load_turn("t2")
        assert second is not None
        assert len(second.steps) == 1
        found = await store.find_idempotent("me", "k")
        assert found is not None
        assert found.id == "t1"

    play(story)


def test_turn_created_with_a_tool_run_holds_its_key(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(idempotency_key="k"), steps(ACCEPTED, ANSWERED, PLANNED, STARTED))
        assert await store.find_idempotent("me", "k") == turn(idempotency_key="k")
        await store.append_steps("t1", steps(RAN, STARTED, start=4))

    play(story)


# Deletion


def test_deleted_response_is_gone_but_remembered(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(stored=True, idempotency_key="k"), steps(ACCEPTED, STARTED))
        await store.append_frames("t1", [Frame(0, b"x")])
        assert not await store.was_deleted("t1", "me")
        assert await store.delete_response("t1", "me")
        assert await store.load_turn("t1") is None
        assert await store.load_frames("t1") == []
        assert await store.load_unfinished() == []
        assert await store.find_idempotent("me", "k") is None
        assert await store.was_deleted("t1", "me")
        assert not await store.was_deleted("t1", "you")
        assert not await store.was_deleted("t2", "me")
        assert not await store.delete_response("t1", "me")
        assert [record async for record in store.export()] == []

    play(story)


def test_deleted_turn_takes_no_more_steps(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        await store.delete_response("t1", "me")
        for write in (
            store.append_steps("t1", steps(FINISHED, start=1)),
            store.append_steps("t1", steps(FINISHED, start=1), status="finished"),
            store.append_frames("t1", [Frame(0, b"x")]),
            store.set_status("t1", "finished"),
            store.create_turn(turn(), steps(ACCEPTED)),
        ):
            with pytest.raises(StoreConflictError):
                await write

    play(story)


# Frames


def test_frames_are_loaded_after_a_number_up_to_a_limit(play: Play) -> None:
    frames = [Frame(number, b"data: %d\n\n\x00\xff" % number) for number in range(5)]

    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        await store.append_frames("t1", frames[:3])
        await store.append_frames("t1", frames[3:])
        assert await store.load_frames("t1") == frames
        assert await store.load_frames("t1", after=1) == frames[2:]
        assert await store.load_frames("t1", after=1, limit=2) == frames[2:4]
        assert await store.load_frames("t1", after=4) == []
        assert await store.load_frames("t2") == []
        with pytest.raises(StoreConflictError):
            await store.append_frames("t1", [Frame(5, b""), Frame(4, b"")])
        assert await store.load_frames("t1") == frames

    play(story)


# Values and errors


@pytest.mark.parametrize("text", ["", "\x00", "'; DROP TABLE turns; --", "é😀\u2028", "x" * 2_000_000])
def test_any_text_is_kept(play: Play, text: str) -> None:
    row = turn(text or "empty", owner=text, idempotency_key=text, model=text)

    async def story(store: Store) -> None:
        await store.create_turn(row, steps(ACCEPTED, STARTED))
        assert await store.find_idempotent(text, text) == row

    play(story)


def test_text_that_is_not_unicode_fails_only_its_own_write(play: Play) -> None:
    async def story(store: Store) -> None:
        outcomes = await asyncio.gather(
            store.create_turn(turn("a"), steps(ACCEPTED)),
            store.create_turn(turn("b", model="\ud800"), steps(ACCEPTED)),
            store.create_turn(turn("c"), steps(ACCEPTED)),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), UnicodeEncodeError, type(None)]

    play(story)


def test_closed_store_says_so(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.close()
        for use in (store.create_turn(turn(), steps(ACCEPTED)), store.load_turn("t1")):
            with pytest.raises(StoreError, match="The store is closed"):
                await use

    play(story)


def test_close_finishes_what_waits(play: Play) -> None:
    async def story(store: Store) -> None:
        writes = [asyncio.create_task(store.create_turn(turn(f"t{number}"), steps(ACCEPTED))) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*writes) == [None] * 50

    play(story)


def test_cancelled_caller_leaves_the_store_usable(play: Play) -> None:
    async def story(store: Store) -> None:
        write = asyncio.create_task(store.create_turn(turn(), steps(ACCEPTED)))
        await asyncio.sleep(0)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        assert write.cancelled()
        await store.create_turn(turn("t2"), steps(ACCEPTED))
        assert await store.load_turn("t2") is not None

    play(story)


def test_turn_creates_its_conversation(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(conversation="conv_1", created_at=1500.0), steps(ACCEPTED))
        assert await store.load_conversation("conv_1", "me") == conversation(created_at=1500.0, last_used_at=1500.0)
        await store.create_turn(turn("t2", conversation="conv_1", created_at=1400.0), steps(ACCEPTED))
        await store.create_turn(turn("t3", conversation="conv_1", created_at=1600.0), steps(ACCEPTED))
        assert await store.load_conversation("conv_1", "me") == conversation(created_at=1500.0, last_used_at=1600.0)

    play(story)


def test_turn_in_the_conversation_of_another_is_a_conflict(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(owner="you"))
        with pytest.raises(StoreConflictError, match="another owner"):
            await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED))
        assert await store.load_turn("t1") is None

    play(story)
