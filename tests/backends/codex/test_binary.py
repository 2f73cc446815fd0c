"""Where the binary is found, and what is said of one that does not fit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.backends.codex.fake_codex import fake_codex
from tests.backends.codex.stage import surveyed
from toolrelay import log
from toolrelay.backends.codex import binary
from toolrelay.backends.codex.binary import NEWEST, OLDEST, find_binary, survey
from toolrelay.errors import ConfigurationError


def test_the_real_one_says_what_it_is() -> None:
    with log.captured() as lines:
        found = surveyed()
    assert OLDEST <= found.version[:2] <= NEWEST
    assert lines == []
    assert {"shell_tool", "unified_exec", "multi_agent"} <= found.features
    assert all(entry["slug"] and entry["base_instructions"] for entry in found.catalog)


def test_the_configured_one_comes_before_the_packaged_one_and_that_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_none_at_all_is_a_fault_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binary, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigurationError, match=r"toolrelay\[codex\].*PATH.*TOOLRELAY_CODEX"):
        find_binary("", str(tmp_path))


@pytest.mark.parametrize("name", ["missing", "plain"])
def test_a_configured_one_that_cannot_be_run_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_text("not a program")
    with pytest.raises(ConfigurationError, match=rf"TOOLRELAY_CODEX: {tmp_path / name} is not a program"):
        find_binary(str(tmp_path / name))


@pytest.mark.parametrize("version", ["0.167.0", "1.0.0", "0.1000.0"])
def test_a_newer_one_is_tried_with_a_warning(tmp_path: Path, version: str) -> None:
    path = fake_codex(tmp_path, version=version)
    with log.captured() as lines:
        asyncio.run(survey(path, {}))
    assert lines == [
        {"level": "warning", "event": "codex_untested", "version": version, "tested": "0.163 to 0.166", "path": path}
    ]


@pytest.mark.parametrize("version", ["0.162.99", "0.89.0", "0.9.0"])
def test_an_older_one_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigurationError, match="too old"):
        asyncio.run(survey(fake_codex(tmp_path, version=version), {}))


def test_what_is_no_program_of_this_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "codex"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="cannot be run"):
        asyncio.run(survey(str(path), {}))


def test_one_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "ANSWER_SECONDS", 0.1)
    path = tmp_path / "codex"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"no answer to `[a-z -]+` within 0\.1 seconds"):
        asyncio.run(survey(str(path), {}))
