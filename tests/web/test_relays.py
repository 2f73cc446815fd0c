"""Embeddings and completions, which are passed on to the model's server as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest
from openai import APIStatusError, NotFoundError, OpenAI

from tests.gateway import Gateway, running
from tests.model_server import KEY, ModelServer, configuration
from tests.raw_client import RawClient
from tests.upstream import CLOSE, LAST_CHUNK, Gate, chunk, reply, stream_head

EMBEDDINGS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
    "model": "nomic",
    "usage": {"prompt_tokens": 4, "total_tokens": 4},
    "unknown": [1e400, "kept"],
}
HASHES = f"""
[[keys]]
name = "reader"
sha256 = "{sha256(b"sk-reader").hexdigest()}"
models = ["fa*"]
requests_per_minute = 3
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    with running(configuration(server, model='model = "nomic"', before='[models.demo]\nprovider = "demo"\n')) as started:
        yield started


def turn_lines(gateway: Gateway) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    return [line for line in lines if line["event"] == "turn"]


def test_embeddings_come_back_byte_for_byte(server: ModelServer, gateway: Gateway) -> None:  # D8
    body = json.dumps(EMBEDDINGS).replace("Infinity", "1e400").encode()
    place = server.enqueue(reply(body))
    answer = gateway.post("/v1/embeddings", {"model": "fast", "input": ["a"], "dimensions": 2, "extra": {"b": 1.50}})
    assert (answer.status_code, answer.content) == (200, body)
    asked = server.request(place).result(30)
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(asked.body) == {"model": "nomic", "input": ["a"], "dimensions": 2, "extra": {"b": 1.5}}
    line = turn_lines(gateway)[-1]
    assert (line["wire"], line["model"], line["status"], line["input_tokens"]) == ("openai_embeddings", "fast", 200, 4)


def test_sdk_gets_embeddings_with_its_default_encoding(server: ModelServer, gateway: Gateway) -> None:
    encoded = {**EMBEDDINGS, "data": [{"object": "embedding", "index": 0, "embedding": "AAAAPwAAgL4="}], "unknown": 0}
    server.enqueue(reply(json.dumps(encoded).encode()))
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        assert client.embeddings.create(model="fast", input="a").data[0].embedding == [0.5, -0.25]


def test_completions_are_streamed_as_they_come(server: ModelServer, gateway: Gateway) -> None:
    gate = Gate()
    frames = [
        b'data: {"choices":[{"text":"Hel","index":0}]}\n\n',
        b'data: {"choices":[{"text":"lo","index":0}]}\n\ndata: [DONE]\n\n',
    ]
    server.enqueue((stream_head() + chunk(frames[0]), gate, chunk(frames[1]) + b"0\r\n\r\n"))
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        texts = []
        for piece in client.completions.create(model="fast", prompt="Say hello", stream=True):
            texts.append(piece.choices[0].text)
            gate.open()
    assert texts == ["Hel", "lo"]


def test_stream_that_breaks_ends_with_an_error(server: ModelServer, gateway: Gateway) -> None:
    server.enqueue((stream_head() + chunk(b"data: 1\n\n"), CLOSE))
    answer = gateway.post("/v1/completions", {"model": "fast", "prompt": "a", "stream": True})
    assert answer.status_code == 200
    assert json.loads(answer.text.split("data: ")[-1])["error"]["code"] == "upstream_cut"
    assert turn_lines(gateway)[-1]["code"] == "upstream_cut"


def test_error_of_the_server_is_passed_on_without_the_key(server: ModelServer, gateway: Gateway) -> None:
    server.enqueue(reply(json.dumps({"error": {"message": f"no {KEY}", "code": "bad"}}).encode(), 400))
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client, pytest.raises(APIStatusError) as failed:
        client.embeddings.create(model="fast", input="a")
    assert (failed.value.status_code, failed.value.code) == (400, "bad")
    assert KEY not in failed.value.message


def test_embeddings_of_fifty_megabytes_are_passed_on_and_more_than_the_limit_is_an_error(
    server: ModelServer, gateway: Gateway
) -> None:
    big = b'{"data":"' + b"x" * 50_000_000 + b'"}'
    server.enqueue(reply(big), stream_head("application/json") + chunk(b"x" * 1_000_000) * 70 + LAST_CHUNK)
    assert gateway.post("/v1/embeddings", {"model": "fast", "input": "a"}).content == big
    refused = gateway.post("/v1/embeddings", {"model": "fast", "input": "a"})
    assert refused.status_code == 502
    assert "more than 67108864 bytes" in refused.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"model": 1}', b'{"model": "fast"'])
def test_malformed_body_is_refused(gateway: Gateway, body: bytes) -> None:
    with RawClient(gateway.port) as client:
        client.send(b"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert client.reply().status == 400


def test_model_without_a_server_has_no_embeddings(gateway: Gateway) -> None:
    refused = gateway.post("/v1/embeddings", {"model": "demo", "input": "a"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_by_upstream")


def test_client_that_leaves_ends_the_request(server: ModelServer, gateway: Gateway) -> None:
    gate = Gate()
    asked = server.enqueue((gate,))
    with RawClient(gateway.port) as client:
        client.post("/v1/embeddings", {"model": "fast", "input": "a"})
        gate.reached.result(30)
    server.closed(asked).result(30)


def test_keys_and_rate_limits_apply(server: ModelServer) -> None:
    with running(configuration(server, before=HASHES + '[models.demo]\nprovider = "demo"\n')) as keyed:
        ask = {"model": "fast", "input": "a"}
        assert keyed.post("/v1/embeddings", ask).status_code == 401
        key = {"authorization": "Bearer sk-reader"}
        server.enqueue(*[reply(b"{}")] * 2)
        assert [keyed.post("/v1/embeddings", ask, **key).status_code for _ in range(2)] == [200, 200]
        assert keyed.post("/v1/embeddings", {**ask, "model": "demo"}, **key).status_code == 404
        assert keyed.post("/v1/embeddings", ask, **key).status_code == 429


@pytest.mark.parametrize("path", ["/v1/images/generations", "/v1/audio/speech", "/api/tags"])
def test_other_endpoints_say_what_the_gateway_has(gateway: Gateway, path: str) -> None:  # D8
    refused = gateway.post(path, {"model": "fast"})
    assert refused.status_code == 404
    assert "Toolrelay" in refused.json()["error"]["message"]
    assert "/chat/completions" in refused.json()["error"]["message"]


@pytest.mark.parametrize(("asked", "hint"), [("fats", "'fast'"), ("Fast", "'fast'"), ("x" * 10_000, "GET /v1/models")])
def test_unknown_model_is_answered_with_the_nearest_names(gateway: Gateway, asked: str, hint: str) -> None:
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client, pytest.raises(NotFoundError) as failed:
        client.chat.completions.create(model=asked, messages=[{"role": "user", "content": "hi"}])
    assert hint in failed.value.message
    assert len(failed.value.message) < 600


def test_models_have_the_members_that_pickers_read(gateway: Gateway) -> None:
    """OpenAI's SDKs, LangChain and pydantic-ai read OpenAI's members; Codex (0.163), opencode and llm ask for no list."""
    listed = gateway.get("/v1/models").json()["data"]
    assert [model["name"] for model in listed] == ["demo", "fast"]  # Obsidian Copilot and Open WebUI show it
    for model in listed:
        assert gateway.get(f"/v1/models/{model['id']}").json() == model
        assert {"id": str, "object": str, "created": int, "owned_by": str, "name": str}.items() <= {
            (key, type(value)) for key, value in model.items()
        }
        assert model["owned_by"] not in ("ollama", "arena")  # for Open WebUI these are not OpenAI's API
