"""LangChain's ChatOpenAI with bound tools."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.gateway import Gateway


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


@tool
def get_time(city: str) -> str:
    """The time in a city."""
    return f"noon in {city}"


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [True, False])
def test_loop_with_bound_tools_ends_with_their_results(relay: Gateway, model: str, api: str, *, stream: bool) -> None:
    chat = ChatOpenAI(
        model=model,
        base_url=relay.v1,
        api_key=SecretStr("none"),
        use_responses_api=api == "responses",
        max_retries=0,
        stream_usage=True,
    ).bind_tools([get_weather, get_time])
    tools: dict[str, Any] = {"get_weather": get_weather, "get_time": get_time}
    messages: list[Any] = [HumanMessage("What is the weather and the time in Paris?")]
    chunks = 0
    for _ in range(4):
        whole: Any = None
        for chunk in chat.stream(messages) if stream else [chat.invoke(messages)]:
            assert isinstance(chunk, AIMessageChunk if stream else AIMessage)
            whole = chunk if whole is None else whole + chunk
            chunks += 1
        messages.append(whole)
        if not whole.tool_calls:
            break
        assert whole.invalid_tool_calls == []
        messages += [
            ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"] or "") for call in whole.tool_calls
        ]
    answer = messages[-1].text
    answer_type = "AIMessageChunk" if stream else "ai"
    assert [message.type for message in messages] == ["human", answer_type, "tool", "tool", answer_type]
    assert "18 degrees in Paris" in answer
    assert "noon in Paris" in answer
    assert messages[-1].usage_metadata["total_tokens"] > 0
    assert chunks > 6 or not stream
