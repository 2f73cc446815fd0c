"""What is at which address, and how HTTP itself is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient, Reply, encode_request
from tests.stage import STREAMED, Front, Stage, configuration, frames, whole

OBSIDIAN = "origin: app://obsidian.md"


def ask(gateway: Gateway, method: str, path: str, *lines: str, body: bytes = b"") -> Reply:
    with RawClient(gateway.port) as client:
        return client.send(encode_request(method, path, body, *lines)).reply(to=method)


def encoded(front: Front, **members: Any) -> bytes:
    return json.dumps(front.ask(**members)).encode()


# Addresses


@pytest.mark.parametrize("shape", ["/v1{}", "{}", "/v1{}/", "{}/", "/v1/{}", "//v1{}", "//v1//{}/", "/v1{}?api-version=1"])
def test_a_door_is_found_however_the_base_url_was_pasted(gateway: Gateway, stage: Stage, front: Front, shape: str) -> None:
    stage.play(whole("Hello there"))
    path = shape.format(front.path.removeprefix("/v1"))
    reply = ask(gateway, "POST", path, body=encoded(front))
    assert reply.status == 200
    assert front.text(reply.json()) == "Hello there"


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/", "/models/", "/v1//models"])
def test_the_models_are_found_with_and_without_a_slash(gateway: Gateway, path: str) -> None:
    reply = ask(gateway, "GET", path)
    assert reply.status == 200
    assert reply.json()["object"] == "list"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
def test_the_base_url_itself_says_where_one_is(gateway: Gateway, path: str) -> None:
    reply = ask(gateway, "GET", path)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/chat", "/v1/v1/models", "/favicon.ico", "/v1/models%00", "/%ff"])
def test_where_nothing_is_a_404_says_so_in_json(gateway: Gateway, method: str, path: str) -> None:
    reply = ask(gateway, method, path)
    assert reply.status == 404
    assert reply.json()["error"]["code"] == "not_found"
    assert "/v1" in reply.json()["error"]["message"]


def test_a_method_that_a_page_does_not_take_is_a_405_that_names_those_it_does(gateway: Gateway, front: Front) -> None:
    reply = ask(gateway, "GET", front.path)
    assert reply.status == 405
    assert reply.json()["error"]["code"] == "method_not_allowed"
    assert reply.headers["allow"] == "OPTIONS, POST"
    assert ask(gateway, "DELETE", "/v1/models").headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/", "/metrics", "/v1/models/nothing"])
def test_head_is_get_without_its_body(gateway: Gateway, path: str) -> None:
    with RawClient(gateway.port) as client:
        head = client.send(encode_request("HEAD", path)).reply(to="HEAD")
        assert client.get("/healthz").reply().status == 200, "nothing of a body stands in between"
    get = ask(gateway, "GET", path)
    assert head.status == get.status
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


def test_head_of_a_door_is_a_405_without_a_body(gateway: Gateway, front: Front) -> None:
    assert ask(gateway, "HEAD", front.path).status == 405


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/healthz"), ("GET", "/nowhere"), ("PUT", "/v1/models"), ("OPTIONS", "/v1/models")]
)
def test_every_answer_has_an_id_of_its_own(gateway: Gateway, method: str, path: str) -> None:
    replies = [ask(gateway, method, path) for _ in range(2)]
    first, second = (reply.headers["x-request-id"] for reply in replies)
    assert first.startswith("req_")
    assert first != second
    assert "access-control-allow-methods" not in replies[0].headers, "an id is no leave for an origin"


# Pages from elsewhere


def test_a_preflight_of_an_allowed_origin_is_answered(gateway: Gateway, front: Front) -> None:
    reply = ask(
        gateway,
        "OPTIONS",
        front.path,
        OBSIDIAN,
        "access-control-request-method: POST",
        "access-control-request-headers: authorization,content-type,x-stainless-lang",
        "access-control-request-private-network: true",
    )
    assert reply.status == 204
    assert reply.headers["access-control-allow-origin"] == "app://obsidian.md"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-lang"
    assert reply.headers["access-control-allow-private-network"] == "true"
    assert "content-length" not in reply.headers, "a 204 has no body, and says so by saying nothing"


def test_a_preflight_of_a_foreign_origin_is_given_nothing(gateway: Gateway, front: Front) -> None:
    reply = ask(gateway, "OPTIONS", front.path, "origin: https://evil.example", "access-control-request-method: POST")
    assert not [name for name in reply.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_and_an_error_may_be_read_by_an_allowed_origin(
    gateway: Gateway, stage: Stage, front: Front, *, stream: bool
) -> None:
    stage.play(STREAMED if stream else whole())
    for body in (encoded(front, stream=stream), b"not JSON"):
        reply = ask(gateway, "POST", front.path, OBSIDIAN, body=body)
        assert reply.headers["access-control-allow-origin"] == "app://obsidian.md"
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert "origin" in reply.headers["vary"]


def test_an_answer_says_nothing_of_origins_to_those_who_have_none(gateway: Gateway) -> None:
    assert "access-control-allow-origin" not in ask(gateway, "GET", "/v1/models").headers


def test_any_origin_may_be_allowed() -> None:
    with running('[server]\ncors_origins = ["*"]\n') as gateway:
        reply = ask(gateway, "GET", "/v1/models", "origin: https://chat.example")
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == "https://chat.example"


# HTTP


def test_one_connection_serves_many_requests(gateway: Gateway, stage: Stage, front: Front) -> None:
    with RawClient(gateway.port) as client:
        for _ in range(5):
            stage.play(STREAMED, whole())
            assert frames(client.post(front.path, front.ask(stream=True)).reply().body)
            assert client.post(front.path, front.ask()).reply().status == 200
            assert client.post(front.path, "no object").reply().status == 400
            assert client.get("/v1/models").reply().status == 200
            assert client.get("/nowhere").reply().status == 404


def test_requests_sent_ahead_are_answered_in_their_order(gateway: Gateway, stage: Stage, front: Front) -> None:
    stage.play(STREAMED, whole("second"))
    with RawClient(gateway.port) as client:
        client.send(
            encode_request("POST", front.path, encoded(front, stream=True))
            + encode_request("GET", "/v1/models")
            + encode_request("POST", front.path, encoded(front))
        )
        assert frames(client.reply().body)
        assert client.reply().json()["object"] == "list"
        assert front.text(client.reply().json()) == "second"


def test_a_request_that_comes_in_pieces_is_put_together(gateway: Gateway, stage: Stage, front: Front) -> None:
    stage.play(whole())
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        for byte in encode_request("POST", front.path, encoded(front)):
            client.send(bytes([byte]))
            assert other.get("/healthz").reply().status == 200  # so that each comes on its own
        assert client.reply().status == 200


def test_a_client_that_waits_for_leave_to_send_its_body_is_given_it(gateway: Gateway, stage: Stage, front: Front) -> None:
    stage.play(whole())
    head, _, body = encode_request("POST", front.path, encoded(front), "expect: 100-continue").partition(b"\r\n\r\n")
    with RawClient(gateway.port) as client:
        client.send(head + b"\r\n\r\n")
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        assert client.send(body).reply().status == 200


def test_a_client_that_waits_for_leave_is_refused_before_it_sends_its_body(stage: Stage, front: Front) -> None:
    with running(configuration(stage, before="[server]\nmax_body_bytes = 1000\n")) as gateway, RawClient(gateway.port) as client:
        client.send(encode_request("POST", front.path, b"", "expect: 100-continue").replace(b"length: 0", b"length: 2000"))
        assert client.reply().status == 413


def test_a_client_of_http_1_0_is_answered_and_its_connection_closed(gateway: Gateway, stage: Stage, front: Front) -> None:
    stage.play(whole())
    with RawClient(gateway.port) as client:
        client.send(encode_request("POST", front.path, encoded(front), version="1.0"))
        reply = client.reply()
        assert front.text(reply.json()) == "Hello there"
        assert reply.headers["connection"] == "close"
        assert client.read_rest() == b""


def test_a_client_of_http_1_0_need_not_name_a_host(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        assert client.send(b"GET /v1/models HTTP/1.0\r\n\r\n").reply().status == 200


@pytest.mark.parametrize("pieces", [1, 2])
def test_an_offer_to_change_the_protocol_is_passed_over(stage: Stage, front: Front, pieces: int) -> None:
    """Java's own client makes one with its first request, and means the request all the same."""
    stage.play(whole(), whole())
    offer = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAARAAAAAAAIAAAAA")
    head, _, body = encode_request("POST", front.path, encoded(front), *offer).partition(b"\r\n\r\n")
    with running(configuration(stage)) as gateway, RawClient(gateway.port) as client:
        if pieces == 1:
            client.send(head + b"\r\n\r\n" + body)
        else:
            client.send(head + b"\r\n\r\n")
            assert gateway.get("/healthz").status_code == 200
            client.send(body)
        assert front.text(client.reply().json()) == "Hello there"
        assert client.post(front.path, front.ask()).reply().status == 200, "the connection can be used again"
        assert gateway.stop() == 0
        assert {json.loads(line)["event"] for line in gateway.log().splitlines()} == {"turn"}


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS handshake\r\n\r\n",
        b"\r\n\r\n\r\nnonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: a\x00b\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_the_next_client_served(gateway: Gateway, garbage: bytes) -> None:
    with RawClient(gateway.port) as client:
        client.send(garbage)
        assert client.read_rest().startswith(b"HTTP/1.1 400 ")
    assert gateway.get("/healthz").status_code == 200


def test_nothing_unusual_is_in_the_log_after_all_of_it(stage: Stage, front: Front) -> None:
    stage.play(STREAMED, whole())
    with running(configuration(stage)) as gateway:
        for stream in (True, False):
            assert gateway.post(front.path, front.ask(stream=stream)).status_code == 200
        for method, path in (("OPTIONS", front.path), ("HEAD", "/v1/models"), ("GET", "/nowhere"), ("PUT", front.path)):
            ask(gateway, method, path, OBSIDIAN)
        gateway.post(front.path, {})
        assert gateway.stop() == 0
        events = [json.loads(line)["event"] for line in gateway.log().splitlines()]
    assert events == ["turn", "turn", "refused"]
