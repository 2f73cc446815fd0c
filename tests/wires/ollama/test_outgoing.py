"""Requests to Ollama's own API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrelay.core.messages import Call, Image, Item, Message, Reasoning, Result, Text
from toolrelay.core.profiles import Profile
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Sampling, Tool, ToolChoice
from toolrelay.wires.base import discover_provider_wires

WIRE = discover_provider_wires()["ollama"]
HI = Message(role="user", content="Hi")
PIXEL = "data:image/png;base64,iVBORw0KGgo="
TOOLS = (Tool(name="f", parameters={"type": "object", "properties": {}}), Tool(name="g", description="G"))


def body(*items: Item, profile: Profile | None = None, **members: Any) -> dict[str, Any]:
    request = Request(wire="openai_chat", model="qwen3:8b", items=items or (HI,), **members)
    outgoing = WIRE.encode_request(request, profile or Profile())
    assert outgoing.path == "/api/chat"
    sent: dict[str, Any] = json.loads(outgoing.body)
    return sent


def test_plain_request_says_that_it_is_not_streamed() -> None:
    assert body() == {"model": "qwen3:8b", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
    assert body(stream=True)["stream"] is True


def test_sampling_and_context_length_are_options() -> None:
    sampling = Sampling(
        temperature=0.5, top_p=0.9, max_output_tokens=100, stop="END", seed=7, presence_penalty=0.1, frequency_penalty=0.2
    )
    sent = body(sampling=sampling, profile=Profile(context_length=16384, keep_alive="30m"))
    assert sent["options"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "num_predict": 100,
        "stop": ["END"],
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "num_ctx": 16384,
    }
    assert sent["keep_alive"] == "30m"


@pytest.mark.parametrize(("written", "sent"), [("-1", -1), ("90", 90), ("0", 0), ("1h30m", "1h30m")])
def test_seconds_of_keep_alive_are_a_number(written: str, sent: Any) -> None:
    assert body(profile=Profile(keep_alive=written))["keep_alive"] == sent


def test_schema_is_the_format() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert body(output=OutputFormat(type="json_schema", schema=schema))["format"] == schema
    assert body(output=OutputFormat(type="json_object"))["format"] == "json"
    assert "format" not in body(output=OutputFormat())


@pytest.mark.parametrize(("effort", "think"), [("none", False), ("minimal", "low"), ("medium", "medium"), ("xhigh", "high")])
def test_effort_is_think(effort: str, think: Any) -> None:
    assert body(reasoning=ReasoningOptions(effort=effort))["think"] == think


def test_conversation_with_calls_has_results_behind_them_with_names() -> None:
    items: tuple[Item, ...] = (
        Message(role="developer", content="Be brief."),
        HI,
        Reasoning(text=("I look.",)),
        Message(role="assistant", content="Wait."),
        Call(id="call_1", name="f", arguments='{"a": 1.0}'),
        Call(id="call_2", name="g", arguments="no json"),
        Message(role="user", content="So?"),
        Result(call_id="call_2", output=(Text(text="two"), Image(url=PIXEL))),
        Result(call_id="call_1", output="one"),
    )
    messages = body(*items, instructions="Rules.")["messages"]
    assert [message["role"] for message in messages] == ["system", "system", "user", "assistant", "tool", "tool", "user"]
    calls = [
        {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"a": 1.0}}},
        {"id": "call_2", "function": {"index": 1, "name": "g", "arguments": {"invalid_arguments": "no json"}}},
    ]
    assert messages[3] == {"role": "assistant", "content": "Wait.", "thinking": "I look.", "tool_calls": calls}
    assert messages[4:6] == [
        {"role": "tool", "content": "two", "images": ["iVBORw0KGgo="], "tool_call_id": "call_2", "tool_name": "g"},
        {"role": "tool", "content": "one", "tool_call_id": "call_1", "tool_name": "f"},
    ]


def test_images_are_base64_beside_the_text() -> None:
    message = Message(role="user", content=(Text(text="See"), Image(url=PIXEL), Text(text="this?")))
    assert body(message)["messages"] == [{"role": "user", "content": "See\n\nthis?", "images": ["iVBORw0KGgo="]}]


def test_tools_are_declared_as_functions() -> None:
    first, second = body(tools=TOOLS)["tools"]
    assert first == {"type": "function", "function": {"name": "f", "description": "", "parameters": TOOLS[0].parameters}}
    assert second["function"] == {"name": "g", "description": "G", "parameters": {"type": "object"}}


def test_only_allowed_tools_are_declared() -> None:
    names = (("function", "g"),)
    allowed = body(tools=TOOLS, tool_choice=ToolChoice(names=names))["tools"]  # type: ignore[arg-type]  # a tuple of literals
    assert [tool["function"]["name"] for tool in allowed] == ["g"]
    assert "tools" not in body(tools=TOOLS, tool_choice=ToolChoice(mode="none"))
