"""The rules of conftest.py, tried on suites made for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

MARKED = """
import pytest

@pytest.mark.skip(reason="no oracle here")
def test_marked(): ...
"""
CALLED = """
import pytest

def test_called():
    pytest.skip("no oracle here")
"""
FIXTURE = """
import pytest

@pytest.fixture
def oracle():
    pytest.skip("no oracle here")

def test_asks_for_it(oracle): ...
"""
MODULE = """
import pytest

pytest.skip("no oracle here", allow_module_level=True)
"""
EXPECTED_FAILURE = """
import pytest

@pytest.mark.xfail(strict=True)
def test_known_to_fail():
    raise AssertionError
"""
PROFILE = """
from hypothesis import settings

def test_profile():
    assert (settings.default.derandomize, settings.default.deadline) == ({derandomized}, None)
"""


def outcome(directory: Path, source: str, *, ci: bool) -> tuple[int, str]:
    """Runs a suite under our conftest. A plain one beside it keeps the suite from being empty."""
    (directory / "conftest.py").write_bytes(CONFTEST.read_bytes())
    (directory / "test_tried.py").write_text(source)
    (directory / "test_plain.py").write_text("def test_plain(): ...\n")
    environment = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    if ci:
        environment["CI"] = "true"
    command = [sys.executable, "-m", "pytest", "-p", "no:langsmith_plugin", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    ended = subprocess.run(
        [*command, str(directory)], env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("source", [MARKED, CALLED, FIXTURE, MODULE], ids=["marked", "called", "fixture", "module"])
def test_a_skip_fails_in_ci_and_says_why(tmp_path: Path, source: str) -> None:
    code, said = outcome(tmp_path, source, ci=True)
    assert code != 0
    assert "nothing may be skipped in CI" in said
    assert "no oracle here" in said


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, MARKED + CALLED, ci=False)
    assert code == 0
    assert "1 passed, 2 skipped" in said


def test_an_expected_failure_is_not_a_skip(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, EXPECTED_FAILURE, ci=True)
    assert code == 0
    assert "1 passed, 1 xfailed" in said


@pytest.mark.parametrize("ci", [True, False])
def test_hypothesis_repeats_itself_in_ci_only(tmp_path: Path, ci: bool) -> None:  # noqa: FBT001 -- a parameter of the table above
    code, said = outcome(tmp_path, PROFILE.format(derandomized=ci), ci=ci)
    assert code == 0, said
