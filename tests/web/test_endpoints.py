"""The API endpoints: refused requests, upstream errors, model settings and limits."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient, encode_request
from tests.stage import BEGUN, FRONTS, KEY, MODEL, REST, STREAMED, Front, Stage, configuration, error, failure, frames, whole
from tests.upstream import CUT, RESET, Ending, Gate, chunk, stream_head

CHAT = FRONTS["openai_chat"]
RESPONSES = FRONTS["openai_responses"]


def refusal(gateway: Gateway, path: str, body: object, status: int) -> dict[str, Any]:
    """Return the error object, after checking what every refusal has."""
    response = gateway.post(path, body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    found: dict[str, Any] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["message"]
    return found


# Success


def test_whole_answer_is_relayed(gateway: Gateway, stage: Stage, front: Front) -> None:
    asked = stage.play(whole("Hello there"))
    answer = gateway.post(front.path, front.ask("Hi"))
    assert answer.status_code == 200
    assert front.text(answer.json()) == "Hello there"
    assert stage.asked(asked)["model"] == MODEL
    assert stage.request(asked).result(30).headers["authorization"] == f"Bearer {KEY}"


def test_streamed_answer_is_relayed(gateway: Gateway, stage: Stage, front: Front) -> None:
    stage.play(STREAMED)
    answer = gateway.post(front.path, front.ask("Hi", stream=True))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert frames(answer.content)


def test_each_turn_has_its_own_id(gateway: Gateway, stage: Stage, front: Front) -> None:
    stage.play(whole(), whole())
    ids = [gateway.post(front.path, front.ask()).headers["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1]


# Invalid requests


@pytest.mark.parametrize(
    "body", [b"", b"{", b"not JSON", b"[]", b'"text"', b"\xff\xfe{}", b'{"model":' * 100_000, b'{"a":"\\ud800","b":' * 700]
)
def test_body_that_is_no_json_object_is_a_400(gateway: Gateway, front: Front, body: bytes) -> None:  # bug 39
    with RawClient(gateway.port) as client:
        reply = client.send(encode_request("POST", front.path, body)).reply()
    assert reply.status == 400
    assert reply.json()["error"]["code"] == "invalid_json"
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_wrong_type_names_the_parameter(gateway: Gateway, front: Front) -> None:
    found = refusal(gateway, front.path, front.ask(temperature="warm"), 400)
    assert found["param"] == "temperature"
    assert found["code"] == "invalid_type"


def test_unknown_model_is_a_404(gateway: Gateway, front: Front) -> None:
    found = refusal(gateway, front.path, {**front.ask(), "model": "slow"}, 404)
    assert found["code"] == "model_not_found"
    assert found["param"] == "model"
    assert "slow" in found["message"]


def test_missing_model_is_a_400(gateway: Gateway, front: Front) -> None:
    body = front.ask()
    del body["model"]
    assert refusal(gateway, front.path, body, 400)["param"] == "model"


@pytest.mark.parametrize("items", [[], None])
def test_missing_messages_are_a_400(gateway: Gateway, front: Front, items: object) -> None:
    found = refusal(gateway, front.path, {"model": MODEL, front.items: items}, 400)
    assert found["param"] == front.items


def test_tool_choice_of_an_undeclared_tool_is_refused(gateway: Gateway, front: Front) -> None:
    choice = {key: value for key, value in front.tool("search").items() if key != "parameters"}
    found = refusal(gateway, front.path, front.ask(tools=[front.tool("read")], tool_choice=choice), 400)
    assert (found["param"], found["code"]) == ("tool_choice", "unknown_tool")


@pytest.mark.parametrize(
    ("front", "orphan"),
    [
        (CHAT, {"role": "tool", "tool_call_id": "call_nowhere", "content": "42"}),
        (RESPONSES, {"type": "function_call_output", "call_id": "call_nowhere", "output": "42"}),
    ],
)
def test_result_without_its_call_is_refused(gateway: Gateway, front: Front, orphan: dict[str, str]) -> None:  # bug 30
    body = front.ask()
    body[front.items].append(orphan)
    found = refusal(gateway, front.path, body, 400)
    assert found["code"] == "unknown_call"
    assert "call_nowhere" in found["message"]


def test_previous_response_id_is_refused(gateway: Gateway) -> None:  # bug 41
    found = refusal(gateway, RESPONSES.path, RESPONSES.ask(previous_response_id="resp_1"), 400)
    assert found["param"] == "previous_response_id"


def test_refused_request_does_not_reach_the_upstream(gateway: Gateway, stage: Stage, front: Front) -> None:
    before = len(stage.requests)
    gateway.post(front.path, front.ask(temperature="warm"))
    gateway.post(front.path, {"model": MODEL, front.items: []})
    assert len(stage.requests) == before


# Upstream errors before the first byte


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 403, 404, 422, 500])
def test_key_quoted_in_an_upstream_error_is_redacted(
    gateway: Gateway, stage: Stage, front: Front, status: int, *, stream: bool
) -> None:
    stage.play(error(status, f"bad header: Bearer {KEY}", code=KEY))
    response = gateway.post(front.path, front.ask(stream=stream))
    assert response.status_code == status
    assert "bad header" in response.text
    assert KEY not in response.text
    assert KEY not in gateway.log()


def test_key_quoted_in_an_upstream_stream_is_redacted(gateway: Gateway, stage: Stage, front: Front) -> None:
    frame = json.dumps({"error": {"message": f"lost the connection of {KEY}", "code": "x"}}).encode()
    stage.play((BEGUN, chunk(b"data: " + frame + b"\n\n"), CUT))
    response = gateway.post(front.path, front.ask(stream=True))
    assert "lost the connection" in response.text
    assert KEY not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_401_is_a_502(gateway: Gateway, stage: Stage, front: Front, *, stream: bool) -> None:  # bug 39
    stage.play(error(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key"))
    response = gateway.post(front.path, front.ask(stream=stream))
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_auth"
    assert KEY not in response.text


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_429_is_relayed_with_retry_after(gateway: Gateway, stage: Stage, front: Front, *, stream: bool) -> None:
    stage.play(error(429, "slow down", "retry-after: 30.2\r\n", type="tokens", code="rate_limit_exceeded"))
    response = gateway.post(front.path, front.ask(stream=stream))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "31", "rounded up"
    assert response.json()["error"] == {"message": "slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_error_keeps_status_and_code(gateway: Gateway, stage: Stage, front: Front, *, stream: bool) -> None:
    stage.play(error(400, "context too long", code="context_length_exceeded", param="messages"))
    response = gateway.post(front.path, front.ask(stream=stream))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_error_as_first_stream_event_is_an_http_error(gateway: Gateway, stage: Stage, front: Front) -> None:  # bug 39
    stage.play(stream_head() + chunk(b'data: {"error": {"message": "no GPU is free", "code": 503}}\n\n') + b"0\r\n\r\n")
    response = gateway.post(front.path, front.ask(stream=True))
    assert response.status_code >= 500
    assert "no GPU is free" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_unreachable_upstream_is_named(front: Front, *, stream: bool) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = reserved.getsockname()[1]
        model = f'[models.fast]\nprovider = "compatible"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        with running(model) as gateway:
            found = refusal(gateway, front.path, front.ask(stream=stream), 502)
    assert found["code"] == "upstream_unreachable"
    assert f"127.0.0.1:{port}" in found["message"]


@pytest.mark.parametrize("ending", [CUT, RESET])
def test_truncated_whole_answer_is_an_error(gateway: Gateway, stage: Stage, front: Front, ending: Ending) -> None:
    stage.play((whole()[:-10], ending))
    assert refusal(gateway, front.path, front.ask(), 502)["code"] == "upstream_cut"


# Upstream errors after the first byte


@pytest.mark.parametrize("ending", [CUT, RESET])
def test_truncated_stream_ends_with_an_error(gateway: Gateway, stage: Stage, front: Front, ending: Ending) -> None:  # bug 38
    stage.play((BEGUN, ending))
    with RawClient(gateway.port) as client:
        reply = client.post(front.path, front.ask(stream=True)).reply()
        assert reply.status == 200
        assert failure(reply.body)["code"] == "upstream_cut"
        assert client.get("/healthz").reply().status == 200, "the connection is reusable"


def test_stream_without_done_ends_with_an_error(gateway: Gateway, stage: Stage, front: Front) -> None:  # bug 38
    stage.play(BEGUN + b"0\r\n\r\n")
    response = gateway.post(front.path, front.ask(stream=True))
    assert response.status_code == 200
    assert failure(response.content)


def test_error_during_a_stream_is_relayed(gateway: Gateway, stage: Stage, front: Front) -> None:  # bug 38
    stage.play(BEGUN + chunk(b'data: {"error": {"message": "out of memory", "code": "oom"}}\n\n') + b"0\r\n\r\n")
    response = gateway.post(front.path, front.ask(stream=True))
    assert response.status_code == 200
    assert "out of memory" in failure(response.content)["message"]


# Model settings


def test_model_with_tool_calling_off_gets_no_tools(stage: Stage, front: Front) -> None:
    asked = stage.play(whole())
    with running(configuration(stage, model='tool_calling = "off"')) as gateway:
        body = front.ask(tools=[front.tool("search")], tool_choice="auto", parallel_tool_calls=True)
        assert gateway.post(front.path, body).status_code == 200
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(stage.asked(asked))


@pytest.mark.parametrize(
    ("front", "calls"),
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
def test_long_tool_result_is_truncated_with_a_note(stage: Stage, front: Front, calls: list[dict[str, Any]]) -> None:
    asked = stage.play(whole())
    with running(configuration(stage, model="max_tool_result_bytes = 101")) as gateway:
        body = front.ask()
        body[front.items] += calls
        assert gateway.post(front.path, body).status_code == 200
    [result] = [message for message in stage.asked(asked)["messages"] if message["role"] == "tool"]
    assert result["content"] == "é" * 50 + "\n[cut here by the gateway: at most 101 of 200 bytes are shown]"


# Body size


@pytest.fixture(scope="module")
def small_limit(stage: Stage) -> Iterator[Gateway]:
    with running(configuration(stage, before="[server]\nmax_body_bytes = 1000\n")) as gateway:
        yield gateway


def test_body_with_a_too_large_content_length_is_refused_before_it_is_sent(small_limit: Gateway, front: Front) -> None:
    with RawClient(small_limit.port) as client:
        client.send(f"POST {front.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n".encode())
        reply = client.reply()
    assert reply.status == 413
    assert reply.json()["error"]["code"] == "request_too_large"
    assert "1000" in reply.json()["error"]["message"]


def test_chunked_body_that_grows_too_large_is_refused(small_limit: Gateway, front: Front) -> None:
    with RawClient(small_limit.port) as client:
        client.send(f"POST {front.path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        client.send(chunk(b" " * 600))
        client.send(chunk(b" " * 600))
        assert client.reply().status == 413


@pytest.mark.parametrize("chunked", [False, True])
def test_body_of_exactly_the_limit_is_accepted(small_limit: Gateway, stage: Stage, front: Front, *, chunked: bool) -> None:
    stage.play(whole())
    body = json.dumps(front.ask()).encode().ljust(1000)
    with RawClient(small_limit.port) as client:
        if chunked:
            client.send(f"POST {front.path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            client.send(chunk(body[:7]) + chunk(body[7:]) + b"0\r\n\r\n")
        else:
            client.send(encode_request("POST", front.path, body))
        assert client.reply().status == 200


def test_connection_is_reusable_after_a_refused_body(small_limit: Gateway, front: Front) -> None:
    with RawClient(small_limit.port) as client:
        assert client.send(encode_request("POST", front.path, b" " * 5000)).reply().status == 413
        assert client.get("/healthz").reply().status == 200


# Concurrent turns


@pytest.fixture(scope="module")
def single(stage: Stage) -> Iterator[Gateway]:
    """A gateway that runs one turn at a time."""
    with running(configuration(stage, before="[limits]\nconcurrent_turns = 1\n")) as gateway:
        yield gateway


def test_turn_above_the_concurrency_limit_is_a_503(single: Gateway, stage: Stage, front: Front) -> None:
    gate = Gate()
    stage.play((BEGUN, gate, REST))
    with RawClient(single.port) as first, RawClient(single.port) as second:
        first.post(front.path, front.ask(stream=True)).frame()
        refused = second.post(front.path, front.ask(stream=True)).reply()
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "overloaded"
        assert second.get("/v1/models").reply().status == 200, "pages do not count as turns"
        gate.open()
        first.read_until(b"0\r\n\r\n")
    stage.play(whole())
    assert single.post(front.path, front.ask()).status_code == 200, "success frees the slot"


@pytest.mark.parametrize("stream", [False, True])
def test_failed_turn_frees_its_slot(single: Gateway, stage: Stage, front: Front, *, stream: bool) -> None:
    stage.play(error(500), (BEGUN, CUT), whole())
    assert single.post(front.path, front.ask(stream=stream)).status_code == 500
    single.post(front.path, front.ask(stream=True))
    assert single.post(front.path, front.ask()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_frees_the_slot(single: Gateway, stage: Stage, front: Front, *, stream: bool) -> None:
    asked = stage.play((Gate(), whole()), whole())
    with RawClient(single.port) as client:
        client.post(front.path, front.ask(stream=stream))
        stage.request(asked).result(30)
    stage.left(asked).result(30)
    assert single.post(front.path, front.ask()).status_code == 200


def test_refused_request_takes_no_slot(single: Gateway, stage: Stage, front: Front) -> None:
    for _ in range(3):
        assert single.post(front.path, {"model": "slow", front.items: "Hi"}).status_code in (400, 404)
    stage.play(whole())
    assert single.post(front.path, front.ask()).status_code == 200
