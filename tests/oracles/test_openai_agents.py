"""OpenAI's agents library: an agent with two tools, over both APIs and both upstream wires."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.gateway import Gateway

set_tracing_disabled(disabled=True)


def model_over(api: str, name: str, client: AsyncOpenAI) -> Model:
    if api == "chat":
        return OpenAIChatCompletionsModel(model=name, openai_client=client)
    return OpenAIResponsesModel(model=name, openai_client=client)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_agent_runs_two_tools_and_uses_their_results(relay: Gateway, model: str, api: str, *, stream: bool) -> None:
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

    async def run_agent() -> str:
        async with AsyncOpenAI(base_url=relay.v1, api_key="none", max_retries=0) as client:
            agent: Agent[Any] = Agent(
                name="guide",
                instructions="Answer with what the tools say.",
                tools=[get_weather, get_time],
                model=model_over(api, model, client),
            )
            question, config = "What is the weather and the time in Paris?", RunConfig(tracing_disabled=True)
            if not stream:
                return str((await Runner.run(agent, question, run_config=config)).final_output)
            run = Runner.run_streamed(agent, question, run_config=config)
            kinds = [event.type async for event in run.stream_events()]
            assert "raw_response_event" in kinds
            return str(run.final_output)

    answer = asyncio.run(run_agent())
    assert sorted(ran) == [("get_time", "Paris"), ("get_weather", "Paris")]
    assert "18 degrees" in answer
    assert "noon" in answer
