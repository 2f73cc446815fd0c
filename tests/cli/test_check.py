"""`toolrelay check`."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.commands import HASH, Run, configure
from tests.model_server import ModelServer
from tests.upstream import Gate, reply
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


def test_without_a_file_the_demo_model_is_listed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # nothing was pulled there
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "configuration: no file, the defaults"
    assert out.splitlines()[-1].split() == ["demo", "demo", "demo", "-", "-", "-", "built", "in"]


def listing(*names: str) -> bytes:
    """A server's list of models."""
    return reply(json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in names]}).encode())


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


def test_unreachable_server_is_reported_and_keys_are_not_shown(
    run: Run, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAST_KEY", "sk-secret")
    server.enqueue(listing("other", "gpt-6-mini"))
    up, down = server.port, closed_port()
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
    asked = server.request(0).result(30)
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("GET", "/v1/models", "Bearer sk-secret")


def configure_model(url: str, more: str = "") -> None:
    configure(f'[models.a]\nprovider = "vllm"\nbase_url = "{url}"\n{more}\n')


@pytest.mark.parametrize(
    "answer",
    [
        listing("a"),
        listing("a:latest"),
        reply(b'{"models": [{"name": "a"}]}'),
        reply(b'[{"id": "a"}]'),
    ],
)
def test_server_that_lists_the_model_exits_with_0(run: Run, server: ModelServer, answer: bytes) -> None:
    server.enqueue(answer)
    configure_model(f"{server.url}/v1")
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.endswith("  answers\n")


@pytest.mark.parametrize("path", ["", "/v1"])
def test_server_with_ollamas_own_api_is_asked_below_v1(run: Run, server: ModelServer, path: str) -> None:
    asked = server.enqueue(reply(b'{"data": [{"id": "a:latest"}]}'))
    configure(f'[models.a]\nprovider = "ollama"\nbase_url = "{server.url}{path}"\ncontext_length = 8192\n')
    code, out, err = run("check")
    assert (code, err, server.request(asked).result(30).path) == (0, "", "/v1/models")
    assert "  ollama  " in out


def test_server_with_anthropics_api_is_asked_for_all_its_models(run: Run, server: ModelServer) -> None:
    asked = server.enqueue(reply(b'{"data": [{"type": "model", "id": "a"}], "has_more": false}'))
    configure(f'[models.a]\nprovider = "anthropic"\nbase_url = "{server.url}/v1"\napi_key = "sk-secret"\n')
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.endswith("  answers\n")
    request = server.request(asked).result(30)
    assert (request.path, request.headers["x-api-key"]) == ("/v1/models?limit=1000", "sk-secret")
    assert request.headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["qwen3:8b", "qwen3-coder"], "; did you mean qwen3:8b?"),
        (["llama"], "; it has llama"),
        ([], "; its list is empty"),
        ([f"{number}" for number in range(20)], "; it has 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"),
    ],
)
def test_model_that_the_server_does_not_list_is_noted(run: Run, server: ModelServer, names: list[str], hint: str) -> None:  # D5
    server.enqueue(listing(*names))
    configure_model(f"{server.url}/v1", 'model = "qwen3:8"')
    code, out, err = run("check")
    assert code == 0
    assert out.endswith("  answers, does not list the model\n")
    assert err == f"note: models.a.model: the server does not list qwen3:8{hint}\n"


@pytest.mark.parametrize("endpoint", ["chat/completions", "responses", "chat/completions/"])
def test_endpoint_in_base_url_is_a_problem(run: Run, server: ModelServer, endpoint: str) -> None:  # D5
    server.enqueue(reply(b"no", 404), reply(b"no", 404))
    configure_model(f"{server.url}/v1/{endpoint}")
    code, out, _ = run("check")
    assert code == 2
    assert out.endswith(f"  NO: models.a.base_url ends with an endpoint; write {server.url}/v1\n")


def test_base_url_without_v1_is_a_problem(run: Run, server: ModelServer) -> None:  # D5
    server.enqueue(reply(b"no", 404), listing("a"))
    configure_model(server.url)
    code, out, _ = run("check")
    assert code == 2
    assert out.endswith(f"  NO: models.a.base_url lacks /v1; write {server.url}/v1\n")


@pytest.mark.parametrize(("key", "problem"), [("sk-x", "refuses the key"), ("", "wants a key; set models.a.api_key")])
def test_key_that_is_wrong_or_missing_is_a_problem(run: Run, server: ModelServer, key: str, problem: str) -> None:
    server.enqueue(reply(b"{}", 401))
    configure_model(f"{server.url}/v1", f'api_key = "{key}"')
    code, out, _ = run("check")
    assert code == 2
    assert out.endswith(f"  NO: {problem} (status 401)\n")


@pytest.mark.parametrize("answer", [reply(b"no", 404), reply(b"<html>"), reply(b'{"data": 1}'), reply(b"[" * 5000)])
def test_server_without_a_list_answers(run: Run, server: ModelServer, answer: bytes) -> None:
    server.enqueue(answer)
    configure_model(f"{server.url}/v1")
    code, out, _ = run("check")
    assert code == 0
    assert re.search(r"  answers, without a list of models \(status (404|200)\)\n\Z", out)


def test_server_that_never_answers_is_a_problem(run: Run, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CONNECT_SECONDS", 0.2)
    server.enqueue((Gate(),))
    configure_model(f"{server.url}/v1")
    code, out, _ = run("check")
    assert code == 2
    assert out.endswith("  NO: no answer within 0.2 s\n")


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
        [models.small]
        provider = "local"
        model = "smollm2"
        [models.demo]
        provider = "demo"
    """)
    code, out, err = run("check", "--offline")
    rows = [re.split(r" {2,}", line) for line in out.splitlines()[-4:]]
    assert (code, err) == (0, "")
    assert rows == [
        ["mine", "codex", "mine", "-", "http://127.0.0.1:9/v1", "yes", "not tried"],
        ["fast", "openai", "fast", "chat", "https://api.openai.com/v1", "no", "not tried"],
        ["small", "local", "smollm2", "-", "-", "-", "not tried"],
        ["demo", "demo", "demo", "-", "-", "-", "built in"],
    ]


GEMINI_LIST = reply(b'{"models": [{"name": "models/a", "displayName": "A"}], "nextPageToken": ""}')


def test_server_with_geminis_api_is_asked_for_all_its_models(run: Run, server: ModelServer) -> None:
    asked = server.enqueue(GEMINI_LIST)
    configure(f'[models.a]\nprovider = "gemini"\nbase_url = "{server.url}/v1beta"\napi_key = "sk-secret"\napi_version = "2"\n')
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert out.endswith("  answers\n")
    request = server.request(asked).result(30)
    assert (request.path, request.headers["x-goog-api-key"]) == ("/v1beta/models?pageSize=1000&api-version=2", "sk-secret")


def test_gemini_without_its_version_gets_a_hint(run: Run, server: ModelServer) -> None:
    server.enqueue(reply(b"{}", 404), GEMINI_LIST)
    configure(f'[models.a]\nprovider = "gemini"\nbase_url = "{server.url}"\n')
    code, out, _ = run("check")
    assert code == 2
    assert f"models.a.base_url lacks /v1beta; write {server.url}/v1beta" in out


def test_key_that_gemini_refuses_with_400_is_reported(run: Run, server: ModelServer) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    error = {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": details}
    server.enqueue(reply(json.dumps({"error": error}).encode(), 400))
    configure(f'[models.a]\nprovider = "gemini"\nbase_url = "{server.url}/v1beta"\napi_key = "sk-secret"\n')
    code, out, _ = run("check")
    assert code == 2
    assert "refuses the key (status 400)" in out
