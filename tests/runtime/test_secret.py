"""The gateway's secret outlives it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from toolrelay import log
from toolrelay.runtime.secret import FILE, secret_in


def test_the_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    first = secret_in(tmp_path / "data")
    assert len(first) == 32
    assert secret_in(tmp_path / "data") == first
    assert stat.S_IMODE((tmp_path / "data" / FILE).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [FILE]


def test_gateways_that_start_together_have_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: secret_in(tmp_path), range(32)))) == 1


def test_a_file_that_is_no_secret_is_made_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"short")
    assert secret_in(tmp_path) == secret_in(tmp_path)


def test_where_nothing_can_be_kept_the_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    with log.captured() as lines:
        assert len(secret_in(tmp_path / "data")) == 32
    assert "secret_not_kept" in str(lines)
