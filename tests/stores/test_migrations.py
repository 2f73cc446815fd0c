"""Migrations: databases of every earlier version are brought up to date."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.stores.rows import ACCEPTED, ANSWERED, FINISHED, PLANNED, RAN, STARTED, conversation, items, steps, turn
from toolrelay.errors import StoreError
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.stores.conversations import ConversationItem
from toolrelay.stores.messages import message_rows
from toolrelay.stores.migrations import Migration, load_migrations
from toolrelay.stores.sql.schema import migrate
from toolrelay.stores.sqlite import FILE_NAME
from toolrelay.stores.turns import Frame, StoredTurn
from toolrelay.stores.usage import UsageRow

FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE_NAMES = sorted(file.name for file in FIXTURES.glob("version-*.sql"))
BEGIN = "BEGIN IMMEDIATE"

ROW = turn(conversation="conv_1", idempotency_key="k", request_digest="d", stored=True)
USAGE = UsageRow(minute=16, model="fast", key="me", turns=1, input=10, output=2, tool_runs=1)


async def write_examples(store: Store) -> None:
    """Write what the fixture of a version contains.

    To make one: run this on an empty store of that version, then `sqlite3 toolrelay.db .dump`, with the application_id.
    """
    await store.create_conversation(conversation(metadata={"a": "b"}), items("a", "b"))
    await store.create_turn(ROW, steps(ACCEPTED), message_rows(ACCEPTED))
    await store.append_steps("t1", steps(ANSWERED, PLANNED, STARTED, start=1), messages=message_rows(ANSWERED))
    await store.append_steps("t1", steps(RAN, FINISHED, start=4), status="finished", messages=message_rows(RAN), head="h1")
    await store.append_frames("t1", [Frame(0, b"data: {}\n\n")])
    await store.create_turn(turn("t2", previous="t1", status="parked", created_at=2000.0), steps(ACCEPTED))
    await store.create_turn(turn("t3", stored=True), steps(ACCEPTED))
    await store.delete_response("t3", "me")
    await store.add_usage([USAGE])


async def check_examples(store: Store) -> None:
    done = msgspec.structs.replace(ROW, status="finished")
    assert await store.load_turn("t1", "me") == StoredTurn(
        row=done, steps=tuple(steps(ACCEPTED, ANSWERED, PLANNED, STARTED, RAN, FINISHED))
    )
    assert [each.row.id for each in await store.load_unfinished()] == ["t2"]
    assert await store.find_idempotent("me", "k") == done
    assert await store.was_deleted("t3", "me")
    assert await store.load_frames("t1") == [Frame(0, b"data: {}\n\n")]
    assert await store.load_conversation("conv_1", "me") == conversation(metadata={"a": "b"})
    assert await store.load_item("conv_1", "me", "b") == ConversationItem(id="b", data={"type": "message", "id": "b"}, position=1)
    assert await store.find_conversation("me", ["h1"]) == ("conv_1", "h1")
    records = [record async for record in store.export()]
    assert [record["role"] for record in records if record["type"] == "message"] == ["user", "assistant", "tool"]
    assert [record for record in records if record["type"] == "usage"] == [{"type": "usage", **msgspec.structs.asdict(USAGE)}]


async def use(folder: Path, *stories: Any) -> None:
    store = open_store(StoreSettings(), folder)
    await store.open()
    for story in stories:
        await story(store)
    await store.close()


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


@pytest.mark.parametrize("name", FIXTURE_NAMES)
def test_database_of_an_earlier_version_is_migrated(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.executescript((FIXTURES / name).read_text("utf-8"))
    asyncio.run(use(tmp_path, check_examples))
    asyncio.run(use(tmp_path / "new"))
    assert schema(tmp_path / FILE_NAME) == schema(tmp_path / "new" / FILE_NAME)


def test_every_version_has_a_fixture() -> None:
    assert [f"version-{migration.version}.sql" for migration in load_migrations()] == FIXTURE_NAMES


def test_examples_are_what_the_fixtures_contain(tmp_path: Path) -> None:
    asyncio.run(use(tmp_path, write_examples, check_examples))


def test_versions_count_from_1() -> None:
    assert [migration.version for migration in load_migrations()] == list(range(1, len(load_migrations()) + 1))


def test_migrations_use_only_what_both_databases_know() -> None:
    statements = "\n".join(statement for migration in load_migrations() for statement in migration.statements)
    assert re.findall(r"\b(AUTOINCREMENT|WITHOUT ROWID|BLOB|REAL|STRICT|PRAGMA|SERIAL|JSONB)\b", statements, re.IGNORECASE) == []


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()]


FIRST = Migration(1, "first", ("CREATE TABLE a (x INTEGER)", "INSERT INTO a VALUES (1)"))
SECOND = Migration(2, "second", ("ALTER TABLE a ADD COLUMN y INTEGER", "UPDATE a SET y = x + 1"))
BROKEN = Migration(3, "broken", ("CREATE TABLE b (x INTEGER)", "INSERT INTO nowhere VALUES (1)"))


def test_only_missing_migrations_are_applied(connection: sqlite3.Connection) -> None:
    migrate(connection, "x", begin=BEGIN, migrations=[FIRST])
    migrate(connection, "x", begin=BEGIN, migrations=[FIRST, SECOND])
    migrate(connection, "x", begin=BEGIN, migrations=[FIRST, SECOND])
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(1, 2)]
    assert not connection.in_transaction


def test_failed_migration_leaves_the_earlier_version(connection: sqlite3.Connection) -> None:
    migrate(connection, "x", begin=BEGIN, migrations=[FIRST])
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, "x", begin=BEGIN, migrations=[FIRST, SECOND, BROKEN])
    assert tables(connection) == ["a", "schema_version"]
    assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
    migrate(connection, "x", begin=BEGIN, migrations=[FIRST, SECOND])


def test_newer_version_is_refused_and_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection, "x", begin=BEGIN, migrations=[FIRST, SECOND])
    with pytest.raises(StoreError, match=r"x was written by a newer version of Toolrelay \(schema 2; this one knows 1\)"):
        migrate(connection, "x", begin=BEGIN, migrations=[FIRST])
    assert not connection.in_transaction


def test_two_processes_that_start_together_migrate_once(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [open_store(StoreSettings(), tmp_path) for _ in range(8)]
        await asyncio.gather(*(store.open() for store in stores))
        await write_examples(stores[0])
        await check_examples(stores[7])
        for store in stores:
            await store.close()

    asyncio.run(main())
