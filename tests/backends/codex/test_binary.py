"""Search and probe of the Codex binary."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.codex.app_server import probed_binary
from tests.backends.codex.fake_codex import fake_codex
from toolrelay import log
from toolrelay.backends.codex import binary
from toolrelay.backends.codex.binary import NEWEST_TESTED, OLDEST_TESTED, find_binary, probe_binary
from toolrelay.errors import ConfigurationError


def test_real_binary_reports_version_features_and_catalog() -> None:
    with log.captured() as lines:
        found = probed_binary()
    assert OLDEST_TESTED <= found.version[:2] <= NEWEST_TESTED
    assert lines == []
    assert {"shell_tool", "unified_exec", "multi_agent"} <= found.features
    assert all(entry["slug"] and entry["base_instructions"] for entry in found.catalog)


def test_binary_is_searched_in_setting_then_package_then_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = fake_codex(tmp_path / "one"), fake_codex(tmp_path / "two")
    search_path = str(tmp_path / "two")
    assert find_binary(one, search_path) == one
    assert "codex_cli_bin" in find_binary("", search_path)
    monkeypatch.setattr(binary, "PACKAGE", "no_such_package")
    assert find_binary("", search_path) == two
    assert find_binary("codex", search_path) == two
    monkeypatch.chdir(tmp_path)
    assert find_binary("one/codex") == one
    assert find_binary("", "two") == two


def test_missing_binary_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binary, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigurationError, match=r"'\.\[codex\]'.*PATH.*TOOLRELAY_CODEX"):
        find_binary("", str(tmp_path))


@pytest.mark.parametrize("name", ["missing", "plain"])
def test_configured_binary_that_cannot_run_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_text("not a program")
    with pytest.raises(ConfigurationError, match=rf"TOOLRELAY_CODEX: {tmp_path / name} is not a program"):
        find_binary(str(tmp_path / name))


@pytest.mark.parametrize("version", ["0.167.0", "1.0.0", "0.1000.0"])
def test_newer_binary_is_used_with_a_warning(tmp_path: Path, version: str) -> None:
    path = fake_codex(tmp_path, version=version)
    with log.captured() as lines:
        probe_binary(path, {})
    assert lines == [
        {"level": "warning", "event": "codex_untested", "version": version, "tested": "0.163 to 0.166", "path": path}
    ]


@pytest.mark.parametrize("version", ["0.162.99", "0.89.0", "0.9.0"])
def test_older_binary_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigurationError, match="too old"):
        probe_binary(fake_codex(tmp_path, version=version), {})


def test_foreign_executable_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "codex"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="cannot be run"):
        probe_binary(str(path), {})


def test_silent_binary_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "PROBE_SECONDS", 0.1)
    path = tmp_path / "codex"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"no answer to `[a-z -]+` within 0\.1 seconds"):
        probe_binary(str(path), {})
