"""`toolrelay serve` with a wrong configuration. tests/test_app.py has the running server."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.commands import PROGRAM, Run, configure


@pytest.mark.parametrize("arguments", [("serve",), ("serve", "--port", "0", "--data-dir", "data")])
def test_wrong_configuration_prints_all_problems_and_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    configure("[server]\nport = 65536\nhots = 1\n")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "toolrelay: the configuration is wrong:",
        "  toolrelay.toml: server.port: expected a whole number from 0 to 65535 (0: any free port), found 65536",
        "  toolrelay.toml: server.hots: unknown key; did you mean host?",
    ]


def test_missing_file_is_reported_without_traceback() -> None:
    done = subprocess.run([*PROGRAM, "serve", "--config", "none.toml"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("toolrelay: the configuration is wrong:\n  none.toml: no such file (named by --config).")


def test_host_beyond_loopback_without_keys_is_refused(run: Run) -> None:
    code, out, err = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, out) == (2, "")
    assert "needs at least one [[keys]] entry" in err
