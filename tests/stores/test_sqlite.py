"""SQLite files: their modes, faults, and other programs that use them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stores.rows import ACCEPTED, FINISHED, steps, turn
from toolrelay import log
from toolrelay.core.messages import Message
from toolrelay.core.request import Request
from toolrelay.core.steps import TurnAccepted
from toolrelay.errors import ConfigurationError, StoreConflictError, StoreError
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import Store, open_store
from toolrelay.stores.migrations import load_migrations
from toolrelay.stores.sql.store import SqlStore
from toolrelay.stores.sqlite import FILE_NAME, SqliteDatabase

MEGABYTE = 1024 * 1024


def play(path: Path, story: Callable[[Store], Awaitable[Any]], **options: Any) -> None:
    async def main() -> None:
        store = SqlStore(SqliteDatabase(path, **options))
        await store.open()
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(main())


async def write_turn(store: Store) -> None:
    await store.create_turn(turn(), steps(ACCEPTED))


def accepted(size: int) -> TurnAccepted:
    request = Request(wire="w", model="m", items=(Message(role="user", content="x" * size),))
    return TurnAccepted(request=request)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / FILE_NAME


@pytest.fixture
def full_path(path: Path) -> Path:
    play(path, write_turn)
    return path


def test_directory_and_files_are_private(path: Path) -> None:
    old = os.umask(0)
    try:

        async def story(store: Store) -> None:
            await write_turn(store)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
            assert modes == dict.fromkeys((FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"), 0o600)
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

        play(path, story)
    finally:
        os.umask(old)


def test_store_survives_a_restart(full_path: Path) -> None:
    async def story(store: Store) -> None:
        found = await store.load_turn("t1")
        assert found is not None
        assert found.steps == tuple(steps(ACCEPTED))

    play(full_path, story)


def test_unopened_store_touches_no_file(tmp_path: Path) -> None:
    open_store(StoreSettings(), tmp_path / "data")
    open_store(StoreSettings(record="none"), tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_store_in_memory_writes_no_file(tmp_path: Path) -> None:
    async def main() -> None:
        store = open_store(StoreSettings(record="none"), tmp_path / "data")
        await store.open()
        await write_turn(store)
        await store.close()

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", "mysql://h/d", "writer", "../sqlite", "SQLITE"])
def test_unknown_kind_of_store_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='expected "sqlite"'):
        open_store(StoreSettings(url=url), tmp_path)


# Files that cannot be used


def refusal(path: Path) -> str:
    before = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} if path.parent.is_dir() else {}
    with pytest.raises(StoreError) as caught:
        play(path, write_turn)
    assert caught.value.status == 503
    assert str(path) in caught.value.message
    assert all(file.read_bytes() == content for file, content in before.items())
    return caught.value.message


def test_newer_schema_is_refused(full_path: Path) -> None:
    with closing(sqlite3.connect(full_path)) as connection, connection:
        connection.execute("INSERT INTO schema_version VALUES (99)")
    assert f"newer version of Toolrelay (schema 99; this one knows {len(load_migrations())})" in refusal(full_path)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be read as one" * 100, b"SQLite format 3\0" * 300]
)
def test_file_of_another_format_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert "damaged, or not a database of Toolrelay. Restore it from a backup" in refusal(path)


def test_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    assert "not a database of Toolrelay" in refusal(path)


def test_damaged_page_is_refused(path: Path) -> None:
    async def story(store: Store) -> None:
        await asyncio.gather(*(store.create_turn(turn(f"t{number}"), steps(accepted(3000))) for number in range(100)))

    play(path, story)
    content = bytearray(path.read_bytes())
    content[40 * 4096 : 60 * 4096] = os.urandom(20 * 4096)
    path.write_bytes(content)
    assert "is damaged" in refusal(path)


def test_truncated_file_is_refused(path: Path) -> None:
    play(path, write_turn)
    path.write_bytes(path.read_bytes()[: 3 * 4096 + 100])
    assert "is damaged" in refusal(path)


def test_directory_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    assert "cannot be opened for writing: Is a directory" in refusal(path)


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert "--data-dir" in refusal(tmp_path / "data" / FILE_NAME)


OPEN_AS_USER = """
import asyncio, concurrent.futures.thread, os, sys, toolrelay.stores.sqlite  # all, while it may read them
from pathlib import Path
from toolrelay.errors import StoreError
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
async def main():
    store = open_store(StoreSettings(), Path(sys.argv[1]))
    try:
        await store.open()
    except StoreError as error:
        print(error.message)
if os.getuid() == 0:  # root may write anywhere
    os.setgid(65534), os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.parametrize(("directory", "file"), [(0o555, 0o666), (0o777, 0o444), (0o555, None), (0o000, None)])
def test_read_only_file_or_directory_is_refused(directory: int, file: int | None) -> None:
    folder = Path(tempfile.mkdtemp())  # not below tmp_path, which only its owner may enter
    path = folder / FILE_NAME
    try:
        if file is not None:
            play(path, write_turn)
            path.chmod(file)
        folder.chmod(directory)
        command = [sys.executable, "-c", OPEN_AS_USER, str(folder)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert str(path) in printed
        assert "Make the file and its directory writable" in printed
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


# Faults while it is in use


def test_database_locked_by_another_program_is_an_error_that_passes(full_path: Path) -> None:
    async def story(store: Store) -> None:
        with closing(sqlite3.connect(full_path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked by another program") as caught:
                await store.create_turn(turn("t2"), steps(ACCEPTED))
            assert not isinstance(caught.value, StoreConflictError)
            assert await store.load_turn("t1") is not None
            other.execute("ROLLBACK")
        await store.create_turn(turn("t2"), steps(ACCEPTED))

    play(full_path, story, busy_seconds=0.05)


def test_short_lock_is_waited_for(full_path: Path) -> None:
    async def story(store: Store) -> None:
        with closing(sqlite3.connect(full_path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            write = asyncio.create_task(store.create_turn(turn("t2"), steps(ACCEPTED)))
            assert await store.load_turn("t2") is None
            other.execute("COMMIT")
            await write

    play(full_path, story, busy_seconds=60)


def test_full_database_refuses_what_does_not_fit_and_keeps_the_rest(path: Path) -> None:
    async def story(store: Store) -> None:
        sizes = [1000, 3 * MEGABYTE, 1000, 3 * MEGABYTE, 1000]
        writes = [store.create_turn(turn(f"t{number}"), steps(accepted(size))) for number, size in enumerate(sizes)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), StoreError, type(None), StoreError, type(None)]
        assert all("full. Free some space" in str(outcome) for outcome in outcomes if outcome)
        assert [each.row.id for each in await store.load_unfinished()] == ["t0", "t2", "t4"]
        await store.append_steps("t0", steps(FINISHED, start=1), status="finished")

    play(path, story, max_bytes=2 * MEGABYTE)


def test_unreadable_step_does_not_hide_the_other_turns(full_path: Path) -> None:
    with closing(sqlite3.connect(full_path)) as connection, connection:
        connection.execute('UPDATE steps SET data = \'{"type":"Unheard"}\'')

    async def story(store: Store) -> None:
        await store.create_turn(turn("t2"), steps(ACCEPTED))
        assert [each.row.id for each in await store.load_unfinished()] == ["t2"]
        with pytest.raises(StoreError, match="Step 0 of the turn t1 cannot be read"):
            await store.load_turn("t1")

    with log.captured() as lines:
        play(full_path, story)
    assert "turn_unreadable" in [line["event"] for line in lines]


def test_deleted_content_is_not_left_in_the_file(path: Path) -> None:
    async def write(store: Store) -> None:
        request = Request(wire="w", model="m", items=(Message(role="user", content="a secret " * 2000),))
        await store.create_turn(turn(stored=True), steps(TurnAccepted(request=request)))

    async def delete(store: Store) -> None:
        assert await store.delete_response("t1", "me")

    play(path, write)
    assert b"a secret" in path.read_bytes()
    play(path, delete)
    assert b"a secret" not in path.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == [FILE_NAME]


def test_two_processes_may_open_one_file(path: Path) -> None:
    async def story(store: Store) -> None:
        async def other_story(other: Store) -> None:
            await other.create_turn(turn("theirs"), steps(ACCEPTED))

        await write_turn(store)
        await asyncio.to_thread(play, path, other_story)
        assert {each.row.id for each in await store.load_unfinished()} == {"t1", "theirs"}

    play(path, story)
