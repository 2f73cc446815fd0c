"""The index follows the files, survives restarts, damage and a vault that vanishes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.toolsets.vault.vaults import context, eventually, make_toolset, on_vault, opened, paths, read, search, write_notes
from toolrelay import log
from toolrelay.errors import ToolError
from toolrelay.toolsets.base import Progress, ToolContext, Toolset


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write_notes(tmp_path / "vault", {"One.md": "first note", "Sub/Two.md": "second note"})


def finds(toolset: Toolset, query: str, *expected: str) -> Callable[[], asyncio.Future[bool]]:
    async def check() -> bool:
        return sorted(await paths(toolset, query)) == sorted(expected)

    return lambda: asyncio.ensure_future(check())


def test_changes_of_files_are_found(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert await paths(toolset, "fresh") == []
        write_notes(vault, {"New.md": "fresh"})
        await eventually(finds(toolset, "fresh", "New.md"))
        write_notes(vault, {"New.md": "stale"})
        await eventually(finds(toolset, "stale", "New.md"))
        assert await paths(toolset, "fresh") == []
        (vault / "New.md").rename(vault / "Sub" / "Moved.md")
        await eventually(finds(toolset, "stale", "Sub/Moved.md"))
        (vault / "Sub" / "Moved.md").unlink()
        await eventually(finds(toolset, "stale"))

    on_vault(vault, story)


def test_changes_of_folders_are_found(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        await search(toolset, "note")
        (vault / "Sub").rename(vault / "Renamed")
        await eventually(finds(toolset, "second", "Renamed/Two.md"))
        write_notes(vault, {"Deep/er/Three.md": "third note"})
        await eventually(finds(toolset, "third", "Deep/er/Three.md"))
        shutil.rmtree(vault / "Deep")
        await eventually(finds(toolset, "third"))

    on_vault(vault, story)


def test_parts_of_new_words_are_found(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert await paths(toolset, "nzib") == []
        write_notes(vault, {"New.md": "Zanzibar"})
        await eventually(finds(toolset, "nzib", "New.md"))

    on_vault(vault, story)


def test_deleted_and_changed_notes_are_not_returned_even_at_once(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert len(await paths(toolset, "note")) == 2
        (vault / "One.md").unlink()
        assert await paths(toolset, "note") == ["Sub/Two.md"]
        (vault / "Sub" / "Two.md").write_text("other")
        assert await paths(toolset, "note") == []

    on_vault(vault, story)


def test_index_survives_a_restart_and_catches_up(vault: Path) -> None:
    async def first(toolset: Toolset) -> None:
        assert len(await paths(toolset, "note")) == 2

    async def second(toolset: Toolset) -> None:
        assert await paths(toolset, "note") == ["Sub/Two.md"]
        await eventually(finds(toolset, "while", "While.md"))
        await eventually(finds(toolset, "first"))

    on_vault(vault, first)
    write_notes(vault, {"While.md": "while it was closed"})
    (vault / "One.md").unlink()
    with log.captured() as lines:
        on_vault(vault, second)
    assert [line for line in lines if line["event"] == "vault_indexing"] == []


def index_file(vault: Path) -> Path:
    (file,) = (vault.parent / "data" / "vaults").glob("*.db")
    return file


def overwrite(file: Path) -> None:
    file.write_bytes(b"this is no database" * 1000)


def truncate(file: Path) -> None:
    with file.open("r+b") as opened_file:
        opened_file.truncate(file.stat().st_size // 2)


def change_version(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("UPDATE meta SET value = '0' WHERE key = 'key'")
    connection.commit()
    connection.close()


def make_foreign(file: Path) -> None:
    file.unlink()
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE other(x)")
    connection.commit()
    connection.close()


def drop_table(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("DROP TABLE public")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("damage", [overwrite, truncate, change_version, make_foreign, drop_table])
def test_damaged_or_older_index_is_rebuilt(vault: Path, damage: Callable[[Path], None]) -> None:
    async def story(toolset: Toolset) -> None:
        assert sorted(await paths(toolset, "note")) == ["One.md", "Sub/Two.md"]

    on_vault(vault, story)
    damage(index_file(vault))
    with log.captured() as lines:
        on_vault(vault, story)
    assert "vault_index_rebuilt" in [line["event"] for line in lines]


def test_index_damaged_while_it_is_open_is_rebuilt(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        assert len(await paths(toolset, "note")) == 2
        connection = sqlite3.connect(index_file(vault))
        connection.execute("DROP TABLE public")
        connection.close()
        assert sorted(await paths(toolset, "note")) == ["One.md", "Sub/Two.md"]

    on_vault(vault, story)


def test_other_private_rules_build_the_index_anew(vault: Path) -> None:
    async def visible(toolset: Toolset) -> None:
        assert await paths(toolset, "first") == ["One.md"]

    async def hidden(toolset: Toolset) -> None:
        assert await paths(toolset, "first") == []

    on_vault(vault, visible)
    on_vault(vault, hidden, private=("One.md",))
    on_vault(vault, visible, private=("Two.md",))


def test_excluded_notes_leave_the_index(vault: Path) -> None:
    async def visible(toolset: Toolset) -> None:
        assert await paths(toolset, "first") == ["One.md"]

    async def hidden(toolset: Toolset) -> None:
        assert await paths(toolset, "first") == []

    on_vault(vault, visible)
    on_vault(vault, hidden, exclude=("One.md",))


def empty(vault: Path, away: Path) -> None:
    vault.rename(away)
    vault.mkdir()


def move(vault: Path, away: Path) -> None:
    vault.rename(away)


def bring_back(vault: Path, away: Path) -> None:
    if vault.exists():
        vault.rmdir()
    away.rename(vault)


@pytest.mark.parametrize("vanish", [move, empty])
def test_vanished_vault_is_an_error_until_it_is_back(vault: Path, vanish: Callable[[Path, Path], None]) -> None:
    away = vault.parent / "away"

    async def story(toolset: Toolset) -> None:
        assert len(await paths(toolset, "note")) == 2
        vanish(vault, away)
        for run in (search(toolset, "note"), read(toolset, "One.md")):
            with pytest.raises(ToolError, match="the vault cannot be read: "):
                await run
        before = notes_in_index(vault)
        bring_back(vault, away)
        assert before == 2
        assert len(await paths(toolset, "note")) == 2
        write_notes(vault, {"Later.md": "later"})
        await eventually(finds(toolset, "later", "Later.md"))

    on_vault(vault, story)


def notes_in_index(vault: Path) -> int:
    connection = sqlite3.connect(index_file(vault))
    try:
        return int(connection.execute("SELECT count(*) FROM note").fetchone()[0])
    finally:
        connection.close()


def test_odd_files_in_the_vault_do_no_harm(vault: Path) -> None:
    os.mkfifo(vault / "Pipe.md")
    (vault / "Folder.md").mkdir()
    (vault / "Loop").symlink_to(".")
    (vault / "Link.md").symlink_to("/etc/passwd")
    (vault / os.fsdecode(b"caf\xe9.md")).write_text("note with an odd name")
    (vault / "back\\slash.md").write_text("note")
    (vault / "new\nline.md").write_text("note")
    write_notes(
        vault,
        {
            "Binary.md": b"note\0",
            "Latin.md": "note é".encode("latin-1"),
            "Utf16.md": "\ufeffnote".encode("utf-16-le"),
            "Bad.md": "---\ntags: [: }\n---\nnote",
            ".hidden/x.md": "note",
            ".y.md": "note",
            "text.txt": "note",
            "Big.md": "note " * 1_100_000,
        },
    )
    with (vault / "Sparse.md").open("wb") as file:
        file.truncate(500_000_000)

    async def story(toolset: Toolset) -> None:
        found = await search(toolset, "note", limit=50)
        expected = ["Bad.md", "Big.md", "Latin.md", "One.md", "Sub/Two.md", "Utf16.md", "caf\ufffd.md"]
        assert sorted(entry["path"] for entry in found) == expected
        assert msgspec.json.encode(found)
        assert {entry["path"]: entry["matches"] for entry in found}["Big.md"] == 1_000_000
        assert await paths(toolset, "binary") == ["Binary.md"]
        assert await paths(toolset, "sparse") == ["Sparse.md"]
        assert (await read(toolset, "caf\ufffd.md"))[0]["content"] == "note with an odd name"

    on_vault(vault, story)


def test_many_files_are_indexed_with_progress_in_the_log(tmp_path: Path) -> None:
    root = write_notes(tmp_path / "vault", {f"{number % 20}/{number}.md": "" for number in range(2000)})

    async def story(toolset: Toolset) -> None:
        assert await paths(toolset, "1999") == ["19/1999.md"]

    with log.captured() as lines:
        on_vault(root, story)
    events = [(line["event"], line["notes"]) for line in lines if line["event"].startswith("vault_index")]
    assert (events[0], events[-1]) == (("vault_indexing", 2000), ("vault_indexed", 2000))


def blocked_index(vault: Path) -> tuple[Path, sqlite3.Connection]:
    """Return an index that cannot be written: another process is in the middle of a transaction."""

    async def story(toolset: Toolset) -> None:
        await search(toolset, "note")

    on_vault(vault, story)
    connection = sqlite3.connect(index_file(vault), isolation_level=None)
    connection.execute("DELETE FROM meta WHERE key = 'complete'")
    connection.execute("DELETE FROM note")
    connection.execute("BEGIN IMMEDIATE")
    return index_file(vault), connection


def test_search_during_the_first_index_says_so_at_the_time_out(vault: Path) -> None:
    _, connection = blocked_index(vault)

    async def story() -> None:
        async with opened(vault, timeout_seconds=0.5) as toolset:
            with pytest.raises(ToolError, match=r"^indexing, \d of \d notes: try again in a moment$"):
                await search(toolset, "note")
            connection.execute("ROLLBACK")
            connection.close()

    asyncio.run(story())


def test_cancelled_search_ends_while_it_waits(vault: Path) -> None:
    _, connection = blocked_index(vault)

    async def story() -> None:
        async with opened(vault, timeout_seconds=600) as toolset:
            reported: asyncio.Queue[Progress] = asyncio.Queue()
            loop = asyncio.get_running_loop()

            def report(progress: Progress) -> None:
                loop.call_soon_threadsafe(reported.put_nowait, progress)

            waiting = ToolContext(call_id="call_1", report=report)
            run = asyncio.ensure_future(toolset.run("vault_search", {"query": "note"}, waiting))
            assert (await reported.get()).message == "indexing"
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            connection.execute("ROLLBACK")
            connection.close()

    asyncio.run(story())


def test_cancelled_context_ends_a_search(vault: Path) -> None:
    async def story(toolset: Toolset) -> None:
        cancelled = context()
        cancelled.cancel()
        with pytest.raises(ToolError):
            await toolset.run("vault_search", {"query": "note"}, cancelled)

    on_vault(vault, story)


def test_event_loop_goes_on_during_the_first_index(tmp_path: Path) -> None:
    root = write_notes(tmp_path / "vault", {f"{number}.md": "words and words " * 500 for number in range(300)})

    async def story() -> None:
        toolset = make_toolset(root, tmp_path / "data")
        await toolset.open()
        run = asyncio.ensure_future(search(toolset, "words"))
        ticks = 0
        deadline = time.monotonic() + 30
        while not run.done() and time.monotonic() < deadline:
            await asyncio.sleep(0)
            ticks += 1
        assert len(await run) == 10
        assert ticks > 1
        await toolset.close()

    asyncio.run(story())


def test_toolset_can_be_closed_during_the_first_index_and_goes_on_later(tmp_path: Path) -> None:
    root = write_notes(tmp_path / "vault", {f"{number}.md": "words and words " * 200 for number in range(1500)})

    async def story() -> None:
        toolset = make_toolset(root, tmp_path / "data")
        await toolset.open()
        await toolset.close()
        async with opened(root) as again:
            assert await paths(again, "1499") == ["1499.md"]

    asyncio.run(story())
