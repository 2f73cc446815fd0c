"""What clients mean by `stop`, by summaries of reasoning and by retries, on models whose server cannot say it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, OpenAI

from tests.gateway import Gateway, running
from tests.model_server import ModelServer, configuration, delta, end, frame
from tests.oracles.test_keep_alive import FOLDER, NODE
from tests.upstream import reply, stream

AI_SDK = """
import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";
const openai = createOpenAI({ baseURL: process.argv[1], apiKey: "none" });
const providerOptions = { openai: { reasoningSummary: "auto", forceReasoning: true, store: false } };
const { reasoningText, text } = streamText({ model: openai.responses("fast"), prompt: "hi", maxRetries: 0, providerOptions });
console.log(JSON.stringify([await reasoningText, await text]));
"""


@pytest.mark.parametrize("streamed", [True, False])
def test_stop_ends_the_answer_of_a_model_over_responses(relay: Gateway, *, streamed: bool) -> None:  # D4
    with OpenAI(base_url=relay.v1, api_key="none", max_retries=0) as client:
        asked: dict[str, Any] = {
            "model": "responses",
            "messages": [{"role": "user", "content": "count to 9"}],
            "stop": ["4 5", "8"],
        }
        if streamed:
            chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
            text, finish = "".join(choice.delta.content or "" for choice in chunks), chunks[-1].finish_reason
        else:
            choice = client.chat.completions.create(**asked).choices[0]
            text, finish = choice.message.content or "", choice.finish_reason
    assert (text, finish) == ("1 2 3 ", "stop")


@pytest.mark.parametrize("model", ["responses", "sealed", "pythonic"])
def test_stop_inside_a_call_does_not_touch_it(relay: Gateway, model: str) -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}}
    asked = {
        "model": model,  # over Responses, with native and with printed calls
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "stop": "Par",
        "tools": [tool],
    }
    choice = relay.post("/v1/chat/completions", asked).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert "Paris" in choice["message"]["tool_calls"][0]["function"]["arguments"]


def test_ten_kilobytes_of_stop_are_taken_and_too_many_are_refused(relay: Gateway) -> None:
    asked = {"model": "responses", "messages": [{"role": "user", "content": "count to 3"}]}
    answer = relay.post("/v1/chat/completions", {**asked, "stop": "2" + "x" * 10_000})
    assert answer.json()["choices"][0]["message"]["content"] == "1 2 3"
    refused = relay.post("/v1/chat/completions", {**asked, "stop": [str(number) for number in range(65)]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stop")


@pytest.fixture(scope="module")
def thinking() -> Iterator[tuple[ModelServer, Gateway]]:
    """A model over Chat that sends its reasoning as plain text."""
    with ModelServer() as server, running(configuration(server)) as gateway:
        yield server, gateway


THOUGHT = stream(frame({"reasoning_content": "I pon"}) + frame({"reasoning_content": "der."}), delta("Hi.") + end())


def test_plain_reasoning_reaches_a_client_that_shows_summaries(thinking: tuple[ModelServer, Gateway]) -> None:  # D9
    server, gateway = thinking
    server.enqueue(THOUGHT)
    command: list[str | Path] = [NODE, "--input-type=module", "-e", AI_SDK, gateway.v1]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=FOLDER)
    assert (run.stdout, run.stderr) == ('["I ponder.","Hi."]\n', "")


@pytest.mark.parametrize("streamed", [True, False])
def test_reasoning_shown_as_a_summary_goes_back_to_the_model(thinking: tuple[ModelServer, Gateway], *, streamed: bool) -> None:
    server, gateway = thinking
    first = server.enqueue(THOUGHT, THOUGHT)
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        asked: dict[str, Any] = {"model": "fast", "reasoning": {"summary": "auto"}, "store": False}
        if streamed:
            with client.responses.stream(**asked, input="hi") as events:
                answer: Any = events.get_final_response()
        else:
            answer = client.responses.create(**asked, input="hi")
        assert answer.output[0].summary[0].text == "I ponder."
        assert not answer.output[0].content
        client.responses.create(**asked, input=[*answer.to_dict()["output"], {"role": "user", "content": "go on"}])
    message = server.request_body(first + 1)["messages"][0]
    assert (message["reasoning_content"], message["content"][0]["text"]) == ("I ponder.", "Hi.")


def test_websocket_upgrade_elsewhere_is_answered_with_426(relay: Gateway) -> None:  # D7
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    refused = httpx.get(f"{relay.v1}/chat/completions", headers=upgrade)
    assert (refused.status_code, refused.json()["error"]["code"]) == (426, "websocket_not_supported")
    assert "POST" in refused.json()["error"]["message"]


@pytest.mark.parametrize("status", [429, 503])
def test_retries_of_the_sdk_and_the_gateway_do_not_multiply(thinking: tuple[ModelServer, Gateway], status: int) -> None:  # D6
    server, gateway = thinking
    busy = reply(b'{"error":{"message":"busy"}}', status)
    first = server.enqueue(*[busy] * 20)
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=2) as client, pytest.raises(APIStatusError) as failed:
        client.chat.completions.create(model="fast", messages=[{"role": "user", "content": "hi"}])
    assert (failed.value.status_code, failed.value.response.headers["x-should-retry"]) == (status, "false")
    assert len(server.requests) - first == 3
