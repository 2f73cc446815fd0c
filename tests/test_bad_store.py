"""A database that cannot be used: one clear line at the start, a clear error in a turn, and nothing on record is lost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.durable import Workshop
from tests.gateway import Gateway
from tests.tool_rounds import Round, play, play_by_text
from tests.upstream import Upstream

DONE = Round(text=("All ", "done."))
MODEL = {
    "once": play(Round(calls=(("once", {"number": 1}),)), DONE),
    "wait": play(Round(calls=(("wait", {}),)), DONE),
    "big": play(Round(calls=(("big", {}),)), DONE),
}
ROOT = Path(__file__).parent.parent

# A database file of at most this size: its disk is full sooner.
SMALL_DISK = """
from msgspec.structs import replace
from toolrelay.stores import sqlite
small = lambda settings, folder: sqlite.SqlStore(sqlite.SqliteDatabase(folder / sqlite.FILE_NAME, max_bytes=1_500_000))
sqlite.STORE = replace(sqlite.STORE, open=small)
from toolrelay.app import serve
sys.exit(serve(settings))
"""
IMPATIENT = SMALL_DISK.replace("max_bytes=1_500_000", "busy_seconds=0.01")


def chat(text: str, **members: Any) -> dict[str, Any]:
    return {"model": "fast", "messages": [{"role": "user", "content": text}], **members}


def respond(gateway: Gateway, text: str, **members: Any) -> dict[str, Any]:
    body: dict[str, Any] = gateway.post("/v1/responses", {"model": "fast", "input": text, **members}).json()
    return body


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(play_by_text(MODEL)) as started:
        yield started


@contextmanager
def locked(file: Path, statement: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement)
        yield
        connection.execute("ROLLBACK")


# At the start


def start_in_vain(folder: Path) -> str:
    """Return what `toolrelay serve` says on stderr."""
    command = [sys.executable, "-m", "toolrelay", "serve", "--port", "0", "--data-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("toolrelay: ")
    return ended.stderr


def test_damaged_file_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "toolrelay.db"
    file.write_bytes(b"not a database" * 1000)
    file.chmod(0o600)
    assert f"{file} is damaged" in start_in_vain(tmp_path)
    assert file.read_bytes() == b"not a database" * 1000


def test_file_of_a_newer_version_is_refused(tmp_path: Path, upstream: Upstream) -> None:
    workshop = Workshop(tmp_path, upstream)
    with workshop.start() as gateway:
        assert gateway.stop() == 0
    with closing(sqlite3.connect(workshop.database)) as connection:
        connection.execute("INSERT INTO schema_version (version) VALUES (1000)")
        connection.commit()
    assert "newer" in start_in_vain(tmp_path / "data")


def test_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toolrelay.db").mkdir()
    assert "cannot be opened for writing: Is a directory" in start_in_vain(tmp_path)


def test_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert "data" in start_in_vain(tmp_path / "data")


def test_locked_file_is_refused(tmp_path: Path, upstream: Upstream) -> None:
    workshop = Workshop(tmp_path, upstream)
    with workshop.start() as gateway:
        assert gateway.stop() == 0
    with locked(workshop.database, "BEGIN EXCLUSIVE"):
        assert "locked by another program" in start_in_vain(tmp_path / "data")


# In a turn


def test_locked_file_fails_the_turn_and_not_the_next(tmp_path: Path, upstream: Upstream) -> None:
    workshop = Workshop(tmp_path, upstream, program=IMPATIENT)
    with workshop.start() as gateway:
        with locked(workshop.database):
            refused = gateway.post("/v1/chat/completions", chat("once"))
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "store_error"
            assert "locked by another program" in refused.json()["error"]["message"]
            for background in (False, True):
                assert respond(gateway, "once", background=background)["error"]["code"] == "store_error"
            assert gateway.post("/v1/chat/completions", chat("once"), **{"x-toolrelay-tools": "off"}).status_code == 200
            assert gateway.get("/healthz").status_code == 200
        assert workshop.lines() == []
        assert respond(gateway, "once")["status"] == "completed"
        assert workshop.lines() == ["once 1"]


@pytest.mark.parametrize("background", [False, True])
def test_file_that_is_locked_during_a_run_fails_the_turn(tmp_path: Path, upstream: Upstream, *, background: bool) -> None:
    workshop = Workshop(tmp_path, upstream, program=IMPATIENT)
    with workshop.start() as gateway:
        response = _Posted(gateway, {"model": "fast", "input": "wait", "stream": True, "background": background})
        workshop.await_line("wait")
        with locked(workshop.database):
            workshop.let_go()
            stream = response.text()
        assert stream.count("event: response.failed") == 1
        assert "locked by another program" in stream
        assert stream.endswith("data: [DONE]\n\n")
        assert gateway.get("/healthz").status_code == 200
        assert respond(gateway, "once")["status"] == "completed"
        assert gateway.stop() == 0
    with workshop.start() as gateway:
        workshop.await_that(lambda: "running" not in workshop.statuses(), workshop.statuses)
        assert workshop.lines() == ["wait", "once 1"]


def test_background_response_that_failed_in_a_locked_file_stays_failed(tmp_path: Path, upstream: Upstream) -> None:
    workshop = Workshop(tmp_path, upstream, program=IMPATIENT)
    with workshop.start() as gateway:
        response = _Posted(gateway, {"model": "fast", "input": "wait", "stream": True, "background": True})
        workshop.await_line("wait")
        path = f"/v1/responses/resp_{workshop.last_turn()}"
        with locked(workshop.database):
            workshop.let_go()
            stream = response.text()
            assert gateway.get(path).json()["status"] == "failed"
            assert gateway.get(f"{path}?stream=true").text == stream
            assert gateway.post(f"{path}/cancel", {}).json()["status"] == "failed"
        workshop.await_that(lambda: workshop.statuses() == ["failed"], workshop.statuses)
        assert gateway.get(path).json()["status"] == "failed"
        assert gateway.get(f"{path}?stream=true").text == stream
        assert gateway.stop() == 0
    with workshop.start() as gateway:
        assert gateway.get(path).json()["status"] == "failed"
        assert gateway.get(f"{path}?stream=true").text == stream
        assert workshop.lines() == ["wait"]


def test_full_disk_fails_the_turn_and_keeps_the_record(tmp_path: Path, upstream: Upstream) -> None:
    workshop = Workshop(tmp_path, upstream, program=SMALL_DISK)
    completed: list[dict[str, Any]] = []
    with workshop.start() as gateway:
        while (last := respond(gateway, "big")).get("status") == "completed":
            completed.append(last)
        assert completed
        assert last["error"]["code"] == "store_error"
        assert "full. Free some space on its disk, or run `toolrelay store prune`" in last["error"]["message"]
        assert gateway.post("/v1/chat/completions", chat("once"), **{"x-toolrelay-tools": "off"}).status_code == 200
        assert [gateway.get(f"/v1/responses/{each['id']}").json() for each in completed] == completed
        assert gateway.stop() == 0
    workshop = Workshop(tmp_path, upstream)
    with workshop.start() as gateway:
        assert [gateway.get(f"/v1/responses/{each['id']}").json() for each in completed] == completed
        assert respond(gateway, "big")["status"] == "completed"
        assert "running" not in workshop.statuses()


class _Posted:
    """A streamed request that is read later."""

    def __init__(self, gateway: Gateway, body: dict[str, Any]) -> None:
        self._threads = ThreadPoolExecutor(1)
        self._response = self._threads.submit(gateway.post, "/v1/responses", body)

    def text(self) -> str:
        with self._threads:
            return self._response.result().text
