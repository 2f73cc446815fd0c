"""The stored secret of the gateway."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from toolrelay import log
from toolrelay.runtime.secret import FILE_NAME, load_secret


def test_secret_is_created_once_with_mode_600(tmp_path: Path) -> None:
    first = load_secret(tmp_path / "data")
    assert len(first) == 32
    assert load_secret(tmp_path / "data") == first
    assert stat.S_IMODE((tmp_path / "data" / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE_NAME]


def test_concurrent_gateways_share_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: load_secret(tmp_path), range(32)))) == 1


def test_invalid_secret_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"short")
    assert load_secret(tmp_path) == load_secret(tmp_path)


def test_unwritable_directory_is_logged(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    with log.captured() as lines:
        assert len(load_secret(tmp_path / "data")) == 32
    assert "secret_not_kept" in str(lines)
