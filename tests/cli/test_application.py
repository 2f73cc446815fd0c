"""The command line as a whole: help, version, completion, interruption."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from tests.cli.commands import PROGRAM, Run
from toolrelay import __version__


def test_version_option_prints_the_version(run: Run) -> None:
    assert run("--version") == (0, f"toolrelay {__version__}\n", "")


KEYS = [("keys", name) for name in ("create", "list", "rotate", "revoke", "new", "hash")]
COMMANDS = [
    ("init",),
    ("serve",),
    ("chat",),
    ("console",),
    ("check",),
    ("probe",),
    ("tools",),
    ("replay",),
    ("approvals",),
]
CODEX = [("codex", name) for name in ("login", "logout", "status")]
APPROVALS = [("approvals", name) for name in ("list", "show", "allow", "edit", "deny", "watch", "rules", "forget")]


@pytest.mark.parametrize("command", [(), *COMMANDS, *KEYS, *CODEX, *APPROVALS])
def test_help_lists_examples_one_per_line(run: Run, command: tuple[str, ...]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    examples = out.partition("\n  Examples:\n")[2].splitlines()
    assert examples
    assert all(re.match(r"    (\w+=\w+ )*toolrelay ", line) for line in examples)


def test_unknown_command_exits_with_2_without_traceback(run: Run) -> None:
    code, out, err = run("sevre")
    assert (code, out) == (2, "")
    assert "No such command 'sevre'" in err


def test_shell_completion_completes_commands() -> None:
    environ = {**os.environ, "_TOOLRELAY_COMPLETE": "complete_bash", "COMP_WORDS": "toolrelay se", "COMP_CWORD": "1"}
    done = subprocess.run(PROGRAM, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["serve"]


def test_importing_the_cli_does_not_import_modules_of_commands() -> None:
    heavy = {"rich", "uvicorn", "structlog", "msgspec", "asyncio", "toolrelay.app", "toolrelay.config"}
    script = f"import sys, toolrelay.cli; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_ctrl_c_exits_with_130_without_traceback() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "keys", "hash"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        output = b""
        while b"Key: " not in output:
            output += os.read(ours, 1024)
        process.send_signal(signal.SIGINT)
        output += read_to_end(ours)
        code = process.wait()
    os.close(ours)
    assert code == 130
    assert output.split() == [b"Key:"]


def read_to_end(terminal: int) -> bytes:
    output = b""
    while True:
        try:
            data = os.read(terminal, 1024)
        except OSError:  # EIO: the other end of the terminal is closed
            return output
        if not data:
            return output
        output += data
