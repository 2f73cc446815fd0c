"""The list of conversations and its search, in every kind of store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stores.conftest import Play
from tests.stores.rows import ACCEPTED, conversation, items, steps, turn
from toolrelay.stores.base import Store
from toolrelay.stores.conversations import ConversationItem, ConversationList
from toolrelay.stores.sql import conversation_list


def ids(found: ConversationList) -> list[str]:
    return [entry.conversation.id for entry in found.entries]


def titled(identifier: str, title: str, at: float = 1000.0, owner: str = "me") -> Any:
    return conversation(identifier, owner, last_used_at=at, metadata={"title": title})


def message(identifier: str, text: str, role: str = "user") -> ConversationItem:
    content: Any = [{"type": "input_text", "text": text}]
    return ConversationItem(id=identifier, data={"type": "message", "role": role, "id": identifier, "content": content})


def test_list_has_the_last_used_first_and_goes_on_from_its_end(play: Play) -> None:
    async def story(store: Store) -> None:
        for number in range(120):
            await store.create_conversation(titled(f"conv_{number:03}", f"t{number}", at=1000.0 + number // 2))
        found: list[str] = []
        place = None
        while True:
            page = await store.list_conversations("me", before=place, limit=50)
            found += ids(page)
            place = page.next
            if place is None:
                break
            assert len(page.entries) == 50
        assert found == [f"conv_{number:03}" for number in reversed(range(120))]

    play(story)


def test_list_has_only_the_owners_own_and_none_that_is_empty(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(titled("conv_1", "mine"))
        await store.create_conversation(titled("conv_2", "yours", owner="you"))
        await store.create_conversation(conversation("conv_3"))
        assert ids(await store.list_conversations("me")) == ["conv_1"]
        assert await store.describe_conversation("conv_2", "me") is None
        assert await store.describe_conversation("conv_9", "me") is None

    play(story)


def test_title_is_that_of_the_metadata_or_the_first_message(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(titled("conv_1", "Named", at=3), [message("a", "text")])
        said = [message("a", "be kind", "system"), message("b", "  First line\nsecond"), message("c", "other")]
        await store.create_conversation(conversation("conv_2", last_used_at=2), said)
        await store.create_conversation(conversation("conv_3", last_used_at=1), items("a"))
        found = await store.list_conversations("me")
        assert [entry.title for entry in found.entries] == ["Named", "First line", ""]

    play(story)


@pytest.mark.parametrize("search", ["ÄPFEL", "äpfel", " Äpfel ", 'say "äpfel"', "äpfel\nand"])
def test_search_finds_text_whatever_its_case(play: Play, search: str) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(titled("conv_1", "x"), [message("a", 'I say "Äpfel"'), message("b", "Äpfel\nand pears")])
        await store.create_conversation(titled("conv_2", "y"), [message("a", "pears")])
        assert ids(await store.list_conversations("me", search=search)) == ["conv_1"]

    play(story)


def test_search_finds_titles_and_what_tools_gave_but_not_the_names_of_members(play: Play) -> None:
    call: Any = {"type": "mcp_call", "id": "c", "name": "get_weather", "arguments": '{"city":"Rome"}', "output": "18 degrees"}

    async def story(store: Store) -> None:
        await store.create_conversation(titled("conv_1", "Trip"), [ConversationItem(id="c", data=call)])
        for search in ("trip", "GET_WEATHER", "rome", "18 deg"):
            assert ids(await store.list_conversations("me", search=search)) == ["conv_1"]
        for search in ("mcp_call", "output", "100%", "_"):
            found = await store.list_conversations("me", search=search)
            assert ids(found) == (["conv_1"] if search == "_" else [])

    play(story)


def test_long_search_stops_and_goes_on(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_list, "SEARCHED", 1000)

    async def story(store: Store) -> None:
        for number in range(5):
            text = "x" * 600 + ("needle" if number == 0 else "")
            await store.create_conversation(titled(f"conv_{number}", "t", at=number), [message("a", text)])
        first = await store.list_conversations("me", search="needle")
        assert (ids(first), first.next) == ([], (3.0, "conv_3"))
        second = await store.list_conversations("me", search="needle", before=first.next)
        assert (ids(second), second.next) == ([], (1.0, "conv_1"))
        assert ids(await store.list_conversations("me", search="needle", before=second.next)) == ["conv_0"]

    play(story)


def test_running_turn_is_named_until_it_ends(play: Play) -> None:
    async def story(store: Store) -> None:
        await store.create_conversation(titled("conv_1", "t"))
        await store.create_turn(turn("t0", conversation="conv_1", stored=True, background=False), steps(ACCEPTED))
        row = turn("t1", conversation="conv_1", stored=True, background=True, created_at=1001.0)
        await store.create_turn(row, steps(ACCEPTED))
        assert (await store.list_conversations("me")).entries[0].running == "t1"
        await store.set_status("t1", "parked")
        assert (await store.list_conversations("me")).entries[0].running == "t1"
        await store.set_status("t1", "finished")
        found = await store.describe_conversation("conv_1", "me")
        assert found is not None
        assert found.running is None

    play(story)
