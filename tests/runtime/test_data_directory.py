"""Permissions of the data directory and the files in it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway import running
from toolrelay import log
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.data_directory import protect_data_directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def directory(path: Path, permissions: int, *files: str) -> Path:
    path.mkdir()
    for name in files:
        (path / name).write_bytes(b"content")
        (path / name).chmod(0o644)
    path.chmod(permissions)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        protect_data_directory(path)
    return caught.value.message


def test_missing_directory_is_created_with_mode_700(tmp_path: Path) -> None:
    with log.captured() as lines:
        protect_data_directory(tmp_path / "a" / "data")
    assert mode(tmp_path / "a" / "data") == 0o700
    assert lines == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_umask_does_not_matter(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        protect_data_directory(tmp_path / "data")
    finally:
        os.umask(before)
    assert mode(tmp_path / "data") == 0o700


@pytest.mark.parametrize("permissions", [0o755, 0o750, 0o701, 0o777, 0o2770])
def test_loose_directory_is_tightened_and_logged(tmp_path: Path, permissions: int) -> None:
    data = directory(tmp_path / "data", permissions)
    with log.captured() as lines:
        protect_data_directory(data)
        protect_data_directory(data)
    assert mode(data) & 0o777 == 0o700
    [line] = lines
    assert (line["event"], line["level"]) == ("permissions_tightened", "warning")
    assert (line["path"], line["mode"]) == (str(data), f"{permissions:04o}")


@pytest.mark.parametrize("name", ["toolrelay.db", "toolrelay.db-wal", "toolrelay.db-shm", "secret.key", "approver.token"])
@pytest.mark.parametrize("permissions", [0o700, 0o755])
def test_loose_file_is_tightened_and_logged(tmp_path: Path, name: str, permissions: int) -> None:
    data = directory(tmp_path / "data", permissions, name)
    with log.captured() as lines:
        protect_data_directory(data)
    assert mode(data / name) == 0o600
    assert lines[-1]["path"] == str(data / name)
    assert (data / name).read_bytes() == b"content"


def test_private_directory_and_other_files_are_left_alone(tmp_path: Path) -> None:
    data = directory(tmp_path / "data", 0o700, "notes.txt", "toolrelay.toml")
    (data / "secret.key").symlink_to(data / "notes.txt")
    with log.captured() as lines:
        protect_data_directory(data)
    assert lines == []
    assert mode(data / "notes.txt") == mode(data / "toolrelay.toml") == 0o644


@pytest.mark.parametrize(("permissions", "files"), [(0o755, ["notes.txt"]), (0o1777, []), (0o1777, ["toolrelay.db"])])
def test_loose_directory_of_others_is_refused_and_left_alone(tmp_path: Path, permissions: int, files: list[str]) -> None:
    """Closing /tmp or somebody's project to everyone else would do harm."""
    data = directory(tmp_path / "data", permissions, *files)
    message = refusal(data)
    assert str(data) in message
    assert "--data-dir" in message
    assert f"chmod 700 {data}" in message
    assert mode(data) == permissions


@pytest.mark.parametrize("files", [["toolrelay.db", "notes.txt"], ["lost+found"]])
def test_loose_directory_that_was_used_before_or_is_a_new_volume_is_tightened(tmp_path: Path, files: list[str]) -> None:
    data = directory(tmp_path / "data", 0o755, *files)
    protect_data_directory(data)
    assert mode(data) == 0o700


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), None], ids=["refused", "without effect"])
def test_directory_that_cannot_be_tightened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    """Of another user, or on a file system without permissions. Root may do everything, so the system call is replaced."""
    data = directory(tmp_path / "data", 0o755)

    def chmod(*_: object, **__: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(os, "chmod", chmod)
    message = refusal(data)
    assert message.startswith(f"--data-dir: {data} ")
    assert "other users" in message
    assert ("Operation not permitted" in message) == (error is not None)


def test_private_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may do everything, so the system call is replaced."""
    data = directory(tmp_path / "data", 0o700)
    stat_of = os.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if Path(path).parent == data:
            raise PermissionError(13, "Permission denied", path)
        return stat_of(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    message = refusal(data)
    assert message.startswith(f"--data-dir: {data} cannot be used: Permission denied. Name a directory")


def test_path_that_cannot_be_a_directory_is_left_to_those_who_use_it(tmp_path: Path) -> None:
    """The store reports it. Without a store and `sealed` models the gateway runs without the directory."""
    (tmp_path / "data").write_text("a file")
    protect_data_directory(tmp_path / "data")
    assert (tmp_path / "data").read_text() == "a file"


# The gateway


def test_gateway_creates_private_files_and_tightens_loose_ones(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(folder=tmp_path) as gateway:
        assert mode(data) == 0o700
        assert {path.name: mode(path) for path in data.iterdir()} == dict.fromkeys(
            ("toolrelay.db", "toolrelay.db-wal", "toolrelay.db-shm", "approver.token"), 0o600
        )
        assert gateway.stop() == 0
        assert gateway.log() == ""
    data.chmod(0o755)
    (data / "toolrelay.db").chmod(0o644)
    with running(folder=tmp_path) as gateway:
        assert mode(data) == 0o700
        assert {mode(path) for path in data.iterdir()} == {0o600}
        assert gateway.stop() == 0
        lines = [json.loads(line) for line in gateway.log().splitlines()]
    assert [(line["event"], line["path"]) for line in lines] == [
        ("permissions_tightened", str(data)),
        ("permissions_tightened", str(data / "toolrelay.db")),
    ]


def test_gateway_does_not_start_in_a_shared_directory(tmp_path: Path) -> None:
    data = directory(tmp_path / "data", 0o755, "notes.txt")
    command = [sys.executable, "-m", "toolrelay", "serve", "--port", "0", "--data-dir", str(data)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--data-dir: {data} " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
