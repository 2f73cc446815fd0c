"""The openai package in Node, and the AI SDK with its default OpenAI model, as clients of stored state."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import Gateway
from tests.model_server import ModelServer, whole
from tests.oracles.stateful import (
    ALICE,
    BOB,
    PLAIN,
    WITH_TOOLS,
    seen_by_model,
    slowly,
    stateful,
    streamed,
    streamed_call,
)

NODE = Path(sys.executable).parent / "node"
SCRIPTS = Path(__file__).parent.parent / "node"
NOT_FOUND = ["NotFoundError", 404]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(upstream: ModelServer) -> Iterator[Gateway]:
    with stateful(upstream) as started:
        yield started


def play(script: str, *arguments: str) -> Any:
    run = subprocess.run([NODE, SCRIPTS / script, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_openai_package_uses_stored_state(gateway: Gateway, upstream: ModelServer) -> None:
    upstream.enqueue(
        streamed_call("look_up", word="fog"),
        streamed("It is a word."),
        whole("Yes."),
        whole("Hello there"),
        slowly("One ", "two ", "three."),
        whole("One"),
        whole("Two"),
    )
    results = play("state.mjs", gateway.v1, ALICE, BOB)
    assert results["stored"] == {
        "same": True,
        "types": ["mcp_call", "message"],
        "input": ["What is fog?"],
        "second": "Yes.",
        "hidden": [*NOT_FOUND, "response_not_found"],
        "deleted": [*NOT_FOUND, "response_not_found"],
        "broken": ["BadRequestError", 400, None],
        "unknown": ["BadRequestError", 400, "previous_response_not_found"],
    }
    assert results["background"] == {
        "created": "queued",
        "polled": ["completed", "Hello there"],
        "gapless": True,
        "ends": ["response.completed"],
        "last": "response.completed",
        "text": "One two three.",
        "again": True,
        "cancelled": "completed",
        "unstored": ["BadRequestError", 400, "mutually_exclusive_parameters"],
    }
    assert results["conversations"] == {
        "metadata": [{"a": "b"}, {"a": "c"}],
        "texts": ["0", "1", "One", "2", "Two", "3"],
        "ids": [True, True, True],
        "left": 5,
        "hidden": [*NOT_FOUND, "conversation_not_found"],
        "deleted": True,
        "gone": [*NOT_FOUND, "conversation_not_found"],
    }


def test_ai_sdk_goes_through_three_turns_with_its_own_tool(gateway: Gateway, upstream: ModelServer) -> None:  # D1
    number = upstream.enqueue(
        whole("", (("get_weather", '{"city":"Paris"}'),)), whole("Mild."), streamed("Yes, mild."), whole("Bye.")
    )
    results = play("ai.mjs", gateway.v1, ALICE, PLAIN)
    assert results["texts"] == ["Mild.", "Yes, mild.", "Bye."]
    assert results["ran"] == ["Paris"]
    assert results["references"][-1] > results["references"][0] == 0  # the story is about references
    assert seen_by_model(upstream, number + 3) == [
        ("user", "Weather?"),
        ("assistant", ["get_weather"]),
        ("tool", "18 degrees"),
        ("assistant", "Mild."),
        ("user", "Sure?"),
        ("assistant", "Yes, mild."),
        ("user", "Bye"),
    ]


def test_ai_sdk_goes_through_three_turns_with_gateway_tools(gateway: Gateway, upstream: ModelServer) -> None:
    number = upstream.enqueue(
        streamed_call("look_up", word="fog"),
        streamed_call("get_weather", city="Paris"),
        streamed("Foggy."),
        streamed("Yes, foggy."),
        streamed("Bye."),
    )
    results = play("ai.mjs", gateway.v1, ALICE, WITH_TOOLS)
    assert results["texts"] == ["Foggy.", "Yes, foggy.", "Bye."]
    assert results["ran"] == ["Paris"]
    assert seen_by_model(upstream, number + 4) == [
        ("user", "Weather?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", ["get_weather"]),
        ("tool", "18 degrees"),
        ("assistant", "Foggy."),
        ("user", "Sure?"),
        ("assistant", "Yes, foggy."),
        ("user", "Bye"),
    ]
