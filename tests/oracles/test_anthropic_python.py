"""Anthropic's own Python SDK as a client, with its stream helpers and its tool runner, over every wire and printed calls."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest
from anthropic import (
    Anthropic,
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
    beta_tool,
)
from anthropic.types import Message, ToolUseBlock

from tests.approving import Approver
from tests.gateway import Gateway, running
from tests.model_server import KEY, ModelServer, error
from tests.oracles.tools import BOTH, ONE, TIME, WEATHER
from tests.tool_gateway import running_tools
from tests.upstream import reply, stream

TOOLS: list[Any] = [
    {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in (WEATHER, TIME)
]
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"


OPEN_CLIENTS: list[Anthropic] = []


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while OPEN_CLIENTS:
        OPEN_CLIENTS.pop().close()


def make_client(gateway: Gateway, key: str = "none") -> Anthropic:
    client = Anthropic(base_url=gateway.url, api_key=key, max_retries=0)
    OPEN_CLIENTS.append(client)
    return client


def ask(client: Anthropic, *, streams: bool, **members: Any) -> Message:
    if not streams:
        return Message.model_validate(client.messages.create(max_tokens=1000, **members).model_dump())
    with client.messages.stream(max_tokens=1000, **members) as events:
        for _ in events:
            pass
        return Message.model_validate(events.get_final_message().model_dump())


def calls_of(message: Message) -> list[ToolUseBlock]:
    return [block for block in message.content if isinstance(block, ToolUseBlock)]


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("streams", [False, True])
def test_loop_ends_with_the_tool_results(relay: Gateway, model: str, *, streams: bool) -> None:
    client = make_client(relay)
    messages: list[Any] = [{"role": "user", "content": BOTH}]
    first = ask(client, streams=streams, model=model, messages=messages, tools=TOOLS)
    calls = calls_of(first)
    assert first.stop_reason == "tool_use"
    assert [(call.name, call.input) for call in calls] == [("get_weather", {"city": "Paris"}), ("get_time", {"city": "Paris"})]
    assert len({call.id for call in calls}) == 2
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": result}
        for call, result in zip(calls, ("18 degrees", "noon"), strict=True)
    ]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = ask(client, streams=streams, model=model, messages=messages, tools=TOOLS)
    assert second.stop_reason == "end_turn"
    assert "18 degrees" in text_of(second)
    assert "noon" in text_of(second)
    assert second.usage.input_tokens > 0 < second.usage.output_tokens


@pytest.mark.parametrize("streams", [False, True])
def test_tool_runner_calls_the_functions_and_ends_with_text(relay: Gateway, model: str, *, streams: bool) -> None:
    cities: list[str] = []

    @beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return "18 degrees"

    messages: list[Any] = [{"role": "user", "content": ONE}]
    runner = make_client(relay).beta.messages.tool_runner(
        model=model, max_tokens=1000, messages=messages, tools=[get_weather], stream=streams
    )
    last = runner.until_done()
    assert cities == ["Paris"]
    assert "18 degrees" in "".join(block.text for block in last.content if block.type == "text")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_time"}, {"type": "none"}])
def test_tool_choice_is_obeyed(relay: Gateway, model: str, choice: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": ONE}]
    message = ask(make_client(relay), streams=True, model=model, messages=messages, tools=TOOLS, tool_choice=choice)
    names = [call.name for call in calls_of(message)]
    assert names == {"any": ["get_weather"], "tool": ["get_time"], "none": []}[choice["type"]]


def test_disabled_parallel_calls_give_one_call(relay: Gateway, model: str) -> None:
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    messages: list[Any] = [{"role": "user", "content": BOTH}]
    message = ask(make_client(relay), streams=False, model=model, messages=messages, tools=TOOLS, tool_choice=choice)
    assert [call.name for call in calls_of(message)] == ["get_weather"]


def test_count_of_a_provider_that_cannot_count_is_marked_as_an_estimate(relay: Gateway) -> None:
    messages: list[Any] = [{"role": "user", "content": "x" * 4000}]
    with_tools, without = (
        make_client(relay).messages.with_raw_response.count_tokens(model="chat", messages=messages, tools=tools)
        for tools in (TOOLS, [])
    )
    assert without.headers["x-toolrelay-estimated"] == "true"
    assert '"estimated":true' in without.text()
    assert 900 < without.parse().input_tokens < 1050 < with_tools.parse().input_tokens


def test_models_are_listed(relay: Gateway) -> None:
    client = make_client(relay)
    assert [model.id for model in client.models.list()][:3] == ["chat", "responses", "anthropic"]
    assert client.models.retrieve("chat").created_at.year >= 2026


# A scripted server with Anthropic's API


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def claude(server: ModelServer) -> Iterator[Gateway]:
    """The model `claude` at a server with Anthropic's API."""
    config = f'[models.claude]\nprovider = "anthropic"\nbase_url = "{server.url}/v1"\napi_key = "{KEY}"\n'
    with running(config) as gateway:
        yield gateway


def frames(*events: str) -> bytes:
    return stream(*(f"event: x\ndata: {event}\n\n".encode() for event in events))


START = (
    '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude-opus-5-5",'
    '"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":20,'
    '"cache_read_input_tokens":100,"output_tokens":1}}}'
)
THINKING = (
    START,
    '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
    '{"type":"ping"}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"I should look."}}',
    f'{{"type":"content_block_delta","index":0,"delta":{{"type":"signature_delta","signature":"{SIGNATURE}"}}}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3p"}}',
    '{"type":"content_block_stop","index":1}',
    '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"get_time","input":{}}}',
    '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}',
    '{"type":"content_block_stop","index":2}',
    '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":30}}',
    '{"type":"message_stop"}',
)


def ending(reason: str, sequence: str = "null") -> bytes:
    return frames(
        START,
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Noon."}}',
        '{"type":"content_block_stop","index":0}',
        f'{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":{sequence}}},"usage":{{"output_tokens":3}}}}',
        '{"type":"message_stop"}',
    )


def test_thinking_with_its_signature_goes_back_to_the_provider_unchanged(claude: Gateway, server: ModelServer) -> None:
    first = server.enqueue(frames(*THINKING), ending("end_turn"))
    client = make_client(claude)
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    messages: list[Any] = [{"role": "user", "content": ONE}]
    message = ask(client, streams=True, model="claude", messages=messages, tools=TOOLS, thinking=thinking)
    assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "tool_use"]
    assert message.content[0].model_dump() == {"type": "thinking", "thinking": "I should look.", "signature": SIGNATURE}
    (call,) = calls_of(message)
    assert call.input == {}
    assert message.usage.model_dump(include={"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"}) == {
        "input_tokens": 7,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
    }
    results: list[Any] = [{"type": "tool_result", "tool_use_id": call.id, "content": "noon", "is_error": True}]
    messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    ask(client, streams=True, model="claude", messages=messages, tools=TOOLS, thinking=thinking)
    assert server.request_body(first)["thinking"] == thinking
    sent = server.request_body(first + 1)["messages"]
    assert sent[1]["content"][:2] == [block.model_dump() for block in message.content[:2]]
    assert sent[2]["content"] == results
    headers = server.request(first).result(30).headers
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers


def test_beta_features_of_the_client_reach_the_provider(claude: Gateway, server: ModelServer) -> None:
    first = server.enqueue(ending("end_turn"))
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}]
    make_client(claude).beta.messages.create(
        model="claude", max_tokens=10, messages=messages, betas=["context-1m-2025-08-07"], extra_body={"top_k": 3}
    )
    body = server.request_body(first)
    assert body["messages"] == messages
    assert body["top_k"] == 3
    assert server.request(first).result(30).headers["anthropic-beta"] == "context-1m-2025-08-07"


@pytest.mark.parametrize(
    ("reason", "sequence"),
    [("stop_sequence", '"\\n"'), ("pause_turn", "null"), ("refusal", "null"), ("model_context_window_exceeded", "null")],
)
def test_stop_reason_of_the_provider_is_kept(claude: Gateway, server: ModelServer, reason: str, sequence: str) -> None:
    server.enqueue(ending(reason, sequence))
    message = ask(make_client(claude), streams=True, model="claude", messages=[{"role": "user", "content": "Hi"}])
    assert (message.stop_reason, message.stop_sequence) == (reason, "\n" if reason == "stop_sequence" else None)


def test_provider_that_counts_is_asked(claude: Gateway, server: ModelServer) -> None:
    first = server.enqueue(reply(b'{"input_tokens": 2095}'), error(404))
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    counted, estimated = (
        make_client(claude).messages.with_raw_response.count_tokens(model="claude", messages=messages, system="Be brief.")
        for _ in range(2)
    )
    assert counted.json() == {"input_tokens": 2095}
    assert "x-toolrelay-estimated" not in counted.headers
    assert '"estimated":true' in estimated.text()
    assert server.request_body(first) == {"model": "claude", "system": "Be brief.", "messages": messages}
    assert server.request(first).result(30).path == "/v1/messages/count_tokens"


def test_citations_and_server_tools_are_relayed(claude: Gateway, server: ModelServer) -> None:
    citation = (
        '{"type":"char_location","cited_text":"Grass.","document_index":0,"document_title":"A","start_char_index":0,'
        '"end_char_index":6,"file_id":null}'
    )
    server.enqueue(
        frames(
            START,
            '{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"query\\":"}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\\"grass\\"}"}}',
            '{"type":"content_block_stop","index":0}',
            '{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}}',
            '{"type":"content_block_stop","index":1}',
            '{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}',
            f'{{"type":"content_block_delta","index":2,"delta":{{"type":"citations_delta","citation":{citation}}}}}',
            '{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Green"}}',
            '{"type":"content_block_stop","index":2}',
            '{"type":"content_block_start","index":3,"content_block":{"type":"text","text":""}}',
            '{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":" it is."}}',
            '{"type":"content_block_stop","index":3}',
            '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":3}}',
            '{"type":"message_stop"}',
        )
    )
    tools: list[Any] = [{"type": "web_search_20250305", "name": "web_search"}]
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    message = ask(make_client(claude), streams=True, model="claude", messages=messages, tools=tools)
    kinds = [block.type for block in message.content]
    assert kinds == ["server_tool_use", "web_search_tool_result", "text", "text"]
    assert message.content[0].model_dump()["input"] == {"query": "grass"}
    assert message.content[2].model_dump()["citations"][0]["cited_text"] == "Grass."
    assert text_of(message) == "Green it is."


# Errors


def test_unknown_model_is_not_found(relay: Gateway) -> None:
    with pytest.raises(NotFoundError) as refused:
        ask(make_client(relay), streams=False, model="nobody", messages=[{"role": "user", "content": "Hi"}])
    assert refused.value.type == "not_found_error"
    assert refused.value.error_code == "model_not_found"
    assert refused.value.request_id is not None
    assert refused.value.request_id == refused.value.response.headers["x-request-id"]


def test_bad_request_names_the_parameter(relay: Gateway) -> None:
    blocks: Any = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "none", "content": ""}]}]
    for streams in (False, True):
        with pytest.raises(BadRequestError) as refused:
            ask(make_client(relay), streams=streams, model="chat", messages=blocks)
        assert refused.value.type == "invalid_request_error"
        assert refused.value.error_code == "unknown_call"
        assert refused.value.body["error"]["param"] == "messages[0].content[0].tool_use_id"  # type: ignore[index]  # a dict


@pytest.mark.parametrize(
    ("sent", "shown", "expected"),
    [
        ((529, "overloaded_error"), InternalServerError, (529, "overloaded_error")),
        ((429, "rate_limit_error"), RateLimitError, (429, "rate_limit_error")),
        ((400, "invalid_request_error"), BadRequestError, (400, "invalid_request_error")),
        ((401, "authentication_error"), InternalServerError, (502, "api_error")),
        ((500, "api_error"), InternalServerError, (500, "api_error")),
    ],
)
def test_provider_error_keeps_its_type(
    claude: Gateway, server: ModelServer, sent: tuple[int, str], shown: type[APIStatusError], expected: tuple[int, str]
) -> None:
    status, kind = sent
    body = f'{{"type":"error","error":{{"type":"{kind}","message":"No."}},"request_id":"req_1"}}'.encode()
    server.enqueue(*[reply(body, status, headers="retry-after: 0\r\n")] * 3)
    with pytest.raises(shown) as failed:
        ask(make_client(claude), streams=True, model="claude", messages=[{"role": "user", "content": "Hi"}])
    assert (failed.value.status_code, failed.value.type) == expected
    assert KEY not in str(failed.value)


def test_error_in_mid_stream_is_raised(claude: Gateway, server: ModelServer) -> None:
    server.enqueue(
        frames(
            START,
            '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
            '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Noo"}}',
            '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        )
    )
    with pytest.raises(APIStatusError, match="Overloaded") as failed:
        ask(make_client(claude), streams=True, model="claude", messages=[{"role": "user", "content": "Hi"}])
    assert failed.value.type == "overloaded_error"


def test_key_is_taken_from_the_x_api_key_header() -> None:
    digest = sha256(b"sk-ann").hexdigest()
    config = f'[[keys]]\nname = "ann"\nsha256 = "{digest}"\n[models.demo]\nprovider = "demo"\n'
    with running(config) as gateway:
        hi: list[Any] = [{"role": "user", "content": "Hi"}]
        assert text_of(ask(make_client(gateway, "sk-ann"), streams=False, model="demo", messages=hi))
        with pytest.raises(AuthenticationError) as refused:
            ask(make_client(gateway, "sk-bob"), streams=False, model="demo", messages=hi)
        assert refused.value.type == "authentication_error"


# Gateway tools


APPROVED = """
[models.asked]
provider = "demo"
toolsets = ["asking"]

[models.free]
provider = "demo"
toolsets = ["mine"]
status = "text"

[toolsets.asking]
kind = "python"
module = "loop_tools"
allow = ["get_weather"]
prefix = "my_"
"""


def test_gateway_tools_run_and_ask_on_this_api() -> None:
    with running_tools(APPROVED) as tooled, ThreadPoolExecutor(1) as thread:
        client, approver = make_client(tooled.gateway), Approver(tooled.gateway)
        messages: list[Any] = [{"role": "user", "content": ONE}]
        for streams in (False, True):
            answer = thread.submit(ask, client, streams=streams, model="asked", messages=messages)
            approver.allow("my_get_weather", arguments={"city": "Rome"})
            message = answer.result(60)
            assert [block.type for block in message.content] == ["text"]
            assert "18 degrees in Rome" in text_of(message)
            assert message.stop_reason == "end_turn"
            assert tooled.runs() == ["get_weather Rome"]
        shown = text_of(ask(client, streams=True, model="free", messages=messages))
        assert "get_weather" in shown
        assert "18 degrees in Paris" in shown
