"""Anthropic's SDK in Node as a client, with its stream helper and its tool runner, over three wires and printed calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import Gateway

NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent.parent / "node" / "anthropic.mjs"
MODELS = ["chat", "responses", "anthropic", "hermes", "sealed"]
CALLS = [["get_weather", {"city": "Paris"}], ["get_time", {"city": "Paris"}]]


@pytest.fixture(scope="module")
def seen(relay: Gateway) -> Any:
    """What the SDK saw: one process plays with all models."""
    command: list[str | Path] = [NODE, SCRIPT, relay.url, json.dumps(MODELS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("model", MODELS)
def test_tool_loop_works_whole_and_streamed(seen: Any, model: str) -> None:
    whole, streamed = seen["models"][model]["whole"], seen["models"][model]["streamed"]
    for loop in (whole, streamed):
        assert loop["calls"] == CALLS
        assert loop["ids"] == 2
        assert loop["stops"] == ["tool_use", "end_turn"]
        assert "18 degrees" in loop["text"]
        assert "noon" in loop["text"]
    assert whole["counted"]
    assert whole["request"]
    assert streamed["blocks"] == ["tool_use", "tool_use"]
    assert streamed["ends"] == ["message_start", "message_stop"]
    assert streamed["inputs"]
    assert streamed["deltas"]


@pytest.mark.parametrize("model", MODELS)
def test_tool_runner_calls_the_functions_and_ends_with_text(seen: Any, model: str) -> None:
    for story in ("runner", "streamedRunner"):
        run = seen["models"][model][story]
        assert run["ran"] == [["get_time", "Paris"], ["get_weather", "Paris"]]
        assert run["stop"] == "end_turn"
        assert "18 degrees" in run["text"]
        assert "noon" in run["text"]


@pytest.mark.parametrize("model", MODELS)
def test_tool_choice_is_obeyed_and_streams_can_be_left(seen: Any, model: str) -> None:
    assert seen["models"][model]["chosen"] == {"any": ["get_weather"], "tool": ["get_time"], "none": []}
    assert seen["models"][model]["aborted"]


def test_unknown_model_is_not_found(seen: Any) -> None:
    assert seen["failure"] == {"kind": "NotFoundError", "status": 404, "type": "not_found_error"}
