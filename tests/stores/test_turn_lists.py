"""Lists of turns, in every kind of store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from tests.stores.conftest import Play
from tests.stores.rows import ACCEPTED, ANSWERED, ASKED, FINISHED, PLANNED, RAN, STARTED, steps, turn
from toolrelay.core.events import Usage
from toolrelay.core.messages import Call, Message
from toolrelay.core.request import Request
from toolrelay.core.steps import CallPlanned, StepEvent, TurnAccepted, TurnFailed, TurnFinished
from toolrelay.stores.base import Store
from toolrelay.stores.messages import message_rows
from toolrelay.stores.sql.schema import migrate
from toolrelay.stores.turn_lists import MAX_SEARCHED, TurnQuery


async def add(store: Store, identifier: str, *events: StepEvent, at: float = 1000.0, **row: Any) -> None:
    messages = [message for event in events for message in message_rows(event)]
    members = {"created_at": at, "status": "finished", **row}
    await store.create_turn(turn(identifier, **members), steps(*events, at=at + 2), messages)


def accepted(text: str) -> TurnAccepted:
    return TurnAccepted(request=Request(wire="openai_chat", model="fast", items=(Message(role="user", content=text),)))


async def ids(store: Store, owner: str = "me", **query: Any) -> Sequence[str]:
    return [each.row.id for each in (await store.list_turns(owner, TurnQuery(**query))).turns]


def test_turn_is_summarized(play: Play) -> None:
    async def story(store: Store) -> None:
        finished = TurnFinished(finish="stop", usage=Usage(input=7, output=3))
        await add(store, "t1", ACCEPTED, ANSWERED, PLANNED, PLANNED, ASKED, STARTED, RAN, finished)
        (found,) = (await store.list_turns("me", TurnQuery())).turns
        assert found.row.id == "t1"
        assert (found.last_at, found.tools, found.questions) == (1002.0, ("get_weather",), 1)
        assert (found.prompt, found.input, found.output, found.error) == ("Weather in Rome?", 7, 3, None)

    play(story)


def test_newest_come_first_in_pages(play: Play) -> None:
    async def story(store: Store) -> None:
        for number in range(7):
            await add(store, f"t{number}", accepted("x"), FINISHED, at=1000.0 + number // 2)  # some at the same time
        await add(store, "other", accepted("x"), FINISHED, owner="you")
        pages: list[list[str]] = []
        before = None
        while True:
            page = await store.list_turns("me", TurnQuery(limit=3, before=before))
            pages.append([each.row.id for each in page.turns])
            before = page.next
            if before is None:
                break
        assert pages == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]

    play(story)


def test_turns_of_others_and_deleted_ones_are_not_listed(play: Play) -> None:
    async def story(store: Store) -> None:
        await add(store, "t1", accepted("word"), FINISHED)
        await add(store, "t2", accepted("word"), FINISHED, owner="you")
        await add(store, "t3", accepted("word"), FINISHED, stored=True)
        await store.delete_response("t3", "me")
        assert await ids(store) == ["t1"]
        assert await ids(store, text="word") == ["t1"]
        assert await store.load_record("t1", "you") is None
        assert await store.load_record("t3", "me") is None

    play(story)


def test_filters_are_combined(play: Play) -> None:
    async def story(store: Store) -> None:
        failed = TurnFailed(code="timeout", message="The server was slow.")
        await add(store, "t1", ACCEPTED, ANSWERED, PLANNED, FINISHED, at=1001)
        await add(store, "t2", accepted("x"), failed, model="slow", status="failed", at=1002)
        await add(store, "t3", accepted("x"), FINISHED, model="slow", at=1003)
        assert await ids(store, model="slow") == ["t3", "t2"]
        assert await ids(store, model="slow", status="failed") == ["t2"]
        assert await ids(store, tool="get_weather") == ["t1"]
        assert await ids(store, tool="get") == []
        assert await ids(store, tool="get_weather", text="rome") == ["t1"]
        assert await ids(store, tool="get_weather", text="oslo") == []
        assert await ids(store, text="was SLOW") == ["t2"]
        (found,) = (await store.list_turns("me", TurnQuery(status="failed"))).turns
        assert found.error == "timeout"

    play(story)


@pytest.mark.parametrize("word", ["100%", "a_b", "back\\slash", "'; DROP TABLE turns; --", '"name":"get_weather"'])
def test_special_characters_are_taken_as_they_are(play: Play, word: str) -> None:
    async def story(store: Store) -> None:
        await add(store, "t1", accepted(f"before {word} after"), FINISHED)
        await add(store, "t2", accepted("100 axb backslash"), FINISHED)
        assert await ids(store, text=word) == ["t1"]
        assert await ids(store, tool=word) == []

    play(story)


def test_arguments_that_look_like_a_name_do_not_count_as_the_tool(play: Play) -> None:
    async def story(store: Store) -> None:
        call = Call(id="call_1", name="one", arguments='{"name":"other"}')
        await add(store, "t1", accepted("x"), CallPlanned(call=call, owner="client"), FINISHED)
        assert await ids(store, tool="other") == []
        assert await ids(store, tool="one") == ["t1"]

    play(story)


def test_search_stops_after_a_number_of_turns_and_can_be_continued(play: Play) -> None:
    async def story(store: Store) -> None:
        await add(store, "wanted", accepted("needle"), FINISHED, at=1.0)
        for number in range(MAX_SEARCHED):
            await add(store, f"t{number}", accepted("hay"), FINISHED, at=1000.0 + number)
        first = await store.list_turns("me", TurnQuery(text="needle"))
        assert (first.turns, first.searched) == ((), MAX_SEARCHED)
        assert first.next is not None
        second = await store.list_turns("me", TurnQuery(text="needle", before=first.next))
        assert [each.row.id for each in second.turns] == ["wanted"]
        assert (second.next, second.searched) == (None, 1)

    play(story)


def test_list_uses_the_owners_index() -> None:
    """Otherwise a rare owner's list would read all turns of the others."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, "x", begin="BEGIN")
    query = (
        "EXPLAIN QUERY PLAN SELECT id FROM turns WHERE owner = ? AND deleted = FALSE ORDER BY created_at DESC, id DESC LIMIT 9"
    )
    plan = str(connection.execute(query, ("me",)).fetchall())
    connection.close()
    assert "USING INDEX turns_owner" in plan
    assert "TEMP B-TREE" not in plan
