"""Stored responses over plain HTTP: what the SDKs do not show. tests/oracles has their stories."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, MODEL, REST, STREAMED, ModelServer, configuration, frames, whole
from tests.upstream import Gate

Json = dict[str, Any]
UNKNOWN = "resp_" + "0" * 20


def create(gateway: Gateway, text: str = "Hi", **members: Any) -> Json:
    response = gateway.post("/v1/responses", {"model": MODEL, "input": text, **members})
    assert response.status_code == 200, response.text
    body: Json = response.json()
    return body


def test_response_is_found_with_and_without_v1(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(whole())
    created = create(gateway)
    for path in ("/v1/responses", "/responses"):
        assert gateway.get(f"{path}/{created['id']}").json() == created
        assert gateway.get(f"{path}/{created['id']}?stream=false").json() == created


def test_deleting_responds_as_openai_does(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(whole())
    created = create(gateway)
    deleted = httpx.delete(f"{gateway.v1}/responses/{created['id']}")
    assert deleted.json() == {"id": created["id"], "object": "response", "deleted": True}
    assert httpx.delete(f"{gateway.v1}/responses/{created['id']}").status_code == 404


def test_error_has_openais_format(gateway: Gateway) -> None:
    response = gateway.get(f"/v1/responses/{UNKNOWN}")
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "response_not_found")
    assert UNKNOWN in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", f"/v1/responses/{UNKNOWN}", {"GET", "DELETE", "OPTIONS", "HEAD"}),
        ("GET", f"/v1/responses/{UNKNOWN}/cancel", {"POST", "OPTIONS"}),
        ("POST", f"/v1/responses/{UNKNOWN}/input_items", {"GET", "OPTIONS", "HEAD"}),
    ],
)
def test_other_methods_are_refused(gateway: Gateway, method: str, path: str, allowed: set[str]) -> None:
    response = httpx.request(method, gateway.url + path)
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) <= allowed


def test_list_options_are_checked(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(whole())
    created = create(gateway)
    for query, param in (("limit=0", "limit"), ("order=up", "order"), ("after=msg_1", "after")):
        response = gateway.get(f"/v1/responses/{created['id']}/input_items?{query}")
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_stream_of_a_background_response_ends_with_done(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(STREAMED)
    streamed = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", "background": True, "stream": True})
    events = frames(streamed.content)
    again = gateway.get(f"/v1/responses/{events[0]['response']['id']}?stream=true")
    assert again.headers["content-type"].startswith("text/event-stream")
    assert again.content == streamed.content


def test_background_stream_is_kept_alive_by_events_while_the_model_is_silent(model_server: ModelServer) -> None:
    before, middle = Gate(), Gate()
    model_server.enqueue([before, BEGUN, middle, REST])
    with running(configuration(model_server, before="[server]\nkeepalive_seconds = 0.05\n")) as gateway:
        body = {"model": MODEL, "input": "Hi", "background": True, "stream": True}
        seen: list[Json] = []
        repeated = 0
        with httpx.stream("POST", f"{gateway.v1}/responses", json=body, timeout=30) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                seen.append(json.loads(line.removeprefix("data: ")))
                repeated += seen[-1]["type"] == "response.in_progress"
                if repeated == 4:
                    before.open()
                if repeated == 8:
                    middle.open()
        again = frames(gateway.get(f"/v1/responses/{seen[0]['response']['id']}?stream=true").content)
    assert [event["type"] for event in seen[:2]] == ["response.created", "response.in_progress"]
    signs = [number for number, event in enumerate(seen) if number > 1 and event["type"] == "response.in_progress"]
    assert len(signs) >= 7
    assert [event for number, event in enumerate(seen) if number not in signs] == again  # signs are for one reader
    assert all(seen[number]["sequence_number"] == seen[number - 1]["sequence_number"] for number in signs)


def test_conversation_of_a_response_is_shown(gateway: Gateway, model_server: ModelServer) -> None:
    model_server.enqueue(whole())
    conversation = gateway.post("/v1/conversations", {}).json()["id"]
    created = create(gateway, conversation={"id": conversation})
    assert created["conversation"] == {"id": conversation}
    assert gateway.get(f"/v1/responses/{created['id']}").json() == created


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"conversation": {}}, "conversation"),
        ({"conversation": {"id": 5}}, "conversation"),
        ({"conversation": ""}, "conversation"),
        ({"conversation": []}, "conversation"),
        ({"background": "yes"}, "background"),
        ({"store": "yes"}, "store"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference"}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": 5}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": None}]}, "input[0]"),
        ({"previous_response_id": ""}, "previous_response_id"),
    ],
)
def test_bad_state_members_are_refused(gateway: Gateway, members: Json, param: str) -> None:
    response = gateway.post("/v1/responses", {"model": MODEL, "input": "Hi", **members})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
