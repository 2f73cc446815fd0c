"""Claude Code as a client: headless, in a home of its own, with a scripted model that calls one of its tools.

The npm package of its binary for Linux (366 MB) is enough. There is no other platform in the lock file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway import Gateway, running
from tests.model_server import ModelServer
from tests.scripted_models import MODELS, ScriptedModel
from tests.upstream import Player, ReceivedRequest, Script
from toolrelay.core.messages import Result
from toolrelay.core.request import Request

CLAUDE = Path(__file__).parent.parent / "node" / "node_modules" / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
pytestmark = pytest.mark.skipif(not CLAUDE.exists(), reason="Claude Code is not installed")

NOTE = "The bees are asleep."
NAMES = ("chat", "responses", "anthropic", "hermes_chat")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    tables = [MODELS[name].table(server.url).replace('toolsets = ["mine", "odd"]\n', "") for name in NAMES]
    with running("".join(tables)) as running_gateway:
        yield running_gateway


def is_answered(model: ScriptedModel, request: Request) -> bool:
    if model.dialect:
        return NOTE in str(request.items)
    return any(isinstance(item, Result) for item in request.items)


def player(model: ScriptedModel, note: Path, results: list[str]) -> Player:
    """Let the model read the note, and end when it has."""

    def play(received: ReceivedRequest) -> Script:
        request = model.wire.decode_request(received.body)
        if is_answered(model, request):
            results.append(str(request.items))
            return (model.answer("It says that bees sleep."),)
        return (model.answer("I look.", [("Read", json.dumps({"file_path": str(note)}))]),)

    return play


@pytest.mark.parametrize("name", NAMES)
def test_claude_code_runs_its_tool_and_prints_the_answer(
    gateway: Gateway, server: ModelServer, name: str, tmp_path: Path
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    note = work / "note.md"
    note.write_text(NOTE)
    results: list[str] = []
    server.enqueue(*[player(MODELS[name], note, results)] * 6)
    environ = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "ANTHROPIC_BASE_URL": gateway.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [str(CLAUDE), "-p", "What does note.md say?", "--model", name]
    done = subprocess.run(  # no shell
        command, cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "It says that bees sleep."
    assert NOTE in results[0]
