"""Obsidian Copilot's library and OpenAI's agents, through the whole gateway and the real Codex, before a scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from tests.backends.codex.test_gateway import WAYS, Theatre, calling, opened
from tests.backends.codex.upstream import Call, says
from tests.oracles.test_copilot import RAN, play
from tests.oracles.test_openai_agents import model_over


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    with opened() as theatre:
        yield theatre


@pytest.mark.parametrize("way", WAYS)
def test_copilot_plays_its_loop_over_both_apis(theatre: Theatre, way: str) -> None:
    search, read, again, time = (Call(str(name), given) for name, given in RAN)  # type: ignore[arg-type]  # pairs
    turns = [
        calling(way, search), says("Three ", "notes ", "about ", "milk."), calling(way, read), says("Buy ", "milk."),
        calling(way, again, time), says("It ", "is ", "noon."),
    ]  # fmt: skip
    theatre.script(*turns, *turns)
    seen = play(theatre.gateway, way, way)
    for wire in ("chat", "responses"):
        assert seen[wire]["ran"] == RAN, wire
        assert seen[wire]["texts"] == ["Three notes about milk.", "Buy milk.", "It is noon."], wire
    assert len(theatre.upstream.requests) == 12


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("way", WAYS)
def test_an_agent_runs_two_tools_and_gets_its_answer(theatre: Theatre, way: str, api: str) -> None:
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

    async def story() -> str:
        async with AsyncOpenAI(base_url=theatre.gateway.v1, api_key="none", max_retries=0) as client:
            agent: Agent[Any] = Agent(name="guide", tools=[get_weather, get_time], model=model_over(api, way, client))
            run = Runner.run_streamed(agent, "Weather and time?", run_config=RunConfig(tracing_disabled=True))
            async for _ in run.stream_events():
                pass
            return str(run.final_output)

    both = [Call("get_weather", {"city": "Paris"}), Call("get_time", {"city": "Paris"})]
    theatre.script(calling(way, *both), says("18 degrees ", "at noon."))
    assert asyncio.run(story()) == "18 degrees at noon."
    assert sorted(ran) == [("get_time", "Paris"), ("get_weather", "Paris")]
    sent = str(theatre.upstream.requests[1].body)
    assert "18 degrees" in sent
    assert "noon" in sent
