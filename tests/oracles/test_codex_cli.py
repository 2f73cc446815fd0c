"""The real Codex CLI as a client, with its default settings: its own tools, and those of an MCP server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway import Gateway
from tests.model_server import ModelServer, delta, end
from tests.oracles.tool_loop import MODELS, answer_with_call, loop_gateway
from tests.upstream import stream
from toolrelay.backends.codex.binary import find_binary

MCP_SERVER = """
import json, sys
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "w", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "get_weather", "description": "The weather of a city.", "inputSchema": SCHEMA}]}
        case "tools/call":
            city = message["params"]["arguments"]["city"]
            result = {"content": [{"type": "text", "text": f"18 degrees in {city}"}]}
        case _:
            result = {}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
FLAT = "mcp__weather__get_weather"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    with loop_gateway(server) as started:
        yield started


def codex(folder: Path, gateway: Gateway, model: str, prompt: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run Codex with nothing but the provider in its configuration, and an MCP server."""
    (folder / "server.py").write_text(MCP_SERVER)
    (folder / "config.toml").write_text(
        f'model = "{model}"\nmodel_provider = "toolrelay"\n'
        f'[model_providers.toolrelay]\nname = "Toolrelay"\nbase_url = "{gateway.v1}"\nwire_api = "responses"\n'
        f'[mcp_servers.weather]\ncommand = "{sys.executable}"\nargs = ["{folder / "server.py"}"]\n'
    )
    return subprocess.run(
        [find_binary(), "exec", "--skip-git-repo-check", "--cd", str(folder), *more, prompt],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "CODEX_HOME": str(folder), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("model", MODELS)
def test_codex_with_default_settings_runs_a_tool_of_its_mcp_server(  # D2
    server: ModelServer, gateway: Gateway, tmp_path: Path, model: str
) -> None:
    first = server.enqueue(answer_with_call(model, FLAT, {"city": "Paris"}), stream(delta("It is 18 degrees.") + end()))
    done = codex(tmp_path, gateway, model, "Weather?", "--dangerously-bypass-approvals-and-sandbox")
    assert (done.returncode, done.stdout) == (0, "It is 18 degrees.\n"), done.stderr
    offered, continued = server.request_body(first), server.request_body(first + 1)
    if model == "native":
        names = [tool["function"]["name"] for tool in offered["tools"]]
        assert {FLAT, "multi_agent_v1__spawn_agent", "exec_command"} <= set(names)
        assert continued["messages"][-2]["tool_calls"][0]["function"]["name"] == FLAT
    else:
        assert "tools" not in offered
        assert FLAT in str(offered["messages"])
    assert "18 degrees in Paris" in str(continued["messages"][-1])
    dropped = [line for line in gateway.log().splitlines() if '"tool_dropped"' in line and f'"model":"{model}"' in line]
    assert len(dropped) == 1
    assert '"tool":"web_search"' in dropped[0]


@pytest.mark.parametrize("model", MODELS)
def test_codex_with_default_settings_runs_a_command(server: ModelServer, gateway: Gateway, tmp_path: Path, model: str) -> None:
    command = {"cmd": "echo from the shell"}
    first = server.enqueue(answer_with_call(model, "exec_command", command), stream(delta("Done.") + end()))
    done = codex(tmp_path, gateway, model, "Run it.", "--dangerously-bypass-approvals-and-sandbox")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert "from the shell" in str(server.request_body(first + 1)["messages"][-1])
