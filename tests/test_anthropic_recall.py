"""Thinking of a model on Anthropic's API between the requests of a turn with gateway tools, on every door."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.model_server import CLIENT_APIS, ModelServer
from tests.tool_gateway import ToolGateway, running_tools, second_request
from tests.upstream import stream

SIGNED = {"type": "thinking", "thinking": "I should look.", "signature": "sig"}


def frames(*events: str) -> bytes:
    return stream(*(f"data: {event}\n\n".encode() for event in events))


def block(index: int, block: str, *deltas: str) -> tuple[str, ...]:
    return (
        f'{{"type":"content_block_start","index":{index},"content_block":{block}}}',
        *(f'{{"type":"content_block_delta","index":{index},"delta":{delta}}}' for delta in deltas),
        f'{{"type":"content_block_stop","index":{index}}}',
    )


START = '{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1,"output_tokens":1}}}'
END = ('{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}', '{"type":"message_stop"}')
MIXED = frames(
    START,
    *block(
        0,
        '{"type":"thinking","thinking":"","signature":""}',
        '{"type":"thinking_delta","thinking":"I should look."}',
        '{"type":"signature_delta","signature":"sig"}',
    ),
    *block(1, '{"type":"text","text":""}', '{"type":"text_delta","text":"I look."}'),
    *block(
        2,
        '{"type":"tool_use","id":"a","name":"get_weather","input":{}}',
        '{"type":"input_json_delta","partial_json":"{\\"city\\":\\"Rome\\"}"}',
    ),
    *block(3, '{"type":"tool_use","id":"b","name":"theirs","input":{}}'),
    *END,
)
DONE = frames(START, *block(0, '{"type":"text","text":"Done."}'), *END)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def tooled(server: ModelServer) -> Iterator[ToolGateway]:
    table = f'[models.fast]\nprovider = "anthropic"\nbase_url = "{server.url}/v1"\ntoolsets = ["mine"]\n'
    with running_tools(table) as gateway:
        yield gateway


@pytest.mark.parametrize("name", CLIENT_APIS)
def test_signed_thinking_and_gateway_calls_come_back_once_and_in_order(
    tooled: ToolGateway, server: ModelServer, name: str
) -> None:
    api = CLIENT_APIS[name]
    first = server.enqueue(MIXED, DONE)
    members: dict[str, Any] = {"tools": [api.tool("theirs")]}
    answer = tooled.gateway.post(api.path, api.request_body(**members))
    assert answer.status_code == 200, answer.text
    items = second_request(name, answer.json())
    assert tooled.gateway.post(api.path, {"model": "fast", api.items: items, **members}).status_code == 200
    messages = server.request_body(first + 1)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    said, results = messages[1]["content"], messages[2]["content"]
    assert said[0] == SIGNED
    assert [each.get("text") or each.get("name") for each in said[1:]] == ["I look.", "get_weather", "theirs"]
    assert [each["content"] for each in results] == ["18 degrees in Rome", "r"]
    assert [each["tool_use_id"] for each in results] == [each["id"] for each in said[2:]]
    assert tooled.runs() == ["get_weather Rome"]
