"""The openai package in Node as a client of both APIs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.gateway import Gateway

NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent.parent / "node" / "openai.mjs"
CALLS = [["get_weather", {"city": "Paris"}], ["get_time", {"city": "Paris"}]]


def test_the_openai_package_in_node_plays_its_loops_over_both_apis(relay: Gateway, model: str) -> None:
    run = subprocess.run([NODE, SCRIPT, relay.v1, model], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    for story in ("chatWhole", "chatRunner", "responsesWhole", "responsesStream"):
        assert seen[story]["calls"] == CALLS, story
    for story in ("chatWhole", "chatRunner", "responsesWhole"):
        assert "18 degrees" in seen[story]["text"], story
        assert "noon" in seen[story]["text"], story
    assert seen["chatWhole"]["finishes"] == ["tool_calls", "stop"]
    assert seen["chatRunner"]["streamed"]
    assert seen["responsesWhole"]["statuses"] == ["completed", "completed"]
    assert seen["responsesStream"]["gapless"]
    assert (seen["responsesStream"]["first"], seen["responsesStream"]["last"]) == ("response.created", "response.completed")
    assert seen["failure"] == {"kind": "NotFoundError", "status": 404, "code": "model_not_found"}
