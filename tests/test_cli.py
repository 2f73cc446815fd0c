"""The command line, but for the running server."""

from __future__ import annotations

import hashlib
import io
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from toolrelay import __version__, cli
from toolrelay.config import load

HASH = "4f8e0b7c3a1d5e2f6b9c8d7a0e1f2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c"
PROGRAM = [sys.executable, "-m", "toolrelay.cli"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("TOOLRELAY_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str, given: str = "") -> Result:
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        return Result(int(caught.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def configure(text: str) -> None:
    Path("toolrelay.toml").write_text(text, encoding="utf-8")


def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


# PromptPlan


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"toolrelay {__version__}\n", "")


@pytest.mark.parametrize("command", [(), ("serve",), ("check",), ("keys", "new"), ("keys", "hash")])
def test_help_shows_examples_line_by_line(run: Run, command: tuple[str, ...]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    examples = out.partition("\n  Examples:\n")[2].splitlines()
    assert examples
    assert all(re.match(r"    (\w+=\w+ )*toolrelay ", line) for line in examples)


def test_an_unknown_command_is_a_misuse_without_a_traceback(run: Run) -> None:
    code, out, err = run("sevre")
    assert (code, out) == (2, "")
    assert "No such command 'sevre'" in err


def test_the_shell_can_complete_commands() -> None:
    environ = {**os.environ, "_TOOLRELAY_COMPLETE": "complete_bash", "COMP_WORDS": "toolrelay s", "COMP_CWORD": "1"}
    done = subprocess.run(PROGRAM, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["serve"]


def test_importing_the_command_line_does_not_import_what_only_commands_need() -> None:
    heavy = {"rich", "uvicorn", "structlog", "msgspec", "asyncio", "toolrelay.app", "toolrelay.config"}
    script = f"import sys, toolrelay.cli; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# A wrong configuration


@pytest.mark.parametrize("arguments", [("serve",), ("serve", "--port", "0", "--data-dir", "data")])
def test_a_wrong_configuration_is_one_block_on_stderr_and_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    configure("[server]\nport = 65536\nhots = 1\n")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "toolrelay: the configuration is wrong:",
        "  toolrelay.toml: server.port: expected a whole number from 0 to 65535 (0: any free port), found 65536",
        "  toolrelay.toml: server.hots: unknown key; did you mean host?",
    ]


def test_a_wrong_configuration_prints_no_traceback_from_the_program_itself() -> None:
    done = subprocess.run([*PROGRAM, "serve", "--config", "none.toml"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("toolrelay: the configuration is wrong:\n  none.toml: no such file (named by --config).")


def test_serving_beyond_loopback_without_a_key_is_refused(run: Run) -> None:
    code, out, err = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, out) == (2, "")
    assert "needs at least one [[keys]] entry" in err


# check


def test_check_of_a_wrong_configuration_exits_with_1(run: Run) -> None:
    configure("[servre]\n")
    code, out, err = run("check")
    assert (code, out) == (1, "")
    assert "  toolrelay.toml: servre: unknown key; did you mean server?\n" in err


def test_check_refuses_a_binding_beyond_loopback_without_keys(run: Run) -> None:
    configure('[server]\nhost = "0.0.0.0"\n')
    code, _, err = run("check", "--offline")
    assert code == 1
    assert "`toolrelay keys new NAME`" in err


@pytest.mark.parametrize("command", [("check", "--offline"), ("serve", "--port", "0")])
def test_whatever_serve_refuses_check_refuses_and_both_name_the_file(run: Run, command: tuple[str, ...]) -> None:
    models = "".join(f'[models.{name}]\nprovider = "compatible"\nbase_url = "http://b..cher.example/v1"\n' for name in "ab")
    configure(models)
    code, out, err = run(*command)
    assert (code, out) == (1 if command[0] == "check" else 2, "")
    assert [line.partition(" is not a valid URL")[0] for line in err.splitlines()[1:]] == [
        "  toolrelay.toml: models.a.base_url",
        "  toolrelay.toml: models.b.base_url",
    ]


def test_check_without_a_file_shows_the_demo_model(run: Run) -> None:
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "configuration: no file, the defaults"
    assert out.splitlines()[-1].split() == ["demo", "demo", "demo", "-", "-", "-", "built", "in"]


def test_check_tells_which_servers_answer_and_never_shows_a_key(
    run: Run, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAST_KEY", "sk-secret")
    up, down = listener.getsockname()[1], closed_port()
    configure(f"""
        [models.fast]
        provider = "compatible"
        model = "gpt-6-mini"
        base_url = "http://127.0.0.1:{up}/v1"
        wire = "responses"
        api_key = "env:FAST_KEY"
        [models.home]
        provider = "ollama"
        base_url = "http://127.0.0.1:{down}/v1"
    """)
    code, out, err = run("check")
    header, fast, home = (re.split(r" {2,}", line) for line in out.splitlines()[-3:])
    assert header == ["MODEL", "PROVIDER", "MODEL THERE", "WIRE", "BASE URL", "KEY", "SERVER"]
    assert fast == ["fast", "compatible", "gpt-6-mini", "responses", f"http://127.0.0.1:{up}/v1", "yes", "answers"]
    assert home == ["home", "ollama", "home", "chat", f"http://127.0.0.1:{down}/v1", "no", "NO: connection refused"]
    assert code == 2
    assert "sk-secret" not in out + err


def test_check_succeeds_when_every_server_answers(run: Run, listener: socket.socket) -> None:
    configure(f'[models.a]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:{listener.getsockname()[1]}"\n')
    code, out, _ = run("check")
    assert code == 0
    assert out.endswith("  answers\n")


def test_check_gives_up_on_a_server_that_does_not_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "REACH_SECONDS", 0.2)
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        # Once its queue is full, Linux leaves further connections without an answer.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(deaf.getsockname())
        configure(f'[models.a]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:{deaf.getsockname()[1]}"\n')
        code, out, _ = run("check")
        for each in waiting:
            each.close()
    assert code == 2
    assert out.endswith("  NO: no answer within 0.2 s\n")


def test_check_offline_connects_to_nothing(run: Run, listener: socket.socket) -> None:
    configure(f'[models.a]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:{listener.getsockname()[1]}"\n')
    code, out, _ = run("check", "--offline")
    assert code == 0
    assert out.endswith("  not tried\n")
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_check_notes_a_key_for_a_model_that_is_not_there(run: Run) -> None:
    configure(f'[[keys]]\nname = "me"\nsha256 = "{HASH}"\nmodels = ["dmeo", "de*"]\n')
    code, _, err = run("check")
    assert (code, err) == (0, "note: keys.me.models: no model here is called dmeo; did you mean demo?\n")


# keys


def test_a_new_key_comes_with_the_block_that_lets_it_in(run: Run) -> None:
    code, out, err = run("keys", "new", 'Zoë\'s "laptop"', "--models", "fast", "--models", "home-*")
    key, _, block = out.partition("\n")
    assert code == 0
    assert re.fullmatch(r"tr-[A-Za-z0-9_-]{40}", key)
    assert key not in block + err
    configure(block)
    (settings,) = load(None, {}).keys
    assert settings.name == 'Zoë\'s "laptop"'
    assert settings.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert settings.models == ("fast", "home-*")


def test_a_new_key_may_use_every_model_unless_it_is_told(run: Run) -> None:
    out = run("keys", "new", "me").out
    assert tomllib.loads(out.partition("\n")[2])["keys"][0]["models"] == ["*"]


def test_no_two_keys_are_the_same(run: Run) -> None:
    assert run("keys", "new", "me").out != run("keys", "new", "me").out


@pytest.mark.parametrize("name", ["", " ", "a\nb", " a"])
def test_a_key_needs_a_name(run: Run, name: str) -> None:
    code, out, err = run("keys", "new", name)
    assert (code, out) == (2, "")
    assert "expected a name" in err


@pytest.mark.parametrize("given", ["tr-key", "tr-key\n", "tr-key\r\n"])
def test_the_hash_of_a_key_does_not_depend_on_the_line_break(run: Run, given: str) -> None:
    assert run("keys", "hash", given=given) == (0, hashlib.sha256(b"tr-key").hexdigest() + "\n", "")


def test_nothing_has_no_hash(run: Run) -> None:
    code, out, err = run("keys", "hash", given="\n")
    assert (code, out) == (2, "")
    assert "expected a key, found nothing" in err


def test_ctrl_c_prints_no_traceback() -> None:
    """At a terminal, while the program waits for a key."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "keys", "hash"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        said = b""
        while b"Key: " not in said:
            said += os.read(ours, 1024)
        process.send_signal(signal.SIGINT)
        said += read_to_end(ours)
        code = process.wait()
    os.close(ours)
    assert code == 130
    assert said.split() == [b"Key:"]


def read_to_end(terminal: int) -> bytes:
    said = b""
    while True:
        try:
            more = os.read(terminal, 1024)
        except OSError:  # how Linux says that the other end of a terminal is gone
            return said
        if not more:
            return said
        said += more
