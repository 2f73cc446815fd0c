"""Ollama over its own API, which can set the context's length: `wire = "ollama"`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, ModelServer
from tests.upstream import LAST_CHUNK, chunk, reply, stream_head
from toolrelay.app import open_models
from toolrelay.config import load
from toolrelay.errors import ConfigurationError

CHAT = "/v1/chat/completions"
DONE = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}
HI = [{"role": "user", "content": "Hi"}]
TOOL = CLIENT_APIS["openai_chat"].tool("get_weather")
CALL = {"id": "call_k2v", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}}


def line(done: bool = False, **message: Any) -> dict[str, Any]:  # noqa: FBT001, FBT002 -- Ollama's own member
    return {"model": "m", "message": {"role": "assistant", "content": "", **message}, **(DONE if done else {"done": False})}


def streamed(*lines: dict[str, Any]) -> bytes:
    pieces = [chunk(json.dumps(each).encode() + b"\n") for each in lines]
    return stream_head("application/x-ndjson") + b"".join(pieces) + LAST_CHUNK


def whole(**message: Any) -> bytes:
    return reply(json.dumps(line(done=True, **message)).encode())


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    tables = [
        f'[models.long]\nprovider = "ollama"\nbase_url = "{server.url}/v1"\ncontext_length = 16384\nkeep_alive = "1h"\n',
        f'[models.plain]\nprovider = "ollama"\nbase_url = "{server.url}/v1"\n',
        f'[models.bare]\nprovider = "compatible"\nbase_url = "{server.url}"\nwire = "ollama"\n',
        f'[models.old]\nprovider = "ollama"\nbase_url = "{server.url}/v1"\nwire = "ollama"\n',
        f'[models.printing]\nprovider = "ollama"\nmodel = "qwen3:8b"\nbase_url = "{server.url}/v1"\nwire = "ollama"\n',
    ]
    with running("".join(tables)) as started:
        yield started


def test_context_length_chooses_the_own_api(gateway: Gateway, server: ModelServer) -> None:
    first = server.enqueue(whole(content="Hello"))
    answer = gateway.post(CHAT, {"model": "long", "messages": HI, "max_tokens": 9}).json()
    assert server.request(first).result(30).path == "/api/chat"
    sent = server.request_body(first)
    assert (sent["options"], sent["keep_alive"], sent["stream"]) == ({"num_predict": 9, "num_ctx": 16384}, "1h", False)
    assert answer["choices"][0]["message"]["content"] == "Hello"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (5, 2)


def test_without_it_the_compatible_api_is_used(gateway: Gateway, server: ModelServer) -> None:
    first = server.enqueue(reply(b'{"choices":[{"index":0,"message":{"content":"Hello"},"finish_reason":"stop"}]}'))
    assert gateway.post(CHAT, {"model": "plain", "messages": HI}).status_code == 200
    assert server.request(first).result(30).path == "/v1/chat/completions"


def test_base_url_may_lack_v1_and_embeddings_are_below_it(gateway: Gateway, server: ModelServer) -> None:
    first = server.enqueue(whole(content="Hello"), reply(b'{"object":"list","data":[]}'))
    assert gateway.post(CHAT, {"model": "bare", "messages": HI}).status_code == 200
    assert gateway.post("/v1/embeddings", {"model": "bare", "input": "Hi"}).status_code == 200
    assert [server.request(first + place).result(30).path for place in (0, 1)] == ["/api/chat", "/v1/embeddings"]


@pytest.mark.parametrize("name", CLIENT_APIS)
def test_every_client_streams_thinking_text_and_calls(gateway: Gateway, server: ModelServer, name: str) -> None:
    api = CLIENT_APIS[name]
    server.enqueue(streamed(line(thinking="Hmm"), line(content="I look."), line(tool_calls=[CALL]), line(done=True)))
    body = api.request_body(tools=[api.tool("get_weather")], stream=True, max_tokens=50) | {"model": "long"}
    if name == "openai_responses":
        del body["max_tokens"]
    answer = gateway.post(api.path, body)
    assert answer.status_code == 200, answer.text
    for word in ("Hmm", "I look.", "get_weather", r"{\"city\": \"Paris\"}"):
        assert word in answer.text


def test_tool_loop_sends_the_result_with_the_tools_name(gateway: Gateway, server: ModelServer) -> None:
    first = server.enqueue(whole(thinking="Hmm", tool_calls=[CALL]), whole(content="18 degrees"))
    message = gateway.post(CHAT, {"model": "long", "messages": HI, "tools": [TOOL]}).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "18"}
    gateway.post(CHAT, {"model": "long", "messages": [*HI, message, result], "tools": [TOOL]})
    _, called, answered = server.request_body(first + 1)["messages"]
    assert called["thinking"] == "Hmm"
    assert called["tool_calls"][0]["function"] == {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}
    assert (answered["role"], answered["tool_name"], answered["content"]) == ("tool", "get_weather", "18")


def test_required_call_is_constrained_by_format(gateway: Gateway, server: ModelServer) -> None:
    first = server.enqueue(streamed(line(content='{"name": "get_weather", "arguments": {}}'), line(done=True)))
    answer = gateway.post(CHAT, {"model": "long", "messages": HI, "tools": [TOOL], "tool_choice": "required"})
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    sent = server.request_body(first)
    assert ("tools" in sent, "get_weather" in json.dumps(sent["format"])) == (False, True)


def test_model_without_tools_is_asked_in_text_from_then_on(gateway: Gateway, server: ModelServer) -> None:
    refusal = reply(b'{"error":"registry.ollama.ai/library/llama3:8b does not support tools"}', 400)
    first = server.enqueue(refusal, whole(content="Hello"), whole(content="Hello"))
    for _ in range(2):
        assert gateway.post(CHAT, {"model": "old", "messages": HI, "tools": [TOOL]}).status_code == 200
    assert ["tools" in server.request_body(first + place) for place in range(3)] == [True, False, False]


def test_printed_call_of_a_model_with_tools_becomes_a_call(gateway: Gateway, server: ModelServer) -> None:
    printed = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    server.enqueue(streamed(line(content=printed[:20]), line(content=printed[20:]), line(done=True)))
    answer = gateway.post(CHAT, {"model": "printing", "messages": HI, "tools": [TOOL]})
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


def test_unknown_model_is_a_404_and_an_error_in_the_stream_is_told(gateway: Gateway, server: ModelServer) -> None:
    server.enqueue(reply(b'{"error":"model \'m\' not found"}', 404), streamed(line(content="a"), {"error": "out of memory"}))
    unknown = gateway.post(CHAT, {"model": "long", "messages": HI})
    assert (unknown.status_code, "model 'm' not found" in unknown.json()["error"]["message"]) == (404, True)
    assert "out of memory" in gateway.post(CHAT, {"model": "long", "messages": HI, "stream": True}).text


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('provider = "openai"\ncontext_length = 8', "context_length: only wire = \"ollama\" can say it, not 'chat'."),
        ('provider = "ollama"\nwire = "chat"\nkeep_alive = "1h"', "keep_alive: only wire = \"ollama\" can say it, not 'chat'."),
        ('provider = "ollama"\nkeep_alive = "soon"', 'keep_alive: expected a time such as "30m", or seconds such as "90"'),
        ('provider = "ollama"\ncontext_length = -1', "context_length: expected a whole number, 0 or above, found -1"),
    ],
)
def test_keys_that_the_wire_cannot_say_are_refused(table: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "toolrelay.toml"
    file.write_text(f"[models.m]\n{table}\n")
    with pytest.raises(ConfigurationError) as refused:
        open_models(load(str(file), {}))
    assert f"models.m.{problem}" in refused.value.message
