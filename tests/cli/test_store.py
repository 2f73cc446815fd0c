"""`toolrelay store`."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Run, configure
from tests.stores.rows import ACCEPTED, steps, turn
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.stores.messages import message_rows
from toolrelay.stores.usage import UsageRow

DAY = 86_400
NAME = "Zoë"


def use_store(story: Callable[[Store], Awaitable[Any]]) -> None:
    async def main() -> None:
        store = open_store(StoreSettings(), Path("data"))
        await store.open()
        await story(store)
        await store.close()

    asyncio.run(main())


async def add_turns(store: Store) -> None:
    for days in (1, 10, 100):
        at = time.time() - days * DAY
        row = turn(f"{days} days", NAME, created_at=at, status="finished", conversation=f"c{days}")
        await store.create_turn(row, steps(ACCEPTED, at=at), message_rows(ACCEPTED))
    await store.add_usage([UsageRow(minute=1, model="m", key="k", turns=1)])


async def names(store: Store) -> list[str]:
    return [str(record["id"]) async for record in store.export() if record["type"] == "turn"]


def remaining() -> list[str]:
    found: list[str] = []

    async def story(store: Store) -> None:
        found.extend(await names(store))

    use_store(story)
    return found


@pytest.fixture
def recorded() -> None:
    use_store(add_turns)


@pytest.mark.parametrize(
    ("options", "deleted", "kept"),
    [
        ((), "deleted: 1 turns, 1 conversations, 1 minutes of usage\n", ["10 days", "1 days"]),
        (("--older-than", "7"), "deleted: 2 turns, 2 conversations, 1 minutes of usage\n", ["1 days"]),
        (("--older-than", "0"), "deleted: 3 turns, 3 conversations, 1 minutes of usage\n", []),
        (("--older-than", "36500"), "deleted: 0 turns, 0 conversations, 0 minutes of usage\n", ["100 days", "10 days", "1 days"]),
    ],
)
def test_prune_deletes_what_is_old(run: Run, recorded: None, options: tuple[str, ...], deleted: str, kept: list[str]) -> None:
    assert run("store", "prune", "--data-dir", "data", *options) == (0, deleted, "")
    assert remaining() == kept


def test_prune_takes_the_retention_from_the_file(run: Run, recorded: None) -> None:
    configure("[store]\nretention_days = 3")
    assert run("store", "prune", "--data-dir", "data").code == 0
    assert remaining() == ["1 days"]


def test_prune_without_retention_needs_a_number_of_days(run: Run, recorded: None) -> None:
    configure("[store]\nretention_days = 0")
    code, out, err = run("store", "prune", "--data-dir", "data")
    assert (code, out) == (2, "")
    assert "store.retention_days is 0: everything is kept. Say how many days" in err
    assert len(remaining()) == 3
    assert run("store", "prune", "--data-dir", "data", "--older-than", "7").code == 0


@pytest.mark.parametrize("days", ["-1", "x", "1e9", "99999"])
def test_invalid_number_of_days_is_refused(run: Run, recorded: None, days: str) -> None:
    assert run("store", "prune", "--data-dir", "data", "--older-than", days).code == 2
    assert len(remaining()) == 3


def test_export_writes_json_lines(run: Run, recorded: None) -> None:
    code, out, err = run("store", "export", "--data-dir", "data")
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["type"] for record in records] == [*["turn", "message"] * 3, *["conversation"] * 3, "usage"]
    assert records[0]["owner"] == NAME
    assert records[1]["content"] == "Weather in Rome?"


def test_exported_file_is_private_and_equals_the_standard_output(run: Run, recorded: None) -> None:
    old = os.umask(0)
    try:
        assert run("store", "export", "out.jsonl", "--data-dir", "data") == (0, "", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE(Path("out.jsonl").stat().st_mode) == 0o600
    assert Path("out.jsonl").read_text("utf-8") == run("store", "export", "--data-dir", "data").out


def test_commands_work_while_the_gateway_has_the_store_open(run: Run) -> None:
    async def main() -> tuple[Any, Any]:
        store = open_store(StoreSettings(), Path("data"))
        await store.open()
        await add_turns(store)
        exported = await asyncio.to_thread(run, "store", "export", "--data-dir", "data")
        pruned = await asyncio.to_thread(run, "store", "prune", "--older-than", "7", "--data-dir", "data")
        assert await names(store) == ["1 days"]
        await store.create_turn(turn("more"), steps(ACCEPTED))
        await store.close()
        return exported, pruned

    exported, pruned = asyncio.run(main())
    assert exported.code == 0
    assert exported.out.count('"type":"turn"') == 3
    assert pruned.out.startswith("deleted: 2 turns")


@pytest.mark.parametrize("command", ["prune", "export"])
def test_missing_store_is_reported_and_not_created(run: Run, command: str) -> None:
    code, out, err = run("store", command, "--data-dir", "data")
    assert (code, out) == (1, "")
    assert "toolrelay.db: no such file. Nothing was recorded there; name another directory with --data-dir." in err
    assert not Path("data").exists()


def test_missing_store_leaves_the_file_of_the_last_export(run: Run) -> None:
    Path("out.jsonl").write_text("old")
    assert run("store", "export", "out.jsonl", "--data-dir", "data").code == 1
    assert Path("out.jsonl").read_text() == "old"


@pytest.mark.parametrize("command", ["prune", "export"])
def test_damaged_store_is_reported_and_kept(run: Run, command: str) -> None:
    Path("data").mkdir()
    Path("data/toolrelay.db").write_bytes(b"junk" * 1000)
    code, out, err = run("store", command, "--data-dir", "data")
    assert (code, out) == (1, "")
    assert err.startswith("toolrelay: ")
    assert "is damaged" in err
    assert Path("data/toolrelay.db").read_bytes() == b"junk" * 1000


def test_unwritable_export_file_is_reported(run: Run, recorded: None) -> None:
    code, _, err = run("store", "export", "no/such/directory.jsonl", "--data-dir", "data")
    assert code == 2
    assert "no/such/directory.jsonl cannot be written: No such file or directory" in err


def test_store_of_a_gateway_that_records_nothing_now_is_still_there(run: Run, recorded: None) -> None:
    configure('[store]\nrecord = "none"')
    assert run("store", "export", "--data-dir", "data").out.count('"type":"turn"') == 3


def test_newer_store_is_refused(run: Run, recorded: None) -> None:
    with closing(sqlite3.connect("data/toolrelay.db")) as connection, connection:
        connection.execute("INSERT INTO schema_version VALUES (99)")
    code, _, err = run("store", "export", "--data-dir", "data")
    assert code == 1
    assert "written by a newer version of Toolrelay" in err
