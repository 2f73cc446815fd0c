"""Routing, CORS and HTTP semantics."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.model_server import STREAMED, ClientApi, ModelServer, configuration, frames, whole
from tests.raw_client import RawClient, Reply, encode_request
from tests.scripted import scripted
from tests.scripted_backend import ScriptedBackend

OBSIDIAN = "origin: app://obsidian.md"


def ask(gateway: Gateway, method: str, path: str, *lines: str, body: bytes = b"") -> Reply:
    with RawClient(gateway.port) as client:
        return client.send(encode_request(method, path, body, *lines)).reply(to=method)


def encoded(api: ClientApi, **members: Any) -> bytes:
    return json.dumps(api.request_body(**members)).encode()


# Routes


@pytest.mark.parametrize("shape", ["/v1{}", "{}", "/v1{}/", "{}/", "/v1/{}", "//v1{}", "//v1//{}/", "/v1{}?api-version=1"])
def test_endpoint_is_found_for_every_form_of_the_base_url(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, shape: str
) -> None:
    model_server.enqueue(whole("Hello there"))
    path = shape.format(api.path.removeprefix("/v1"))
    reply = ask(gateway, "POST", path, body=encoded(api))
    assert reply.status == 200
    assert api.text(reply.json()) == "Hello there"


def test_request_ids_never_repeat_and_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)  # a clock that stands still
    app = scripted(ScriptedBackend([]))
    ids = [app.router.new_request_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert ids == sorted(ids)


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/", "/models/", "/v1//models"])
def test_models_are_found_with_and_without_a_slash(gateway: Gateway, path: str) -> None:
    reply = ask(gateway, "GET", path)
    assert reply.status == 200
    assert reply.json()["object"] == "list"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
def test_base_url_is_the_welcome_page(gateway: Gateway, path: str) -> None:
    reply = ask(gateway, "GET", path)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/images", "/v1/chat", "/v1/v1/models", "/favicon.ico", "/v1/models%00", "/%ff"])
def test_unknown_path_is_a_404_in_json(gateway: Gateway, method: str, path: str) -> None:
    reply = ask(gateway, method, path)
    assert reply.status == 404
    assert reply.json()["error"]["code"] == "not_found"
    assert "/v1" in reply.json()["error"]["message"]


def test_unsupported_method_is_a_405_with_the_allowed_ones(gateway: Gateway, api: ClientApi) -> None:
    reply = ask(gateway, "GET", api.path)
    assert reply.status == 405
    assert reply.json()["error"]["code"] == "method_not_allowed"
    assert reply.headers["allow"] == "OPTIONS, POST"
    assert ask(gateway, "DELETE", "/v1/models").headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/", "/metrics", "/v1/models/nothing"])
def test_head_is_get_without_its_body(gateway: Gateway, path: str) -> None:
    with RawClient(gateway.port) as client:
        head = client.send(encode_request("HEAD", path)).reply(to="HEAD")
        assert client.get("/healthz").reply().status == 200, "no body follows the head"
    get = ask(gateway, "GET", path)
    assert head.status == get.status
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


def test_head_of_an_endpoint_is_a_405_without_a_body(gateway: Gateway, api: ClientApi) -> None:
    assert ask(gateway, "HEAD", api.path).status == 405


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/healthz"), ("GET", "/nowhere"), ("PUT", "/v1/models"), ("OPTIONS", "/v1/models")]
)
def test_every_response_has_its_own_id(gateway: Gateway, method: str, path: str) -> None:
    replies = [ask(gateway, method, path) for _ in range(2)]
    first, second = (reply.headers["x-request-id"] for reply in replies)
    assert first.startswith("req_")
    assert first != second
    assert "access-control-allow-methods" not in replies[0].headers, "no CORS headers without an origin"


# CORS


def test_preflight_of_an_allowed_origin_is_accepted(gateway: Gateway, api: ClientApi) -> None:
    reply = ask(
        gateway,
        "OPTIONS",
        api.path,
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
    assert "content-length" not in reply.headers, "a 204 must not have one"


def test_preflight_of_a_foreign_origin_gets_no_cors_headers(gateway: Gateway, api: ClientApi) -> None:
    reply = ask(gateway, "OPTIONS", api.path, "origin: https://evil.example", "access-control-request-method: POST")
    assert not [name for name in reply.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("stream", [False, True])
def test_responses_to_an_allowed_origin_have_cors_headers(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, *, stream: bool
) -> None:
    model_server.enqueue(STREAMED if stream else whole())
    for body in (encoded(api, stream=stream), b"not JSON"):
        reply = ask(gateway, "POST", api.path, OBSIDIAN, body=body)
        assert reply.headers["access-control-allow-origin"] == "app://obsidian.md"
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert "origin" in reply.headers["vary"]


def test_response_without_an_origin_has_no_cors_headers(gateway: Gateway) -> None:
    assert "access-control-allow-origin" not in ask(gateway, "GET", "/v1/models").headers


def test_wildcard_allows_any_origin() -> None:
    with running('[server]\ncors_origins = ["*"]\n') as gateway:
        reply = ask(gateway, "GET", "/v1/models", "origin: https://chat.example")
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == "https://chat.example"


# HTTP


def test_one_connection_serves_many_requests(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    with RawClient(gateway.port) as client:
        for _ in range(5):
            model_server.enqueue(STREAMED, whole())
            assert frames(client.post(api.path, api.request_body(stream=True)).reply().body)
            assert client.post(api.path, api.request_body()).reply().status == 200
            assert client.post(api.path, "no object").reply().status == 400
            assert client.get("/v1/models").reply().status == 200
            assert client.get("/nowhere").reply().status == 404


def test_pipelined_requests_are_answered_in_order(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(STREAMED, whole("second"))
    with RawClient(gateway.port) as client:
        client.send(
            encode_request("POST", api.path, encoded(api, stream=True))
            + encode_request("GET", "/v1/models")
            + encode_request("POST", api.path, encoded(api))
        )
        assert frames(client.reply().body)
        assert client.reply().json()["object"] == "list"
        assert api.text(client.reply().json()) == "second"


def test_request_in_single_bytes_is_answered(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole())
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        for byte in encode_request("POST", api.path, encoded(api)):
            client.send(bytes([byte]))
            assert other.get("/healthz").reply().status == 200  # so that each byte arrives alone
        assert client.reply().status == 200


def test_expect_100_continue_gets_a_100(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole())
    head, _, body = encode_request("POST", api.path, encoded(api), "expect: 100-continue").partition(b"\r\n\r\n")
    with RawClient(gateway.port) as client:
        client.send(head + b"\r\n\r\n")
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        assert client.send(body).reply().status == 200


def test_expect_100_continue_with_a_too_large_body_is_a_413(model_server: ModelServer, api: ClientApi) -> None:
    with (
        running(configuration(model_server, before="[server]\nmax_body_bytes = 1000\n")) as gateway,
        RawClient(gateway.port) as client,
    ):
        client.send(encode_request("POST", api.path, b"", "expect: 100-continue").replace(b"length: 0", b"length: 2000"))
        assert client.reply().status == 413


def test_http_1_0_connection_is_closed_after_the_response(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole())
    with RawClient(gateway.port) as client:
        client.send(encode_request("POST", api.path, encoded(api), version="1.0"))
        reply = client.reply()
        assert api.text(reply.json()) == "Hello there"
        assert reply.headers["connection"] == "close"
        assert client.read_rest() == b""


def test_http_1_0_without_a_host_is_accepted(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        assert client.send(b"GET /v1/models HTTP/1.0\r\n\r\n").reply().status == 200


@pytest.mark.parametrize("pieces", [1, 2])
def test_upgrade_header_is_ignored(model_server: ModelServer, api: ClientApi, pieces: int) -> None:
    """Java's HTTP client offers h2c with its first request."""
    model_server.enqueue(whole(), whole())
    offer = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAARAAAAAAAIAAAAA")
    head, _, body = encode_request("POST", api.path, encoded(api), *offer).partition(b"\r\n\r\n")
    with running(configuration(model_server)) as gateway, RawClient(gateway.port) as client:
        if pieces == 1:
            client.send(head + b"\r\n\r\n" + body)
        else:
            client.send(head + b"\r\n\r\n")
            assert gateway.get("/healthz").status_code == 200
            client.send(body)
        assert api.text(client.reply().json()) == "Hello there"
        assert client.post(api.path, api.request_body()).reply().status == 200, "the connection is reusable"
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
def test_invalid_http_is_a_400_and_the_server_keeps_running(gateway: Gateway, garbage: bytes) -> None:
    with RawClient(gateway.port) as client:
        client.send(garbage)
        assert client.read_rest().startswith(b"HTTP/1.1 400 ")
    assert gateway.get("/healthz").status_code == 200


def test_log_holds_only_turns_and_refusals(model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(STREAMED, whole())
    with running(configuration(model_server)) as gateway:
        for stream in (True, False):
            assert gateway.post(api.path, api.request_body(stream=stream)).status_code == 200
        for method, path in (("OPTIONS", api.path), ("HEAD", "/v1/models"), ("GET", "/nowhere"), ("PUT", api.path)):
            ask(gateway, method, path, OBSIDIAN)
        gateway.post(api.path, {})
        assert gateway.stop() == 0
        events = [json.loads(line)["event"] for line in gateway.log().splitlines()]
    assert events == ["turn", "turn", "refused"]
