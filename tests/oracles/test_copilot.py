"""Obsidian Copilot's tool loop, played by the library that it is made of, with the requests that it sends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import Gateway, running

NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent.parent / "node" / "copilot.mjs"
RAN = [
    ["localSearch", {"query": "milk"}],
    ["readNote", {"notePath": "shop & co.md"}],
    ["localSearch", {"query": "milk"}],
    ["getCurrentTime", {}],
]
TEXTS = [
    "localSearch says: 3 notes about milk",
    "readNote says: # shop & co.md\nbuy <b>milk</b> & bread",
    "localSearch says: 3 notes about milk\ngetCurrentTime says: noon",
]


def play(gateway: Gateway, *models: str) -> Any:
    run = subprocess.run([NODE, SCRIPT, gateway.v1, *models], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def check_native(seen: Any) -> None:
    for wire in ("chat", "responses"):
        assert seen[wire]["ran"] == RAN, wire
        assert seen[wire]["texts"] == TEXTS, wire
        assert seen[wire]["streamed"] > 3, wire
        assert len(seen[wire]["sent"]) == 6, wire


def test_from_3_2_on_it_plays_its_loop_over_both_apis(demo: Gateway) -> None:
    seen = play(demo, "demo", "demo")
    check_native(seen)
    check_chat_requests(seen["chat"]["sent"])
    check_responses_requests(seen["responses"]["sent"])


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_from_3_2_on_it_plays_its_loop_with_models_behind_either_wire(relay: Gateway, wire: str) -> None:
    check_native(play(relay, wire, wire))


def test_up_to_3_1_it_plays_its_loop_in_blocks() -> None:
    with running('[models.demo]\nprovider = "demo"\n[models.xml]\nprovider = "demo"\nclient_style = "use_tool"\n') as gateway:
        seen = play(gateway, "demo", "demo", "xml")["xml"]
    assert seen["ran"] == [["localSearch", {"query": "milk"}], ["getCurrentTime", {}]]
    first, second = seen["answers"]
    assert [chunk.count("<use_tool>") for chunk in first[:3]] == [1, 1, 0]
    assert "".join(first[2:]).strip() == "I will look."
    assert "3 notes about milk" in "".join(second)


def check_chat_requests(sent: list[Any]) -> None:
    """What facts/clients.md says of the plugin: should the library change, this is no longer the plugin's loop."""
    first, second = sent[0]["body"], sent[1]["body"]
    assert sent[0]["path"] == "/v1/chat/completions"
    assert first.keys() == {"model", "temperature", "stream", "tools", "messages"}
    parameters = first["tools"][0]["function"]["parameters"]
    assert "$schema" in parameters
    assert parameters["additionalProperties"] is False
    assert second["messages"][-1].keys() == {"role", "content", "name", "tool_call_id"}


def check_responses_requests(sent: list[Any]) -> None:
    first, second = sent[0]["body"], sent[1]["body"]
    assert sent[0]["path"] == "/v1/responses"
    assert first["text"] == {}
    assert first["tools"][0]["strict"] is None
    assert "name" in first["tools"][0]
    said, called, told = second["input"][-3:]
    assert said == {"type": "message", "role": "assistant", "content": ""}
    assert called.keys() == {"type", "name", "arguments", "call_id"}
    assert told["type"] == "function_call_output"
    assert "previous_response_id" not in second
