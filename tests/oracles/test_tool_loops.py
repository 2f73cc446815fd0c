"""One tool loop of each further client, with its own tool, on a model with native calls and on one that prints them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool  # type: ignore[import-untyped]  # it has no types

from tests.gateway import Gateway
from tests.model_server import ModelServer
from tests.oracles.opencode import find_opencode, opencode_environ
from tests.oracles.tool_loop import MODELS, THINKING, answer_with_call, answer_with_text, loop_gateway

NODE = Path(sys.executable).parent / "node"
SCRIPTS = Path(__file__).parent.parent / "node"
CALL = ("get_weather", {"city": "Paris"})
RESULT = "18 degrees in Paris"
ANSWER = ("It is 18 ", "degrees.")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    with loop_gateway(server) as started:
        yield started


def enqueue_loop(server: ModelServer, model: str, *, streamed: bool = True) -> int:
    """Queue the model's two answers. Return the number of the first request."""
    return server.enqueue(answer_with_call(model, *CALL, streamed=streamed), answer_with_text(model, *ANSWER, streamed=streamed))


def check_loop(
    server: ModelServer, model: str, first: int, *, streamed: bool = True, name: str = CALL[0], role: str = "tool"
) -> None:
    """Check that the model was offered the tool, and saw its result after the call, in a message of this role."""
    offered, continued = server.request_body(first), server.request_body(first + 1)
    if model == "native":
        assert name in [each["function"]["name"] for each in offered["tools"]]
        assert continued["messages"][-1]["role"] == role
        assert bool(offered.get("stream")) is streamed
    else:
        assert "tools" not in offered
        assert f'"name": "{name}"' in str(offered["messages"][0])
    assert RESULT in str(continued["messages"][-1])


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The name of the city.

    """
    return f"18 degrees in {city}"


# pydantic-ai


async def run_agent(gateway: Gateway, model: str, api: str, *, streamed: bool) -> tuple[str, ...]:
    async with AsyncOpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        over = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        agent = Agent(over(model, provider=OpenAIProvider(openai_client=client)), tools=[get_weather])
        if not streamed:
            return ((await agent.run("Weather?")).output,)
        async with agent.run_stream("Weather?") as run:
            return tuple([piece async for piece in run.stream_text(delta=True, debounce_by=None)])


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("model", MODELS)
def test_pydantic_ai_completes_its_tool_loop(
    server: ModelServer, gateway: Gateway, model: str, api: str, *, streamed: bool
) -> None:
    first = enqueue_loop(server, model, streamed=streamed)
    assert asyncio.run(run_agent(gateway, model, api, streamed=streamed)) == (ANSWER if streamed else ("".join(ANSWER),))
    check_loop(server, model, first, streamed=streamed)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_blank_text_between_thought_and_call_is_no_answer(server: ModelServer, gateway: Gateway, api: str) -> None:  # D3
    """run_stream takes the first text for the answer, and does not run the tool after it."""
    printed = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    pieces = ["<think>\nI ponder.\n</think>", "\n\n", f"<tool_call>\n{printed}\n</tool_call>"]
    first = server.enqueue(answer_with_text("text", *pieces), answer_with_text("text", *ANSWER))
    assert asyncio.run(run_agent(gateway, THINKING, api, streamed=True)) == ANSWER
    check_loop(server, "text", first)


# smolagents: every answer must call a tool, the last one `final_answer`; it also says where to stop


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("model", MODELS)
def test_smolagents_completes_its_tool_loop(server: ModelServer, gateway: Gateway, model: str, *, streamed: bool) -> None:
    client = OpenAIServerModel(model, api_base=gateway.v1, api_key="none")
    agent = ToolCallingAgent([tool(get_weather)], client, stream_outputs=streamed, verbosity_level=LogLevel.OFF)
    final = ("final_answer", {"answer": "".join(ANSWER)})
    first = server.enqueue(*(answer_with_call(model, *each, streamed=streamed) for each in (CALL, final)))
    try:
        assert agent.run("Weather?") == "".join(ANSWER)
    finally:
        client.client.close()
    check_loop(server, model, first, streamed=streamed, role="user")
    if model == "native":
        asked = server.request_body(first)
        assert (asked["tool_choice"], asked["stop"]) == ("required", ["Observation:", "Calling tools:"])


# llm, by its command


@pytest.mark.parametrize("model", MODELS)
def test_llm_completes_its_tool_loop(server: ModelServer, gateway: Gateway, tmp_path: Path, model: str) -> None:
    entry = {"model_id": model, "model_name": model, "api_base": gateway.v1, "supports_tools": True}
    (tmp_path / "extra-openai-models.yaml").write_text(yaml.safe_dump([entry]))
    first = enqueue_loop(server, model)
    function = 'def get_weather(city: str) -> str:\n    "The weather of a city."\n    return f"18 degrees in {city}"\n'
    command = ["prompt", "--model", model, "--key", "none", "--no-log", "--functions", function, "Weather?"]
    done = run(sys.executable, "-m", "llm", *command, LLM_USER_PATH=str(tmp_path), LLM_LOAD_PLUGINS="")
    assert done == "".join(ANSWER) + "\n"
    check_loop(server, model, first)


# The AI SDK, over both APIs


def test_ai_sdk_completes_its_tool_loop(server: ModelServer, gateway: Gateway) -> None:
    loops = [(model, api, streamed) for model in MODELS for api in ("responses", "chat") for streamed in (True, False)]
    first = len(server.requests)
    server.enqueue(
        *(
            answer
            for model, _, streamed in loops
            for answer in (
                answer_with_call(model, *CALL, streamed=streamed),
                answer_with_text(model, *ANSWER, streamed=streamed),
            )
        )
    )
    played = json.loads(run(NODE, SCRIPTS / "ai_loop.mjs", gateway.v1, json.dumps(loops)))
    for number, (seen, (model, _, streamed)) in enumerate(zip(played, loops, strict=True)):
        assert seen == {"ran": ["Paris"], "pieces": list(ANSWER) if streamed else ["".join(ANSWER)]}
        check_loop(server, model, first + 2 * number, streamed=streamed)


# opencode, with a tool of its own


@pytest.mark.parametrize("model", MODELS)
def test_opencode_completes_its_tool_loop(server: ModelServer, gateway: Gateway, tmp_path: Path, model: str) -> None:
    (tmp_path / "note.txt").write_text(RESULT)
    options = {"baseURL": gateway.v1, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {name: {} for name in MODELS}}
    environ = opencode_environ(tmp_path, {"provider": {"toolrelay": provider}})
    read = ("read", {"filePath": str(tmp_path / "note.txt")})
    first = server.enqueue(answer_with_call(model, *read), answer_with_text(model, *ANSWER))
    command = (find_opencode(), "run", "--model", f"toolrelay/{model}", "--title", "Weather", "Weather?")
    assert run(*command, cwd=tmp_path, **environ) == "".join(ANSWER) + "\n"
    check_loop(server, model, first, name="read")


def run(*command: str | Path, cwd: Path | None = None, **environ: str) -> str:
    """Run a client to its end and return what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
