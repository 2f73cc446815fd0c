"""The pages of docs/clients: their files are used as they are, by the real clients where these can be run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.approving import Approver
from tests.gateway import Gateway, running
from tests.oracles.opencode import find_opencode, opencode_environ
from toolrelay.backends.codex.binary import find_binary

PAGES = Path(__file__).parent.parent / "docs" / "clients"
NODE = Path(sys.executable).parent / "node"
NODE_MODULES = Path(__file__).parent / "node" / "node_modules"
ADDRESS = "http://127.0.0.1:8787"
QUESTION = "What is the weather in Paris?"
ANSWER = "get_weather says: 18 degrees in Paris\n"


def files(page: str) -> dict[str, str]:
    """Return the files that a page has, by name."""
    return dict(re.findall(r"```\w+ file=(\S+)\n(.+?)```", (PAGES / page).read_text("utf-8"), re.DOTALL))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of the index, which the other pages use."""
    folder = tmp_path_factory.mktemp("clients")
    found = files("README.md")
    (folder / "my_tools.py").write_text(found["my_tools.py"])
    with running(found["toolrelay.toml"], folder=folder) as started:
        yield started


def run_approved(gateway: Gateway, *command: str | Path, **environ: str) -> str:
    """Run a client, allow the tool that its model wants to use, and return what it printed."""
    given = {**os.environ, **environ}
    with ThreadPoolExecutor(1) as threads:
        running_client = threads.submit(
            subprocess.run, command, capture_output=True, text=True, timeout=100, check=False, env=given, stdin=subprocess.DEVNULL
        )
        question = Approver(gateway).allow("get_weather")
        done = running_client.result()
    assert done.returncode == 0, done.stderr
    assert question["arguments"] == {"city": "Paris"}
    return str(done.stdout)


def write_program(folder: Path, gateway: Gateway, page: str, name: str) -> Path:
    program = files(page)[name]
    assert ADDRESS in program
    (folder / name).write_text(program.replace(ADDRESS, gateway.url))
    if name.endswith(".mjs"):
        (folder / "node_modules").symlink_to(NODE_MODULES.resolve())
    return folder / name


@pytest.mark.parametrize(
    ("page", "name", "program"),
    [
        ("openai-sdks.md", "chat.py", sys.executable),
        ("openai-sdks.md", "chat.mjs", NODE),
        ("anthropic.md", "messages.py", sys.executable),
        ("ai-sdk.md", "chat.mjs", NODE),
        ("python-agents.md", "agent.py", sys.executable),
    ],
)
def test_program_of_the_page_prints_the_answer_after_a_yes(
    gateway: Gateway, tmp_path: Path, page: str, name: str, program: str | Path
) -> None:
    assert run_approved(gateway, program, write_program(tmp_path, gateway, page, name)) == ANSWER
    assert f"```text\n{ANSWER}```" in (PAGES / page).read_text("utf-8")


def codex_home(folder: Path, gateway: Gateway, **changes: str) -> dict[str, str]:
    config = files("codex-cli.md")["config.toml"]
    assert ADDRESS in config
    for old, new in {ADDRESS: gateway.url, **changes}.items():
        config = config.replace(old, new)
    (folder / "config.toml").write_text(config)
    return {"CODEX_HOME": str(folder), "HOME": str(folder)}


def test_codex_cli_with_the_file_of_the_page_answers_after_a_yes(gateway: Gateway, tmp_path: Path) -> None:
    command = (find_binary(), "exec", "--skip-git-repo-check", "--cd", tmp_path, QUESTION)
    assert run_approved(gateway, *command, **codex_home(tmp_path, gateway)) == ANSWER


def test_codex_cli_with_the_file_of_the_page_uses_a_model_over_chat_completions(gateway: Gateway, tmp_path: Path) -> None:
    relay = f'[models.demo]\nprovider = "compatible"\nwire = "chat"\nbase_url = "{gateway.v1}"\nmodel = "plain"\n'
    with running(relay) as front:
        command = [find_binary(), "exec", "--skip-git-repo-check", "--cd", str(tmp_path), "say hello"]
        environ = {**os.environ, **codex_home(tmp_path, front)}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=100, check=False, env=environ, stdin=subprocess.DEVNULL
        )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_opencode_file_names_an_address_and_models_that_the_gateway_has(gateway: Gateway) -> None:
    config = json.loads(files("opencode.md")["opencode.json"])
    provider = config["provider"]["toolrelay"]
    base_url = provider["options"]["baseURL"].replace(ADDRESS, gateway.url)
    headers = {"authorization": f"Bearer {provider['options']['apiKey']}"}
    listed = {model["id"] for model in httpx.get(f"{base_url}/models", headers=headers).json()["data"]}
    assert set(provider["models"]) == listed
    assert {config["model"], config["small_model"]} <= {f"toolrelay/{name}" for name in listed}


def test_opencode_with_the_file_of_the_page_answers_after_a_yes(gateway: Gateway, tmp_path: Path) -> None:
    config = json.loads(files("opencode.md")["opencode.json"].replace(ADDRESS, gateway.url))
    command = (find_opencode(), "run", "--dir", tmp_path, "weather in Paris")
    assert run_approved(gateway, *command, **opencode_environ(tmp_path, config)) == ANSWER


def test_open_webui_reaches_the_gateway_of_its_page_by_the_name_of_the_host(tmp_path: Path) -> None:
    keys = {"open-webui": "sk-web", "me": "sk-me"}
    config = files("open-webui.md")["toolrelay.toml"]
    for key in keys.values():
        config = config.replace('sha256 = "…"', f'sha256 = "{sha256(key.encode()).hexdigest()}"', 1)
    assert "…" not in config
    index = files("README.md")
    (tmp_path / "my_tools.py").write_text(index["my_tools.py"])
    container = {"host": "host.docker.internal:8787", "authorization": "Bearer sk-web"}
    with running(config + index["toolrelay.toml"], folder=tmp_path, flags=("--host", "127.0.0.1")) as keyed:
        models = keyed.get("/v1/models", **container)
        assert [model["id"] for model in models.json()["data"]] == ["demo", "plain"]
        body = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(keyed.post, "/v1/chat/completions", body, **container)
            assert Approver(keyed, "sk-me").allow("get_weather")["key"] == "open-webui"
            assert "18" in asked.result().text
        assert keyed.get("/approvals", **container).status_code == 403


def test_without_keys_the_name_of_the_host_in_a_container_is_refused(gateway: Gateway) -> None:
    refused = gateway.get("/v1/models", host="host.docker.internal:8787")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_host")
