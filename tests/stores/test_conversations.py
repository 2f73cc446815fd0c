"""Conversations and their items, in every kind of store."""

from __future__ import annotations

import asyncio

import pytest

from tests.stores.conftest import Play
from tests.stores.rows import ACCEPTED, FINISHED, conversation, items, steps, turn
from toolrelay.errors import ClientError, StoreConflictError
from toolrelay.stores.base import Store
from toolrelay.stores.conversations import ConversationItem


def ids(found: list[ConversationItem] | None) -> list[str]:
    assert found is not None
    return [item.id for item in found]


def test_conversation_is_loaded_as_it_was_written(play: Play) -> None:
    written = conversation(metadata={"topic": "weather", "é": ""})

    async def story(store: Store) -> None:
        await store.create_conversation(written, items("a", "b"))
        assert await store.load_conversation("conv_1", "me") == written
        assert await store.list_items("conv_1", "me") == [
            ConversationItem(id="a", data={"type": "message", "id": "a"}, position=0),
            ConversationItem(id="b", data={"type": "message", "id": "b"}, position=1),
        ]
        with pytest.raises(StoreConflictError):
            await store.create_conversation(conversation())

    play(story)


def test_conversation_of_another_owner_does_not_exist(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a"))
        assert await store.load_conversation("conv_1", "you") is None
        assert await store.update_conversation("conv_1", "you", {"x": "y"}) is None
        assert await store.list_items("conv_1", "you") is None
        assert await store.load_item("conv_1", "you", "a") is None
        assert not await store.add_items("conv_1", "you", items("b"))
        assert not await store.delete_item("conv_1", "you", "a")
        assert not await store.delete_conversation("conv_1", "you")
        assert await store.load_conversation("conv_1", "me") == conversation()
        assert ids(await store.list_items("conv_1", "me")) == ["a"]

    play(story)


def test_update_replaces_the_metadata(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(metadata={"a": "1"}))
        updated = await store.update_conversation("conv_1", "me", {"b": "2"})
        assert updated is not None
        assert updated.metadata == {"b": "2"}
        assert updated.last_used_at > 1000.0
        assert await store.load_conversation("conv_1", "me") == updated
        assert await store.update_conversation("conv_2", "me", {}) is None

    play(story)


def test_items_are_paged_in_both_directions(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a", "b"))
        assert await store.add_items("conv_1", "me", items("c", "d", "e"))
        assert ids(await store.list_items("conv_1", "me")) == ["a", "b", "c", "d", "e"]
        assert ids(await store.list_items("conv_1", "me", limit=2)) == ["a", "b"]
        assert ids(await store.list_items("conv_1", "me", after="b", limit=2)) == ["c", "d"]
        assert ids(await store.list_items("conv_1", "me", after="e")) == []
        assert ids(await store.list_items("conv_1", "me", descending=True, limit=2)) == ["e", "d"]
        assert ids(await store.list_items("conv_1", "me", descending=True, after="d")) == ["c", "b", "a"]
        with pytest.raises(ClientError, match="has no item 'nope'") as caught:
            await store.list_items("conv_1", "me", after="nope")
        assert (caught.value.status, caught.value.param) == (400, "after")
        assert await store.list_items("conv_2", "me") is None

    play(story)


def test_items_added_at_the_same_time_keep_their_groups(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation())
        groups = [[f"{group}.{number}" for number in range(3)] for group in range(20)]
        await asyncio.gather(*(store.add_items("conv_1", "me", items(*group)) for group in groups))
        assert ids(await store.list_items("conv_1", "me")) == [each for group in groups for each in group]

    play(story)


def test_second_item_with_an_id_is_a_conflict(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a"))
        await store.create_conversation(conversation("conv_2"), items("a"))
        with pytest.raises(StoreConflictError):
            await store.add_items("conv_1", "me", items("b", "a"))
        assert ids(await store.list_items("conv_1", "me")) == ["a"]

    play(story)


def test_item_is_loaded_and_deleted_by_its_id(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a", "b", "c"))
        assert await store.load_item("conv_1", "me", "b") == ConversationItem(
            id="b", data={"type": "message", "id": "b"}, position=1
        )
        assert await store.delete_item("conv_1", "me", "b")
        assert not await store.delete_item("conv_1", "me", "b")
        assert await store.load_item("conv_1", "me", "b") is None
        assert ids(await store.list_items("conv_1", "me")) == ["a", "c"]

    play(story)


def test_deleted_conversation_takes_its_items_and_heads_but_no_turns(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a"))
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED))
        await store.append_steps("t1", steps(FINISHED, start=1), head="h1")
        assert await store.delete_conversation("conv_1", "me")
        assert not await store.delete_conversation("conv_1", "me")
        assert await store.load_conversation("conv_1", "me") is None
        assert await store.find_conversation("me", ["h1"]) is None
        assert await store.load_turn("t1") is not None
        await store.append_steps("t1", [], head="h2")
        assert await store.find_conversation("me", ["h2"]) is None
        await store.create_conversation(conversation())
        assert ids(await store.list_items("conv_1", "me")) == []

    play(story)


# Items of turns


def test_items_of_a_turn_are_added_with_its_steps(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a"))
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED, FINISHED), items=items("b"))
        await store.create_turn(turn("t2", conversation="conv_1"), steps(ACCEPTED))
        await store.append_steps("t2", steps(FINISHED, start=1, at=5000.0), items=items("c", "d"))
        assert ids(await store.list_items("conv_1", "me")) == ["a", "b", "c", "d"]
        found = await store.load_conversation("conv_1", "me")
        assert found is not None
        assert found.last_used_at == 5000.0

    play(story)


def test_items_of_a_turn_are_not_added_without_its_steps(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation())
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED))
        with pytest.raises(StoreConflictError):
            await store.append_steps("t1", steps(FINISHED), items=items("a"))
        with pytest.raises(StoreConflictError):
            await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED), items=items("a"))
        assert ids(await store.list_items("conv_1", "me")) == []

    play(story)


def test_item_of_a_turn_that_the_conversation_has_is_not_added_again(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation(), items("a"))
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED, FINISHED), items=items("a", "b", "b", "c"))
        assert ids(await store.list_items("conv_1", "me")) == ["a", "b", "c"]
        assert await store.load_turn("t1") is not None

    play(story)


def test_turn_does_not_bring_a_deleted_conversation_back(play: Play) -> None:
    async def story(store: Store) -> None:
        row = turn(conversation="conv_1")
        await store.create_turn(row, steps(ACCEPTED, FINISHED), head="h", items=items("a"), creates_conversation=False)
        await store.append_steps("t1", [], head="h2", items=items("b"))
        assert await store.load_conversation("conv_1", "me") is None
        assert await store.find_conversation("me", ["h", "h2"]) is None
        found = await store.load_turn("t1")
        assert found is not None
        assert found.row == row

    play(story)


def test_turn_uses_a_conversation_that_it_does_not_create(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(conversation())
        row = turn(conversation="conv_1", created_at=2000.0)
        await store.create_turn(row, steps(ACCEPTED, at=2000.0), head="h", creates_conversation=False)
        assert await store.load_conversation("conv_1", "me") == conversation(last_used_at=2000.0)
        assert await store.find_conversation("me", ["h"]) == ("conv_1", "h")

    play(story)


# Heads (decision 16)


def test_conversation_is_found_by_the_last_known_head(play: Play) -> None:
    async def story(store: Store) -> None:
        for name in ("1", "2"):
            await store.create_turn(turn(f"t{name}", conversation=f"conv_{name}"), steps(ACCEPTED))
            await store.append_steps(f"t{name}", steps(FINISHED, start=1), head=f"h{name}")
        assert await store.find_conversation("me", ["h1"]) == ("conv_1", "h1")
        assert await store.find_conversation("me", ["x", "h1", "h2", "y"]) == ("conv_2", "h2")
        assert await store.find_conversation("me", ["h2", "h1"]) == ("conv_1", "h1")
        assert await store.find_conversation("you", ["h1", "h2"]) is None
        assert await store.find_conversation("me", ["x"]) is None
        assert await store.find_conversation("me", []) is None

    play(story)


def test_head_is_found_among_thousands(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED))
        await store.append_steps("t1", steps(FINISHED, start=1), head="h")
        many = [f"x{number}" for number in range(2345)]
        for place in (0, 345, 346, 1844, 1845, 2345):
            assert await store.find_conversation("me", [*many[:place], "h", *many[place:]]) == ("conv_1", "h")

    play(story)


def test_head_of_two_conversations_names_the_later_one(play: Play) -> None:
    async def story(store: Store) -> None:
        for name in ("1", "2"):
            await store.create_turn(turn(f"t{name}", conversation=f"conv_{name}"), steps(ACCEPTED))
            await store.append_steps(f"t{name}", steps(FINISHED, start=1), head="same")
        assert await store.find_conversation("me", ["same"]) == ("conv_2", "same")

    play(story)


def test_head_of_a_turn_without_conversation_is_ignored(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(), steps(ACCEPTED))
        await store.append_steps("t1", steps(FINISHED, start=1), head="h")
        assert await store.find_conversation("me", ["h"]) is None

    play(story)


def test_head_counts_as_a_use(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_turn(turn(conversation="conv_1"), steps(ACCEPTED))
        await store.append_steps("t1", steps(FINISHED, start=1, at=5000.0), head="h")
        found = await store.load_conversation("conv_1", "me")
        assert found is not None
        assert found.last_used_at == 5000.0

    play(story)
