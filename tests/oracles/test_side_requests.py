"""OpenAI's Python SDK: counting the input tokens of a response, and compacting a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.gateway import Gateway, running
from tests.model_server import STREAMED, ModelServer, configuration, error
from tests.oracles.tools import RESPONSES_TOOLS
from tests.upstream import reply

COMPACTED: dict[str, Any] = {
    "id": "resp_up",
    "object": "response.compaction",
    "created_at": 1,
    "output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}],
    "usage": {
        "input_tokens": 139,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 438,
        "output_tokens_details": {"reasoning_tokens": 64},
        "total_tokens": 577,
    },
}
ANSWER: dict[str, Any] = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [], "usage": None}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    """The models `fast`, over Chat, and `full`, over Responses."""
    full = f'[models.full]\nprovider = "compatible"\nwire = "responses"\nbase_url = "{server.url}/v1"\nmodel = "up"\n'
    with running(configuration(server, before=full)) as started:
        yield started


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as opened:
        yield opened


def test_server_that_counts_is_asked(client: OpenAI, server: ModelServer) -> None:
    first = server.enqueue(reply(b'{"object":"response.input_tokens","input_tokens":11}'), error(404), error(500))
    asked = client.responses.with_raw_response.input_tokens.count(
        model="full", input="Hi", instructions="Be brief.", tools=RESPONSES_TOOLS[:1], extra_body={"personality": "friendly"}
    )
    assert json.loads(asked.text) == {"object": "response.input_tokens", "input_tokens": 11}
    assert asked.parse().input_tokens == 11
    assert server.request(first).result(60).path == "/v1/responses/input_tokens"
    sent = server.request_body(first)
    assert sent.keys() == {"model", "input", "instructions", "tools", "personality"}
    assert (sent["model"], sent["instructions"]) == ("up", "Be brief.")
    estimated = client.responses.with_raw_response.input_tokens.count(model="full", input="Hi")
    assert estimated.headers["x-toolrelay-estimated"] == "true"
    with pytest.raises(Exception, match="500"):
        client.responses.input_tokens.count(model="full", input="Hi")


def test_count_of_a_server_that_cannot_is_an_estimate(client: OpenAI, server: ModelServer) -> None:
    server.enqueue(STREAMED)
    first = client.responses.create(model="fast", input="x" * 4000, stream=True)
    response_id = [event.response.id for event in first if event.type == "response.completed"][0]  # noqa: RUF015 -- reads all
    alone = client.responses.with_raw_response.input_tokens.count(model="fast", input="Hi")
    continued = client.responses.input_tokens.count(model="fast", previous_response_id=response_id)
    assert json.loads(alone.text)["estimated"] is True
    assert alone.headers["x-toolrelay-estimated"] == "true"
    assert alone.parse().input_tokens < 20
    assert 900 < continued.input_tokens < 1100
    with pytest.raises(BadRequestError) as refused:
        client.responses.input_tokens.count(model="fast", previous_response_id="resp_unknown")
    assert refused.value.code == "previous_response_not_found"


def test_compaction_is_done_by_the_server_with_the_whole_conversation(
    client: OpenAI, server: ModelServer, gateway: Gateway
) -> None:
    first = server.enqueue(
        reply(json.dumps(ANSWER).encode()), reply(json.dumps(COMPACTED).encode()), reply(json.dumps(ANSWER).encode())
    )
    stored = client.responses.create(model="full", input="One")
    compacted = client.responses.compact(
        model="full", input="Two", previous_response_id=stored.id, instructions="Be brief.", prompt_cache_key="k"
    )
    assert compacted.object == "response.compaction"
    assert compacted.output[0].type == "compaction"
    assert server.request(first + 1).result(60).path == "/v1/responses/compact"
    sent = server.request_body(first + 1)
    assert sent.keys() == {"model", "input", "instructions", "prompt_cache_key"}
    assert [item["content"] for item in sent["input"]] == ["One", "Two"]
    [line] = [line for line in map(json.loads, gateway.log().splitlines()) if line.get("wire") == "openai_responses_compact"]
    assert (line["event"], line["status"], line["input_tokens"], line["output_tokens"]) == ("turn", 200, 139, 438)
    # The client goes on with what it was given.
    given: list[Any] = [*[item.to_dict() for item in compacted.output], {"role": "user", "content": "Three"}]
    client.responses.create(model="full", input=given)
    assert server.request_body(first + 2)["input"][0] == COMPACTED["output"][0]


def test_compaction_without_a_server_for_it_is_refused(client: OpenAI, server: ModelServer) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.responses.compact(model="fast", input="One")
    assert refused.value.code == "unsupported_by_upstream"
    assert "/responses/compact" in refused.value.message
    with pytest.raises(NotFoundError):
        client.responses.compact(model="unknown", input="One")
    server.enqueue(error(404, "no such page"))
    with pytest.raises(NotFoundError, match="no such page"):
        client.responses.compact(model="full", input="One")


def test_get_of_these_paths_is_no_retrieval(gateway: Gateway) -> None:
    for path in ("/v1/responses/compact", "/v1/responses/input_tokens"):
        refused = gateway.get(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (405, "method_not_allowed")
