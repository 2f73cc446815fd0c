"""Responses over a WebSocket with the vendors' own clients: OpenAI's SDKs in Python and Node, and the Codex CLI."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketAccumulator,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
    ResponsesWebSocketSession,
)
from openai.types.responses import Response, ResponseFunctionToolCall

from tests.gateway import Gateway
from tests.model_server import ModelServer, delta, end
from tests.oracles.tool_loop import answer_with_call, loop_gateway
from tests.oracles.tools import BOTH, RESPONSES_TOOLS
from tests.upstream import stream
from toolrelay.backends.codex.binary import find_binary

NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent.parent / "node" / "websocket.mjs"
LIMITS = ResponsesWebSocketLimits(
    max_lanes=8, max_events=10_000, max_bytes=10_000_000, max_events_per_lane=10_000, max_bytes_per_lane=10_000_000
)


def make_client(gateway: Gateway) -> OpenAI:
    return OpenAI(base_url=gateway.v1, api_key="none", max_retries=0)


@pytest.mark.parametrize("model", ["chat", "responses", "anthropic"])
def test_tool_loop_over_one_connection(relay: Gateway, model: str) -> None:
    with make_client(relay).responses.connect(max_retries=0) as connection:
        accumulator = ResponsesWebSocketAccumulator()

        def ask(**members: Any) -> Response:
            accumulator.reset()
            connection.response.create(model=model, tools=RESPONSES_TOOLS, store=False, **members)
            for event in connection:
                accumulator.add_event(event)
                if event.type == "response.completed":
                    break
                assert event.type != "error", event
            return accumulator.get_final_response()

        first = ask(input=BOTH)
        calls = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
        assert [call.name for call in calls] == ["get_weather", "get_time"]
        assert accumulator.snapshot().output[0].arguments == calls[0].arguments
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": output}
            for call, output in zip(calls, ("18 degrees", "noon"), strict=True)
        ]
        second = ask(input=results, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert "18 degrees" in second.output_text
    assert "noon" in second.output_text


def test_lanes_of_a_session_end_with_their_own_responses(relay: Gateway) -> None:
    async def main() -> None:
        async with (
            AsyncOpenAI(base_url=relay.v1, api_key="none", max_retries=0) as client,
            client.responses.connect(max_retries=0) as connection,
            AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
        ):
            lanes = [session.lane("a"), session.lane("b.1"), session.default]
            for number, lane in enumerate(lanes):
                await lane.send({"type": "response.create", "model": "chat", "input": f"count to {number + 2}"})
            finals = await asyncio.gather(*[lane.get_final_response() for lane in lanes])
        assert [final.output_text for final in finals] == ["1 2", "1 2 3", "1 2 3 4"]

    asyncio.run(main())


def test_errors_are_raised_by_the_session_and_the_lane_goes_on(relay: Gateway) -> None:
    with (
        make_client(relay).responses.connect(max_retries=0) as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        lane = session.default
        lane.send({"type": "response.create", "model": "chat", "input": "hi", "previous_response_id": "resp_unknown"})
        with pytest.raises(ResponsesWebSocketError) as failed:
            lane.get_final_response(timeout=60)
        assert failed.value.event.type == "error"
        assert failed.value.event.error.code == "previous_response_not_found"
        lane.send({"type": "response.create", "model": "chat", "input": "count to 3"})
        assert lane.get_final_response(timeout=60).output_text == "1 2 3"


def test_node_sdk_takes_many_turns(relay: Gateway) -> None:
    run = subprocess.run([NODE, SCRIPT, relay.v1, "responses"], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert [seen[name]["text"] for name in ("first", "second", "third")] == ["1 2 3", "1 2 3 4", "1 2"]
    assert (seen["first"]["types"][0], seen["first"]["types"][-1]) == ("response.created", "response.completed")
    assert seen["failed"]["error"] == "previous_response_not_found"
    assert seen["previous"]


# Codex CLI


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    with loop_gateway(server) as started:
        yield started


def test_codex_runs_a_command_over_a_websocket(server: ModelServer, gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'model = "native"\nmodel_provider = "toolrelay"\n[model_providers.toolrelay]\nname = "Toolrelay"\n'
        f'base_url = "{gateway.v1}"\nwire_api = "responses"\nsupports_websockets = true\n'
    )
    command = {"cmd": "echo from the shell"}
    first = server.enqueue(answer_with_call("native", "exec_command", command), stream(delta("Done.") + end()))
    done = subprocess.run(
        [
            find_binary(),
            "exec",
            "--skip-git-repo-check",
            "--cd",
            tmp_path,
            "--dangerously-bypass-approvals-and-sandbox",
            "Run it.",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "CODEX_HOME": str(tmp_path), "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    roles = [message["role"] for message in server.request_body(first + 1)["messages"]]
    assert roles[-3:] == ["user", "assistant", "tool"]
    [socket] = [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "websocket"]
    assert socket["responses"] == 3  # Codex prepares the first one
