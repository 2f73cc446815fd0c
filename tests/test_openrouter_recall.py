"""`reasoning_details` of OpenRouter between the requests of a turn, with gateway tools and without, on every door."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.model_server import CLIENT_APIS, ModelServer, end, frame
from tests.tool_gateway import ToolGateway, running_tools, second_request
from tests.upstream import stream

SIGNED = {"type": "reasoning.text", "text": "I should look.", "signature": "sig", "format": "anthropic-claude-v1", "index": 0}
OF_CALL = {"type": "reasoning.encrypted", "data": "BBBB", "id": "up_b", "format": "google-gemini-v1", "index": 1}


def called(index: int, identifier: str, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


OWN = called(0, "up_a", "get_weather", '{"city":"Rome"}')
THEIRS = called(1, "up_b", "theirs", "{}")
THOUGHT = frame({"role": "assistant", "content": "", "reasoning": "I should look.", "reasoning_details": [SIGNED]})
MIXED = stream(
    THOUGHT,
    frame({"content": "I look."}),
    frame({"tool_calls": [OWN]}),
    frame({"reasoning_details": [OF_CALL], "tool_calls": [THEIRS]}),
    end("tool_calls"),
)
RELAYED = stream(THOUGHT, frame({"tool_calls": [THEIRS | {"index": 0}], "reasoning_details": [OF_CALL]}), end("tool_calls"))
DONE = stream(frame({"content": "Done."}), end())


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def tooled(server: ModelServer) -> Iterator[ToolGateway]:
    table = 'provider = "openrouter"\nbase_url = "{server.url}/v1"\n'.replace("{server.url}", server.url)
    with running_tools(f'[models.fast]\n{table}toolsets = ["mine"]\n[models.plain]\n{table}') as gateway:
        yield gateway


def converse(tooled: ToolGateway, server: ModelServer, name: str, model: str, *answers: bytes) -> list[dict[str, Any]]:
    """Send the answer back with the result of the client's call. Return the messages that the model got then."""
    api = CLIENT_APIS[name]
    first = server.enqueue(*answers, DONE)
    members: dict[str, Any] = {"tools": [api.tool("theirs")], "model": model}
    if name == "openai_responses":
        members["store"] = False
    answer = tooled.gateway.post(api.path, api.request_body() | members | {"stream": False})
    assert answer.status_code == 200, answer.text
    items = second_request(name, answer.json())
    second = tooled.gateway.post(api.path, {**members, api.items: items})
    assert second.status_code == 200, second.text
    messages: list[dict[str, Any]] = server.request_body(first + len(answers))["messages"]
    return messages


@pytest.mark.parametrize("name", CLIENT_APIS)
def test_details_and_gateway_calls_come_back_once_and_in_order(tooled: ToolGateway, server: ModelServer, name: str) -> None:
    messages = converse(tooled, server, name, "fast", MIXED)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    said = messages[1]
    own, theirs = (call["id"] for call in said["tool_calls"])
    assert said["reasoning_details"] == [SIGNED, OF_CALL | {"id": theirs}]
    assert [(message["tool_call_id"], message["content"]) for message in messages[2:]] == [
        (own, "18 degrees in Rome"),
        (theirs, "r"),
    ]
    assert tooled.runs() == ["get_weather Rome"]


@pytest.mark.parametrize("name", CLIENT_APIS)
def test_details_come_back_through_a_client_that_echoes(tooled: ToolGateway, server: ModelServer, name: str) -> None:
    messages = converse(tooled, server, name, "plain", RELAYED)
    said = messages[1]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert said["reasoning_details"] == [SIGNED, OF_CALL | {"id": said["tool_calls"][0]["id"]}]


def test_chat_client_that_does_not_echo_gets_them_back_by_its_call(tooled: ToolGateway, server: ModelServer) -> None:
    first = server.enqueue(MIXED, DONE)
    api = CLIENT_APIS["openai_chat"]
    tools: dict[str, Any] = {"tools": [api.tool("theirs")]}
    answer = tooled.gateway.post(api.path, api.request_body(**tools)).json()
    hi, message, result = second_request("openai_chat", answer)
    assert message.pop("reasoning_details")
    message.pop("reasoning_content", None)
    tooled.gateway.post(api.path, {"model": "fast", "messages": [hi, message, result], **tools})
    said = server.request_body(first + 1)["messages"][1]
    assert [detail["type"] for detail in said["reasoning_details"]] == ["reasoning.text", "reasoning.encrypted"]
    assert tooled.runs() == ["get_weather Rome"]
