"""Clients that disconnect and clients that do not read: effects on the upstream and on the log."""

from __future__ import annotations

import json
from collections.abc import Callable

import psutil
import pytest

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, STREAMED, ClientApi, ModelServer, configuration, delta, whole
from tests.raw_client import RawClient, encode_request
from tests.upstream import Gate, chunk, stream_head

MEBIBYTE = 1024 * 1024
Disconnect = Callable[[RawClient], None]
DISCONNECTS = pytest.mark.parametrize("disconnect", [RawClient.close, RawClient.reset])


def turns(gateway: Gateway) -> list[dict[str, object]]:
    """Return the logged turns, all of which have ended."""
    gateway.await_no_turns()
    return [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "turn"]


# Disconnection


@DISCONNECTS
def test_disconnect_during_a_stream_closes_the_upstream(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, disconnect: Disconnect
) -> None:  # bug 44
    asked = model_server.enqueue((BEGUN, Gate()))
    with RawClient(gateway.port) as client:
        client.post(api.path, api.request_body(stream=True)).frame()
        disconnect(client)
        model_server.closed(asked).result(30)
    gateway.await_no_turns()


@DISCONNECTS
@pytest.mark.parametrize("received", [b"", stream_head()])
def test_disconnect_before_the_first_token_closes_the_upstream(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, disconnect: Disconnect, received: bytes
) -> None:  # bug 44
    gate = Gate()
    asked = model_server.enqueue((received, gate))
    with RawClient(gateway.port) as client:
        client.post(api.path, api.request_body(stream=True))
        gate.reached.result(30)
        disconnect(client)
        model_server.closed(asked).result(30)
    gateway.await_no_turns()


@DISCONNECTS
@pytest.mark.parametrize("received", [b"", whole()[:-10]])
def test_disconnect_without_streaming_closes_the_upstream(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, disconnect: Disconnect, received: bytes
) -> None:  # bug 44
    gate = Gate()
    asked = model_server.enqueue((received, gate))
    with RawClient(gateway.port) as client:
        client.post(api.path, api.request_body())
        gate.reached.result(30)
        disconnect(client)
        model_server.closed(asked).result(30)
    gateway.await_no_turns()


@DISCONNECTS
@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_after_pipelined_requests_closes_the_upstream(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, disconnect: Disconnect, *, stream: bool
) -> None:  # bug 44
    gate = Gate()
    asked = model_server.enqueue(whole(), (gate,)) + 1
    post = encode_request("POST", api.path, json.dumps(api.request_body(stream=stream)).encode())
    with RawClient(gateway.port) as client:
        client.send(post + post + encode_request("GET", "/v1/models") * 2)
        gate.reached.result(30)
        disconnect(client)
        model_server.closed(asked).result(30)
    gateway.await_no_turns()


@DISCONNECTS
@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_after_a_request_during_the_response_closes_the_upstream(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, disconnect: Disconnect, *, stream: bool
) -> None:  # bug 44
    gate = Gate()
    asked = model_server.enqueue((BEGUN, gate) if stream else (gate,))
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        client.post(api.path, api.request_body(stream=stream))
        gate.reached.result(30)
        client.get("/v1/models")
        assert other.get("/healthz").reply().status == 200  # proves that the gateway has read it
        disconnect(client)
        model_server.closed(asked).result(30)
    gateway.await_no_turns()


def test_disconnect_is_logged_once(model_server: ModelServer, api: ClientApi) -> None:
    asked = model_server.enqueue((BEGUN, Gate()), (Gate(),))
    with running(configuration(model_server)) as gateway:
        for number, stream in ((asked, True), (asked + 1, False)):
            with RawClient(gateway.port) as client:
                client.post(api.path, api.request_body(stream=stream))
                model_server.request(number).result(30)
                if stream:
                    client.frame()
            model_server.closed(number).result(30)
        lines = turns(gateway)
        assert [(line["status"], line["code"], line["stream"]) for line in lines] == [
            (499, "client_gone", True),
            (499, "client_gone", False),
        ]
        assert len(gateway.log().splitlines()) == 2


def test_disconnect_during_the_request_is_not_logged(model_server: ModelServer, api: ClientApi) -> None:
    before = len(model_server.requests)
    with running(configuration(model_server)) as gateway:
        whole_request = encode_request("POST", api.path, json.dumps(api.request_body()).encode())
        for sent in (b"", whole_request[:20], whole_request[:-1]):
            with RawClient(gateway.port) as client:
                client.send(sent)
        gateway.await_no_turns()
        assert gateway.stop() == 0
        assert gateway.log() == ""
    assert len(model_server.requests) == before


def test_half_close_counts_as_a_disconnect(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    """As in most servers."""
    asked = model_server.enqueue((BEGUN, Gate()))
    with RawClient(gateway.port) as client:
        client.post(api.path, api.request_body(stream=True)).frame()
        client.half_close()
        model_server.closed(asked).result(30)


def test_thousand_disconnects_leak_nothing(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    process = psutil.Process(gateway.process.pid)
    assert gateway.get("/healthz").status_code == 200
    before = process.num_fds()
    body = encode_request("POST", api.path, json.dumps(api.request_body(stream=True)).encode())
    model_server.enqueue((BEGUN, Gate()))
    for _ in range(10):
        clients = [RawClient(gateway.port) for _ in range(100)]
        for number, client in enumerate(clients):
            client.send((b"", b"GET ", body[:-1], body, b"\x16\x03\x01 garbage\r\n\r\n")[number % 5])
        for number, client in enumerate(clients):
            (client.close if number % 2 else client.reset)()
    model_server.enqueue(STREAMED)
    for _ in range(2):  # everything sent before the first stream is handled when the second ends
        assert gateway.post(api.path, api.request_body(stream=True)).status_code == 200
    gateway.await_no_turns()
    assert process.num_fds() <= before + 10, "only pooled upstream connections are added"


# Backpressure


def test_client_that_does_not_read_blocks_the_upstream(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    """Of 200 MB the upstream can send only what the buffers in between hold, and the gateway does not grow."""
    process = psutil.Process(gateway.process.pid)
    model_server.enqueue(STREAMED)
    gateway.post(api.path, api.request_body(stream=True))
    before = process.memory_info().rss
    piece = chunk(delta("x" * 1000) * 1000)
    asked = model_server.enqueue((BEGUN, *[piece] * 200))
    with RawClient(gateway.port, window=4096) as client, RawClient(gateway.port) as other:
        client.post(api.path, api.request_body(stream=True)).frame()
        connection = model_server.connection(asked)
        sent, unchanged = -1, 0
        while unchanged < 500:  # that many requests were answered meanwhile, and not a byte moved
            assert other.get("/healthz").reply().status == 200
            sent, unchanged = connection.sent, unchanged + 1 if connection.sent == sent else 0
        assert sent < 16 * MEBIBYTE
        assert process.memory_info().rss - before < 64 * MEBIBYTE
        assert not connection.closed.done()
        client.close()
        connection.closed.result(30)
    gateway.await_no_turns()


def test_slow_reader_gets_everything(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    words = [f"word{number:05d}" for number in range(20_000)]
    pieces = [chunk(b"".join(map(delta, words[start : start + 100]))) for start in range(0, len(words), 100)]
    model_server.enqueue((BEGUN, *pieces, STREAMED.removeprefix(BEGUN)))
    with RawClient(gateway.port, window=4096) as client:
        answer = client.post(api.path, api.request_body(stream=True)).reply()
    position = 0
    for word in words:
        position = answer.body.index(word.encode(), position)
