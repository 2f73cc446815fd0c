"""Conversations over plain HTTP: what the SDKs do not show. tests/oracles has their stories."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway import Gateway
from tests.model_server import MODEL, ModelServer, error, whole

Json = dict[str, Any]
HELLO: Json = {"type": "message", "role": "user", "content": "Hello"}


def create(gateway: Gateway, **members: Any) -> str:
    response = gateway.post("/v1/conversations", members)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


def listed(gateway: Gateway, conversation: str) -> list[Json]:
    data: list[Json] = gateway.get(f"/v1/conversations/{conversation}/items?order=asc").json()["data"]
    return data


def test_conversation_is_created_without_a_body(gateway: Gateway) -> None:
    created = httpx.post(f"{gateway.v1}/conversations").json()
    assert created == {"id": created["id"], "object": "conversation", "created_at": created["created_at"], "metadata": {}}
    assert gateway.get(f"/conversations/{created['id']}").json() == created


def test_deleting_responds_as_openai_does(gateway: Gateway) -> None:
    conversation = create(gateway)
    deleted = httpx.delete(f"{gateway.v1}/conversations/{conversation}")
    assert deleted.json() == {"id": conversation, "object": "conversation.deleted", "deleted": True}
    assert httpx.delete(f"{gateway.v1}/conversations/{conversation}").status_code == 404


def test_items_have_the_shape_of_responses(gateway: Gateway) -> None:
    items: list[Json] = [
        HELLO,
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"},
    ]
    found = listed(gateway, create(gateway, items=items))
    assert [item["type"] for item in found] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
    ]
    assert found[0]["content"] == [{"type": "input_text", "text": "Hello"}]
    assert found[4]["encrypted_content"] == "secret"
    assert len({item["id"] for item in found}) == 5


def test_deleted_conversation_takes_no_response(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(whole())
    conversation = create(gateway, items=[HELLO])
    first = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", "conversation": conversation}).json()
    httpx.delete(f"{gateway.v1}/conversations/{conversation}")
    gone = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", "conversation": conversation})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "conversation_not_found")
    chained = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", "previous_response_id": first["id"]})
    assert (chained.status_code, chained.json()["error"]["param"]) == (400, "previous_response_id")
    assert gateway.get(f"/v1/responses/{first['id']}").json() == first


def test_failed_response_adds_nothing_to_its_conversation(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(error(400))
    conversation = create(gateway, items=[HELLO])
    failed = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", "conversation": conversation})
    assert failed.status_code == 400
    assert len(listed(gateway, conversation)) == 1


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"items": {}}', b'{"metadata": []}', b"\xff"])
def test_bad_body_is_refused(gateway: Gateway, body: bytes) -> None:
    conversation = create(gateway)
    for path in ("/conversations", f"/conversations/{conversation}", f"/conversations/{conversation}/items"):
        response = httpx.post(gateway.v1 + path, content=body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"items": []}'])
def test_update_without_metadata_is_refused_and_keeps_it(gateway: Gateway, body: bytes) -> None:
    conversation = create(gateway, metadata={"a": "b"})
    url = f"{gateway.v1}/conversations/{conversation}"
    error = httpx.post(url, content=body).json()["error"]
    assert (error["message"], error["param"]) == ("'metadata' is missing.", "metadata")
    assert httpx.get(url).json()["metadata"] == {"a": "b"}
    assert httpx.post(url, json={"metadata": None}).json()["metadata"] == {}


def test_items_must_hold_one_to_twenty(gateway: Gateway) -> None:
    conversation = create(gateway)
    path = f"/v1/conversations/{conversation}/items"
    assert [gateway.post(path, {"items": [HELLO] * count}).status_code for count in (0, 1, 20, 21)] == [400, 200, 200, 400]
    assert gateway.post(path, {}).json()["error"]["param"] == "items"
    assert gateway.get(f"{path}?limit=100").json()["has_more"] is False


def test_other_methods_are_refused(gateway: Gateway) -> None:
    assert httpx.get(f"{gateway.v1}/conversations").status_code == 405
    assert httpx.put(f"{gateway.v1}/conversations/conv_1").status_code == 405
    assert httpx.post(f"{gateway.v1}/conversations/conv_1/items/msg_1").status_code == 405


def test_output_without_its_call_is_reported_as_the_conversations(gateway: Gateway) -> None:
    conversation = create(gateway, items=[{"type": "function_call_output", "call_id": "call_1", "output": "18 °C"}])
    refused = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", "conversation": conversation})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "conversation")
    assert "call_1" in refused.json()["error"]["message"]
