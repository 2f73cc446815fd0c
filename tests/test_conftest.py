"""Rules of conftest.py, on a suite written for this test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")

MODULES = {
    "test_marked.py": """
import pytest

@pytest.mark.skip(reason="no oracle: marked")
def test_marked(): ...
""",
    "test_called.py": """
import pytest

def test_called():
    pytest.skip("no oracle: called")
""",
    "test_fixture.py": """
import pytest

@pytest.fixture
def oracle():
    pytest.skip("no oracle: fixture")

def test_fixture(oracle): ...
""",
    "test_module.py": """
import pytest

pytest.skip("no oracle: module", allow_module_level=True)
""",
    "test_expected.py": """
import pytest

@pytest.mark.xfail(strict=True)
def test_known_to_fail():
    raise AssertionError
""",
    "test_profile.py": """
import os
from hypothesis import settings

def test_examples_are_repeated_in_ci_only():
    assert settings.default.derandomize == ("CI" in os.environ)

def test_examples_are_not_timed():
    assert settings.default.deadline is None
""",
}


def run_suite(directory: Path, **variables: str) -> tuple[int, str]:
    for name, source in MODULES.items():
        (directory / name).write_text(source)
    (directory / "conftest.py").write_bytes(CONFTEST.read_bytes())
    inherited = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:langsmith_plugin",
            "-n",
            "0",
            "--continue-on-collection-errors",
            "--rootdir",
            ".",
        ],
        cwd=directory,
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_skipped_tests_fail_in_ci_with_their_reason(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, CI="true")
    assert code != 0
    assert "1 failed, 2 passed, 1 xfailed, 3 errors" in output
    for kind in ("marked", "called", "fixture", "module"):
        assert f"nothing may be skipped in CI: Skipped: no oracle: {kind}" in output


def test_skipped_tests_pass_outside_ci(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path)
    assert code == 0
    assert "2 passed, 4 skipped, 1 xfailed" in output
