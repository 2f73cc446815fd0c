"""The API endpoints: refused requests, upstream errors, model settings and limits."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.model_server import (
    BEGUN,
    CLIENT_APIS,
    KEY,
    MODEL,
    REST,
    STREAMED,
    ClientApi,
    ModelServer,
    configuration,
    error,
    error_members,
    failure,
    frames,
    whole,
)
from tests.raw_client import RawClient, encode_request
from tests.upstream import CLOSE, RESET, Disconnect, Gate, chunk, stream_head

CHAT = CLIENT_APIS["openai_chat"]
RESPONSES = CLIENT_APIS["openai_responses"]


def refusal(gateway: Gateway, path: str, body: object, status: int) -> dict[str, Any]:
    """Return the error object, after checking what every refusal has."""
    response = gateway.post(path, body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    found = error_members(response.json())
    assert found["message"]
    return found


# Success


def test_whole_answer_is_relayed(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    asked = model_server.enqueue(whole("Hello there"))
    answer = gateway.post(api.path, api.request_body("Hi"))
    assert answer.status_code == 200
    assert api.text(answer.json()) == "Hello there"
    assert model_server.request_body(asked)["model"] == MODEL
    assert model_server.request(asked).result(30).headers["authorization"] == f"Bearer {KEY}"


def test_streamed_answer_is_relayed(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(STREAMED)
    answer = gateway.post(api.path, api.request_body("Hi", stream=True))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert frames(answer.content)


def test_each_turn_has_its_own_id(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole(), whole())
    ids = [gateway.post(api.path, api.request_body()).headers["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1]


# Invalid requests


@pytest.mark.parametrize(
    "body", [b"", b"{", b"not JSON", b"[]", b'"text"', b"\xff\xfe{}", b'{"model":' * 100_000, b'{"a":"\\ud800","b":' * 700]
)
def test_body_that_is_no_json_object_is_a_400(gateway: Gateway, api: ClientApi, body: bytes) -> None:  # bug 39
    with RawClient(gateway.port) as client:
        reply = client.send(encode_request("POST", api.path, body)).reply()
    assert reply.status == 400
    assert reply.json()["error"]["code"] == "invalid_json"
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_wrong_type_names_the_parameter(gateway: Gateway, api: ClientApi) -> None:
    found = refusal(gateway, api.path, api.request_body(temperature="warm"), 400)
    assert found["param"] == "temperature"
    assert found["code"] == "invalid_type"


def test_unknown_model_is_a_404(gateway: Gateway, api: ClientApi) -> None:
    found = refusal(gateway, api.path, {**api.request_body(), "model": "slow"}, 404)
    assert found["code"] == "model_not_found"
    assert found["param"] == "model"
    assert "slow" in found["message"]


def test_unknown_model_names_the_nearest(gateway: Gateway, api: ClientApi) -> None:
    found = refusal(gateway, api.path, {**api.request_body(), "model": "FASTER"}, 404)
    assert "Did you mean 'fast'?" in found["message"]


def test_missing_model_is_a_400(gateway: Gateway, api: ClientApi) -> None:
    body = api.request_body()
    del body["model"]
    assert refusal(gateway, api.path, body, 400)["param"] == "model"


@pytest.mark.parametrize("items", [[], None])
def test_missing_messages_are_a_400(gateway: Gateway, api: ClientApi, items: object) -> None:
    found = refusal(gateway, api.path, {"model": MODEL, api.items: items}, 400)
    assert found["param"] == api.items


def test_tool_choice_of_an_undeclared_tool_is_refused(gateway: Gateway, api: ClientApi) -> None:
    choice = api.choice("search")
    found = refusal(gateway, api.path, api.request_body(tools=[api.tool("read")], tool_choice=choice), 400)
    assert (found["param"], found["code"]) == ("tool_choice", "unknown_tool")


@pytest.mark.parametrize(
    ("api", "orphan"),
    [
        (CHAT, {"role": "tool", "tool_call_id": "call_nowhere", "content": "42"}),
        (RESPONSES, {"type": "function_call_output", "call_id": "call_nowhere", "output": "42"}),
    ],
)
def test_result_without_its_call_is_refused(gateway: Gateway, api: ClientApi, orphan: dict[str, str]) -> None:  # bug 30
    body = api.request_body()
    body[api.items].append(orphan)
    found = refusal(gateway, api.path, body, 400)
    assert found["code"] == "unknown_call"
    assert "call_nowhere" in found["message"]


def test_previous_response_id_is_refused(gateway: Gateway) -> None:  # bug 41
    found = refusal(gateway, RESPONSES.path, RESPONSES.request_body(previous_response_id="resp_1"), 400)
    assert found["param"] == "previous_response_id"


def test_refused_request_does_not_reach_the_upstream(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    before = len(model_server.requests)
    gateway.post(api.path, api.request_body(temperature="warm"))
    gateway.post(api.path, {"model": MODEL, api.items: []})
    assert len(model_server.requests) == before


# Upstream errors before the first byte


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 403, 404, 422, 500])
def test_key_quoted_in_an_upstream_error_is_redacted(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, status: int, *, stream: bool
) -> None:
    model_server.enqueue(error(status, f"bad header: Bearer {KEY}", code=KEY))
    response = gateway.post(api.path, api.request_body(stream=stream))
    assert response.status_code == status
    assert "bad header" in response.text
    assert KEY not in response.text
    assert KEY not in gateway.log()


def test_key_quoted_in_an_upstream_stream_is_redacted(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    frame = json.dumps({"error": {"message": f"lost the connection of {KEY}", "code": "x"}}).encode()
    model_server.enqueue((BEGUN, chunk(b"data: " + frame + b"\n\n"), CLOSE))
    response = gateway.post(api.path, api.request_body(stream=True))
    assert "lost the connection" in response.text
    assert KEY not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_401_is_a_502(gateway: Gateway, model_server: ModelServer, api: ClientApi, *, stream: bool) -> None:  # bug 39
    model_server.enqueue(error(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"))
    response = gateway.post(api.path, api.request_body(stream=stream))
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_auth"
    assert KEY not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_429_is_relayed_with_retry_after(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, *, stream: bool
) -> None:
    model_server.enqueue(error(429, "slow down", "retry-after: 30.2\r\n", type="tokens", code="rate_limit_exceeded"))
    response = gateway.post(api.path, api.request_body(stream=stream))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "31", "rounded up"
    found = error_members(response.json())
    assert found.pop("type") in ("tokens", "rate_limit_error")  # Anthropic's API has one for each status
    assert found == {"message": "slow down", "param": None, "code": "rate_limit_exceeded"}


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_error_keeps_status_and_code(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, *, stream: bool
) -> None:
    model_server.enqueue(error(400, "context too long", code="context_length_exceeded", param="messages"))
    response = gateway.post(api.path, api.request_body(stream=stream))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_error_as_first_stream_event_is_an_http_error(
    gateway: Gateway, model_server: ModelServer, api: ClientApi
) -> None:  # bug 39
    model_server.enqueue(stream_head() + chunk(b'data: {"error": {"message": "no GPU is free", "code": 503}}\n\n') + b"0\r\n\r\n")
    response = gateway.post(api.path, api.request_body(stream=True))
    assert response.status_code >= 500
    assert "no GPU is free" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_unreachable_upstream_is_named(api: ClientApi, *, stream: bool) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = reserved.getsockname()[1]
        model = f'[models.fast]\nprovider = "compatible"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        with running(model) as gateway:
            found = refusal(gateway, api.path, api.request_body(stream=stream), 502)
    assert found["code"] == "upstream_unreachable"
    assert f"127.0.0.1:{port}" in found["message"]


@pytest.mark.parametrize("ending", [CLOSE, RESET])
def test_truncated_whole_answer_is_an_error(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, ending: Disconnect
) -> None:
    model_server.enqueue((whole()[:-10], ending))
    assert refusal(gateway, api.path, api.request_body(), 502)["code"] == "upstream_cut"


# Upstream errors after the first byte


@pytest.mark.parametrize("ending", [CLOSE, RESET])
def test_truncated_stream_ends_with_an_error(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, ending: Disconnect
) -> None:  # bug 38
    model_server.enqueue((BEGUN, ending))
    with RawClient(gateway.port) as client:
        reply = client.post(api.path, api.request_body(stream=True)).reply()
        assert reply.status == 200
        assert failure(reply.body)["code"] == "upstream_cut"
        assert client.get("/healthz").reply().status == 200, "the connection is reusable"


def test_stream_without_done_ends_with_an_error(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:  # bug 38
    model_server.enqueue(BEGUN + b"0\r\n\r\n")
    response = gateway.post(api.path, api.request_body(stream=True))
    assert response.status_code == 200
    assert failure(response.content)


def test_error_during_a_stream_is_relayed(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:  # bug 38
    model_server.enqueue(BEGUN + chunk(b'data: {"error": {"message": "out of memory", "code": "oom"}}\n\n') + b"0\r\n\r\n")
    response = gateway.post(api.path, api.request_body(stream=True))
    assert response.status_code == 200
    assert "out of memory" in failure(response.content)["message"]


# Model settings


def test_model_with_tool_calling_off_gets_no_tools(model_server: ModelServer, api: ClientApi) -> None:
    asked = model_server.enqueue(whole())
    with running(configuration(model_server, model='tool_calling = "off"')) as gateway:
        body = api.request_body(tools=[api.tool("search")], tool_choice=api.auto, parallel_tool_calls=True)
        assert gateway.post(api.path, body).status_code == 200
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(model_server.request_body(asked))


@pytest.mark.parametrize(
    ("api", "calls"),
    [
        (
            CHAT,
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "é" * 100},
            ],
        ),
        (
            RESPONSES,
            [
                {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "é" * 100},
            ],
        ),
    ],
)
def test_long_tool_result_is_truncated_with_a_note(
    model_server: ModelServer, api: ClientApi, calls: list[dict[str, Any]]
) -> None:
    asked = model_server.enqueue(whole())
    with running(configuration(model_server, model="max_tool_result_bytes = 101")) as gateway:
        body = api.request_body()
        body[api.items] += calls
        assert gateway.post(api.path, body).status_code == 200
    [result] = [message for message in model_server.request_body(asked)["messages"] if message["role"] == "tool"]
    assert result["content"] == "é" * 50 + "\n[cut here by the gateway: at most 101 of 200 bytes are shown]"


# Body size


@pytest.fixture(scope="module")
def small_limit(model_server: ModelServer) -> Iterator[Gateway]:
    with running(configuration(model_server, before="[server]\nmax_body_bytes = 1000\n")) as gateway:
        yield gateway


def test_body_with_a_too_large_content_length_is_refused_before_it_is_sent(small_limit: Gateway, api: ClientApi) -> None:
    with RawClient(small_limit.port) as client:
        client.send(f"POST {api.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n".encode())
        reply = client.reply()
    assert reply.status == 413
    assert reply.json()["error"]["code"] == "request_too_large"
    assert "1000" in reply.json()["error"]["message"]


def test_chunked_body_that_grows_too_large_is_refused(small_limit: Gateway, api: ClientApi) -> None:
    with RawClient(small_limit.port) as client:
        client.send(f"POST {api.path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        client.send(chunk(b" " * 600))
        client.send(chunk(b" " * 600))
        assert client.reply().status == 413


@pytest.mark.parametrize("chunked", [False, True])
def test_body_of_exactly_the_limit_is_accepted(
    small_limit: Gateway, model_server: ModelServer, api: ClientApi, *, chunked: bool
) -> None:
    model_server.enqueue(whole())
    body = json.dumps(api.request_body()).encode().ljust(1000)
    with RawClient(small_limit.port) as client:
        if chunked:
            client.send(f"POST {api.path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            client.send(chunk(body[:7]) + chunk(body[7:]) + b"0\r\n\r\n")
        else:
            client.send(encode_request("POST", api.path, body))
        assert client.reply().status == 200


def test_connection_is_reusable_after_a_refused_body(small_limit: Gateway, api: ClientApi) -> None:
    with RawClient(small_limit.port) as client:
        assert client.send(encode_request("POST", api.path, b" " * 5000)).reply().status == 413
        assert client.get("/healthz").reply().status == 200


# Concurrent turns


@pytest.fixture(scope="module")
def single(model_server: ModelServer) -> Iterator[Gateway]:
    """A gateway that runs one turn at a time."""
    with running(configuration(model_server, before="[limits]\nconcurrent_turns = 1\n")) as gateway:
        yield gateway


def test_turn_above_the_concurrency_limit_is_a_503(single: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    gate = Gate()
    model_server.enqueue((BEGUN, gate, REST))
    with RawClient(single.port) as first, RawClient(single.port) as second:
        first.post(api.path, api.request_body(stream=True)).frame()
        refused = second.post(api.path, api.request_body(stream=True)).reply()
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "overloaded"
        assert second.get("/v1/models").reply().status == 200, "pages do not count as turns"
        gate.open()
        first.read_until(b"0\r\n\r\n")
    model_server.enqueue(whole())
    assert single.post(api.path, api.request_body()).status_code == 200, "success frees the slot"


@pytest.mark.parametrize("stream", [False, True])
def test_failed_turn_frees_its_slot(single: Gateway, model_server: ModelServer, api: ClientApi, *, stream: bool) -> None:
    model_server.enqueue(error(500), (BEGUN, CLOSE), whole())
    assert single.post(api.path, api.request_body(stream=stream)).status_code == 500
    single.post(api.path, api.request_body(stream=True))
    assert single.post(api.path, api.request_body()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_frees_the_slot(single: Gateway, model_server: ModelServer, api: ClientApi, *, stream: bool) -> None:
    asked = model_server.enqueue((Gate(), whole()), whole())
    with RawClient(single.port) as client:
        client.post(api.path, api.request_body(stream=stream))
        model_server.request(asked).result(30)
    model_server.closed(asked).result(30)
    single.await_no_turns()
    assert single.post(api.path, api.request_body()).status_code == 200


def test_refused_request_takes_no_slot(single: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    for _ in range(3):
        assert single.post(api.path, {"model": "slow", api.items: "Hi"}).status_code in (400, 404)
    model_server.enqueue(whole())
    assert single.post(api.path, api.request_body()).status_code == 200
