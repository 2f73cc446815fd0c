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


def test_tool_loops_work_over_both_apis(relay: Gateway, model: str) -> None:
    run = subprocess.run([NODE, SCRIPT, relay.v1, model], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout)
    for loop in ("chatWhole", "chatRunner", "responsesWhole", "responsesStream"):
        assert results[loop]["calls"] == CALLS, loop
    for loop in ("chatWhole", "chatRunner", "responsesWhole"):
        assert "18 degrees" in results[loop]["text"], loop
        assert "noon" in results[loop]["text"], loop
    assert results["chatWhole"]["finishes"] == ["tool_calls", "stop"]
    assert results["chatRunner"]["streamed"]
    assert results["responsesWhole"]["statuses"] == ["completed", "completed"]
    assert results["responsesStream"]["gapless"]
    assert (results["responsesStream"]["first"], results["responsesStream"]["last"]) == ("response.created", "response.completed")
    assert results["failure"] == {"kind": "NotFoundError", "status": 404, "code": "model_not_found"}
