"""`toolrelay check`."""

from __future__ import annotations

import re
import socket
from contextlib import closing

import pytest

from tests.cli.commands import HASH, Run, configure
from toolrelay.cli import check


def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def test_wrong_configuration_exits_with_1(run: Run) -> None:
    configure("[servre]\n")
    code, out, err = run("check")
    assert (code, out) == (1, "")
    assert "  toolrelay.toml: servre: unknown key; did you mean server?\n" in err


def test_host_beyond_loopback_without_keys_is_refused(run: Run) -> None:
    configure('[server]\nhost = "0.0.0.0"\n')
    code, _, err = run("check", "--offline")
    assert code == 1
    assert "`toolrelay keys new NAME`" in err


@pytest.mark.parametrize("command", [("check", "--offline"), ("serve", "--port", "0")])
def test_backend_that_cannot_be_opened_is_refused_by_check_and_serve(run: Run, command: tuple[str, ...]) -> None:
    models = "".join(f'[models.{name}]\nprovider = "compatible"\nbase_url = "http://b..cher.example/v1"\n' for name in "ab")
    configure(models)
    code, out, err = run(*command)
    assert (code, out) == (1 if command[0] == "check" else 2, "")
    assert [line.partition(" is not a valid URL")[0] for line in err.splitlines()[1:]] == [
        "  toolrelay.toml: models.a.base_url",
        "  toolrelay.toml: models.b.base_url",
    ]


def test_without_a_file_the_demo_model_is_listed(run: Run) -> None:
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "configuration: no file, the defaults"
    assert out.splitlines()[-1].split() == ["demo", "demo", "demo", "-", "-", "-", "built", "in"]


def test_unreachable_server_is_reported_and_keys_are_not_shown(
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


def test_reachable_servers_exit_with_0(run: Run, listener: socket.socket) -> None:
    configure(f'[models.a]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:{listener.getsockname()[1]}"\n')
    code, out, _ = run("check")
    assert code == 0
    assert out.endswith("  answers\n")


def test_connection_timeout_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CONNECT_SECONDS", 0.2)
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # Linux does not answer further connections once the backlog is full.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        configure(f'[models.a]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:{full.getsockname()[1]}"\n')
        code, out, _ = run("check")
        for each in waiting:
            each.close()
    assert code == 2
    assert out.endswith("  NO: no answer within 0.2 s\n")


def test_offline_opens_no_connection(run: Run, listener: socket.socket) -> None:
    configure(f'[models.a]\nprovider = "vllm"\nbase_url = "http://127.0.0.1:{listener.getsockname()[1]}"\n')
    code, out, _ = run("check", "--offline")
    assert code == 0
    assert out.endswith("  not tried\n")
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_key_for_an_unknown_model_is_noted(run: Run) -> None:
    configure(f'[[keys]]\nname = "me"\nsha256 = "{HASH}"\nmodels = ["dmeo", "de*"]\n')
    code, _, err = run("check")
    assert (code, err) == (0, "note: keys.me.models: no model here is called dmeo; did you mean demo?\n")


def test_offline_lists_the_settings_of_every_backend(run: Run) -> None:
    configure("""
        [models.mine]
        provider = "codex"
        api_key = "sk-secret"
        base_url = "http://127.0.0.1:9/v1"
        [models.fast]
        provider = "openai"
        [models.demo]
        provider = "demo"
    """)
    code, out, err = run("check", "--offline")
    rows = [re.split(r" {2,}", line) for line in out.splitlines()[-3:]]
    assert (code, err) == (0, "")
    assert rows == [
        ["mine", "codex", "mine", "-", "http://127.0.0.1:9/v1", "yes", "not tried"],
        ["fast", "openai", "fast", "chat", "https://api.openai.com/v1", "no", "not tried"],
        ["demo", "demo", "demo", "-", "-", "-", "built in"],
    ]
