"""docs/store.md: its tables are those of the file, and its queries run."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stores.rows import ACCEPTED, ANSWERED, PLANNED, RAN, STARTED, steps, turn
from toolrelay.core.messages import Image, Message
from toolrelay.core.steps import AnswerReceived, ToolRunFinished
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.stores.messages import message_rows
from toolrelay.stores.sqlite import FILE_NAME
from toolrelay.stores.usage import UsageRow

PAGE = (Path(__file__).parent.parent.parent / "docs" / "store.md").read_text("utf-8")
QUERIES = re.findall(r"```sql\n(.+?)```", PAGE, re.DOTALL)
FAILED = ToolRunFinished(call_id="call_1", output=(Image(url="data:,"),), failed=True)
DONE = AnswerReceived(items=(Message(role="assistant", content="18 °C."),), finish="stop")


async def write(folder: Path) -> None:
    store = open_store(StoreSettings(), folder)
    await store.open()
    for name, result in (("t1", RAN), ("t2", FAILED)):
        row = turn(name, conversation="conv_1", created_at=float(name[1]))
        await store.create_turn(row, steps(ACCEPTED, at=row.created_at), message_rows(ACCEPTED))
        await store.append_steps(name, steps(ANSWERED, PLANNED, start=1, at=10.0), messages=message_rows(ANSWERED))
        await store.append_steps(name, steps(STARTED, start=3, at=10.0))
        await store.append_steps(name, steps(result, start=4, at=10.5), messages=message_rows(result))
        await store.append_steps(name, steps(DONE, start=5, at=11.0), messages=message_rows(DONE))
    await store.create_turn(turn("old", conversation="conv_0", created_at=0.5), steps(ACCEPTED), message_rows(ACCEPTED))
    await store.add_usage(
        [UsageRow(minute=minute, model="fast", key="me", turns=1, input=10, output=5) for minute in (0, 1, 24 * 60)]
    )
    await store.close()


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    asyncio.run(write(tmp_path))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        yield connection


def answer(connection: sqlite3.Connection, number: int) -> list[tuple[Any, ...]]:
    return connection.execute(QUERIES[number]).fetchall()


def test_page_has_three_queries() -> None:
    assert len(QUERIES) == 3


def test_query_reads_the_last_conversation(connection: sqlite3.Connection) -> None:
    rows = answer(connection, 0)
    assert [(role, content) for _, role, content, _ in rows] == [
        ("user", "Weather in Rome?"),
        ("user", "Weather in Rome?"),
        ("assistant", None),
        ("assistant", None),
        ("tool", "18 °C"),
        ("tool", '[{"type":"image_url","image_url":{"url":"data:,"}}]'),
        ("assistant", "18 °C."),
        ("assistant", "18 °C."),
    ]
    assert rows[0][0] == "1970-01-01 00:00:01"
    assert "get_weather" in rows[2][3]


def test_query_counts_tool_runs(connection: sqlite3.Connection) -> None:
    assert answer(connection, 1) == [("get_weather", 2, 1, 0.5)]


def test_query_sums_tokens_by_day(connection: sqlite3.Connection) -> None:
    assert answer(connection, 2) == [("1970-01-01", "me", "fast", 2, 20, 10), ("1970-01-02", "me", "fast", 1, 10, 5)]


def test_page_lists_every_table_and_column(connection: sqlite3.Connection) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.+?) \| .*\|$", PAGE, re.MULTILINE)
    described = {table: re.findall(r"`(\w+)`", columns) for table, columns in rows}
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert described == {table: [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")] for table in tables}


def test_messages_have_the_columns_of_the_contract(connection: sqlite3.Connection) -> None:
    columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(messages)")}
    assert {"role", "content", "content_json", "tool_calls", "tool_call_id", "function_call"} <= columns
