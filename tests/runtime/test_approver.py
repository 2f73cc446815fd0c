"""The approver's token in the data directory."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolrelay import log
from toolrelay.errors import ConfigurationError
from toolrelay.runtime.approver import FILE_NAME, load_or_create_approver_token, read_approver_token

TOKEN = "a-token-of-43-characters-that-somebody-wrote"
SRC = Path(__file__).resolve().parents[2] / "src"


def write(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / FILE_NAME
    file.write_bytes(content)
    file.chmod(mode)
    return file


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_or_create_approver_token(folder)
    return caught.value.message


def test_token_is_created_once_with_mode_600(tmp_path: Path) -> None:
    data = tmp_path / "data"
    token = load_or_create_approver_token(data)
    assert len(token) == 43
    assert load_or_create_approver_token(data) == token
    assert [path.name for path in data.iterdir()] == ["approver.token"]
    assert (data / FILE_NAME).read_text().strip() == token
    assert stat.S_IMODE((data / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_reading_makes_no_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert read_approver_token(data) is None
    assert not data.exists()
    assert load_or_create_approver_token(data) == read_approver_token(data)


def test_every_directory_has_its_own_token(tmp_path: Path) -> None:
    assert load_or_create_approver_token(tmp_path / "a") != load_or_create_approver_token(tmp_path / "b")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377])
def test_umask_does_not_loosen_the_mode(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        token = load_or_create_approver_token(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert load_or_create_approver_token(tmp_path) == token


def test_threads_that_start_together_get_the_same_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: load_or_create_approver_token(tmp_path), range(64)))) == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_processes_that_start_together_get_the_same_token(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from toolrelay.runtime.approver import load_or_create_approver_token as load; "
        "sys.stdin.read(1); print(load(Path(sys.argv[1])))"
    )
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )
        for _ in range(4)
    ]
    outputs = [process.communicate("x", timeout=60)[0] for process in processes]
    assert len(set(outputs)) == 1
    assert outputs[0].strip() == load_or_create_approver_token(tmp_path)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_token_that_somebody_wrote_is_kept(tmp_path: Path, end: str) -> None:
    write(tmp_path, TOKEN.encode() + end.encode())
    assert load_or_create_approver_token(tmp_path) == TOKEN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"short",
        b"a" * 31,
        b"a" * 513,
        b"a" * 1_000_000,
        b"a" * 20 + b" " + b"a" * 20,
        f"{TOKEN}\n{TOKEN}\n".encode(),
        b"\0" * 43,
        b"\xff" * 43,
        "ключ".encode() * 11,
    ],
    ids=["empty", "blank", "short", "31", "513", "huge", "blanks", "two lines", "zeros", "not ASCII", "Cyrillic"],
)
def test_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = write(tmp_path, content)
    message = refusal(tmp_path)
    assert message.startswith(f"{file}: ")
    assert "Delete the file" in message
    assert content.decode("latin-1").strip() not in message or not content.strip(), "the content is never shown"
    assert file.read_bytes() == content


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_loose_file_is_tightened_and_logged_without_the_token(tmp_path: Path, mode: int) -> None:
    file = write(tmp_path, TOKEN.encode(), mode)
    with log.captured() as lines:
        assert load_or_create_approver_token(tmp_path) == TOKEN
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [line] = lines
    assert (line["event"], line["path"], line["mode"]) == ("permissions_tightened", str(file), f"{mode:04o}")
    assert TOKEN not in str(lines)


def test_loose_file_that_cannot_be_tightened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, TOKEN.encode(), 0o644)

    def chmod(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", chmod)
    assert str(file) in refusal(tmp_path)


def test_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That user knows the token. Only root can give a file away, so the system call is replaced."""
    file = write(tmp_path, TOKEN.encode())
    real = file.lstat()
    monkeypatch.setattr(Path, "lstat", lambda _: os.stat_result((*real[:4], real.st_uid + 1, *real[5:])))
    message = refusal(tmp_path)
    assert message.startswith(f"{file}: ")
    assert "another user" in message


def test_link_or_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(TOKEN)
    (tmp_path / FILE_NAME).symlink_to(elsewhere)
    assert "not a plain file" in refusal(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "nowhere")
    assert "not a plain file" in refusal(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()
    assert "not a plain file" in refusal(tmp_path)
    (tmp_path / FILE_NAME).rmdir()
    os.mkfifo(tmp_path / FILE_NAME)
    assert "not a plain file" in refusal(tmp_path)


def test_unwritable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    message = refusal(tmp_path / "data")
    assert message.startswith(str(tmp_path / "data" / FILE_NAME))
    assert "--data-dir" in message


def test_crash_before_the_file_is_in_place_leaves_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    assert "Operation not supported" in refusal(tmp_path)
    assert list(tmp_path.iterdir()) == []
