"""Clients of the Responses API through a model that is silent for many keep-alives, before its answer and in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import OpenAI

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, REST, ModelServer, configuration
from tests.oracles.test_codex_cli import codex
from tests.raw_client import RawClient
from tests.upstream import Gate

NODE = Path(sys.executable).parent / "node"
FOLDER = Path(__file__).parent.parent / "node"
OPENAI = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[1], apiKey: "none", maxRetries: 0 });
const stream = client.responses.stream({ model: "fast", input: "hi" });
const seen = [];
for await (const event of stream) seen.push(event.type);
const repeated = seen.filter((type) => type === "response.in_progress").length;
console.log(JSON.stringify([(await stream.finalResponse()).output_text, repeated > 3]));
"""
AI_SDK = """
import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";
const openai = createOpenAI({ baseURL: process.argv[1], apiKey: "none" });
const { fullStream, text } = streamText({ model: openai.responses("fast"), prompt: "hi", maxRetries: 0 });
const errors = [];
for await (const part of fullStream) if (part.type === "error") errors.push(String(part.error));
console.log(JSON.stringify([await text, errors.length === 0]));
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


def config(server: ModelServer, seconds: float) -> str:
    return configuration(server, before=f"[server]\nkeepalive_seconds = {seconds}\n")


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    with running(config(server, 0.05)) as started:
        yield started


def let_time_pass(gateway: Gateway, keep_alives: int) -> None:
    """Wait for so many keep-alives of another stream."""
    with RawClient(gateway.port) as clock:
        clock.post("/v1/responses", {"model": "fast", "input": "hi", "stream": True})
        for _ in range(keep_alives):
            clock.read_until(b": keep-alive")


def play(server: ModelServer, gateway: Gateway, command: list[str | Path]) -> str:
    before, middle = Gate(), Gate()
    silent = (Gate(),)
    server.enqueue((before, BEGUN, middle, REST), silent, silent)
    with ThreadPoolExecutor(1) as threads:
        client = threads.submit(subprocess.run, command, capture_output=True, text=True, timeout=100, check=False, cwd=FOLDER)
        for gate in (before, middle):
            gate.reached.result(60)
            let_time_pass(gateway, 5)
            gate.open()
        done = client.result()
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("program", [OPENAI, AI_SDK], ids=["openai", "ai-sdk"])
def test_libraries_in_node_read_the_answer(server: ModelServer, gateway: Gateway, program: str) -> None:
    assert play(server, gateway, [NODE, "--input-type=module", "-e", program, gateway.v1]) == '["Hello there",true]\n'


def test_openai_python_reads_the_answer(server: ModelServer, gateway: Gateway) -> None:
    before, middle = Gate(), Gate()
    server.enqueue((before, BEGUN, middle, REST))
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        repeated = 0
        with client.responses.stream(model="fast", input="hi") as stream:
            for event in stream:
                repeated += event.type == "response.in_progress"
                if repeated == 4:
                    before.open()
                if repeated == 8:
                    middle.open()
            assert stream.get_final_response().output_text == "Hello there"


def test_codex_cli_waits_longer_than_its_idle_time(server: ModelServer, tmp_path: Path) -> None:
    """Codex gives up after this time without an event. The model is silent for twice as long."""
    gate = Gate()
    first = server.enqueue((gate, BEGUN + REST), (Gate(),))
    with running(config(server, 0.5)) as gateway, ThreadPoolExecutor(1) as threads:
        idle = "model_providers.toolrelay.stream_idle_timeout_ms=4000"
        client = threads.submit(codex, tmp_path, gateway, "fast", "hi", "-c", idle)
        gate.reached.result(60)
        let_time_pass(gateway, 16)
        gate.open()
        done = client.result()
    assert (done.returncode, done.stdout) == (0, "Hello there\n"), done.stderr
    assert len(server.requests) == first + 2, "Codex asked again"
