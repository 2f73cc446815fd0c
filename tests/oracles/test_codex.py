"""Obsidian Copilot's library and OpenAI's agents library through the gateway and the real Codex, with a scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from tests.backends.codex.test_gateway import MODES, CodexGateway, call_script, open_gateway
from tests.backends.codex.upstream import Call, says
from tests.oracles.test_copilot import RAN, play
from tests.oracles.test_openai_agents import model_over


@pytest.fixture(scope="module")
def codex() -> Iterator[CodexGateway]:
    with open_gateway() as codex:
        yield codex


@pytest.mark.parametrize("mode", MODES)
def test_copilot_completes_its_tool_loop_over_both_apis(codex: CodexGateway, mode: str) -> None:
    search, read, again, time = (Call(str(name), arguments) for name, arguments in RAN)  # type: ignore[arg-type]  # pairs
    turns = [
        call_script(mode, search), says("Three ", "notes ", "about ", "milk."), call_script(mode, read), says("Buy ", "milk."),
        call_script(mode, again, time), says("It ", "is ", "noon."),
    ]  # fmt: skip
    codex.script(*turns, *turns)
    seen = play(codex.gateway, mode, mode)
    for wire in ("chat", "responses"):
        assert seen[wire]["ran"] == RAN, wire
        assert seen[wire]["texts"] == ["Three notes about milk.", "Buy milk.", "It is noon."], wire
    assert len(codex.upstream.requests) == 12


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("mode", MODES)
def test_agent_runs_two_tools_and_gets_its_answer(codex: CodexGateway, mode: str, api: str) -> None:
    ran: list[tuple[str, str]] = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        ran.append(("get_weather", city))
        return "18 degrees"

    @function_tool
    def get_time(city: str) -> str:
        """The time in a city."""
        ran.append(("get_time", city))
        return "noon"

    async def run() -> str:
        async with AsyncOpenAI(base_url=codex.gateway.v1, api_key="none", max_retries=0) as client:
            agent: Agent[Any] = Agent(name="guide", tools=[get_weather, get_time], model=model_over(api, mode, client))
            streamed = Runner.run_streamed(agent, "Weather and time?", run_config=RunConfig(tracing_disabled=True))
            async for _ in streamed.stream_events():
                pass
            return str(streamed.final_output)

    both = [Call("get_weather", {"city": "Paris"}), Call("get_time", {"city": "Paris"})]
    codex.script(call_script(mode, *both), says("18 degrees ", "at noon."))
    assert asyncio.run(run()) == "18 degrees at noon."
    assert sorted(ran) == [("get_time", "Paris"), ("get_weather", "Paris")]
    sent = str(codex.upstream.requests[1].body)
    assert "18 degrees" in sent
    assert "noon" in sent
