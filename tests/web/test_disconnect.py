"""Clients that disconnect and clients that do not read: effects on the upstream and on the log."""

from __future__ import annotations

import json
from collections.abc import Callable

import psutil
import pytest

from tests.gateway import Gateway, running
from tests.raw_client import RawClient, encode_request
from tests.stage import BEGUN, STREAMED, Front, Stage, configuration, delta, whole
from tests.upstream import Gate, chunk, stream_head

MEBIBYTE = 1024 * 1024
Disconnect = Callable[[RawClient], None]
DISCONNECTS = pytest.mark.parametrize("disconnect", [RawClient.close, RawClient.reset])


def turns(gateway: Gateway) -> list[dict[str, object]]:
    """Return the logged turns. The request proves that earlier events are handled: the gateway has one thread."""
    assert gateway.get("/healthz").status_code == 200
    return [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "turn"]


def open_turns(gateway: Gateway) -> float:
    [value] = [line.split()[1] for line in gateway.get("/metrics").text.splitlines() if line.startswith("toolrelay_turns_open ")]
    return float(value)


# Disconnection


@DISCONNECTS
def test_disconnect_during_a_stream_closes_the_upstream(
    gateway: Gateway, stage: Stage, front: Front, disconnect: Disconnect
) -> None:  # bug 44
    asked = stage.play((BEGUN, Gate()))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask(stream=True)).frame()
        disconnect(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@DISCONNECTS
@pytest.mark.parametrize("received", [b"", stream_head()])
def test_disconnect_before_the_first_token_closes_the_upstream(
    gateway: Gateway, stage: Stage, front: Front, disconnect: Disconnect, received: bytes
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play((received, gate))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask(stream=True))
        gate.reached.result(30)
        disconnect(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@DISCONNECTS
@pytest.mark.parametrize("received", [b"", whole()[:-10]])
def test_disconnect_without_streaming_closes_the_upstream(
    gateway: Gateway, stage: Stage, front: Front, disconnect: Disconnect, received: bytes
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play((received, gate))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask())
        gate.reached.result(30)
        disconnect(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@DISCONNECTS
@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_after_pipelined_requests_closes_the_upstream(
    gateway: Gateway, stage: Stage, front: Front, disconnect: Disconnect, *, stream: bool
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play(whole(), (gate,)) + 1
    post = encode_request("POST", front.path, json.dumps(front.ask(stream=stream)).encode())
    with RawClient(gateway.port) as client:
        client.send(post + post + encode_request("GET", "/v1/models") * 2)
        gate.reached.result(30)
        disconnect(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@DISCONNECTS
@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_after_a_request_during_the_response_closes_the_upstream(
    gateway: Gateway, stage: Stage, front: Front, disconnect: Disconnect, *, stream: bool
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play((BEGUN, gate) if stream else (gate,))
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        client.post(front.path, front.ask(stream=stream))
        gate.reached.result(30)
        client.get("/v1/models")
        assert other.get("/healthz").reply().status == 200  # proves that the gateway has read it
        disconnect(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


def test_disconnect_is_logged_once(stage: Stage, front: Front) -> None:
    asked = stage.play((BEGUN, Gate()), (Gate(),))
    with running(configuration(stage)) as gateway:
        for number, stream in ((asked, True), (asked + 1, False)):
            with RawClient(gateway.port) as client:
                client.post(front.path, front.ask(stream=stream))
                stage.request(number).result(30)
                if stream:
                    client.frame()
            stage.left(number).result(30)
        lines = turns(gateway)
        assert [(line["status"], line["code"], line["stream"]) for line in lines] == [
            (499, "client_gone", True),
            (499, "client_gone", False),
        ]
        assert len(gateway.log().splitlines()) == 2


def test_disconnect_during_the_request_is_not_logged(stage: Stage, front: Front) -> None:
    before = len(stage.requests)
    with running(configuration(stage)) as gateway:
        whole_request = encode_request("POST", front.path, json.dumps(front.ask()).encode())
        for sent in (b"", whole_request[:20], whole_request[:-1]):
            with RawClient(gateway.port) as client:
                client.send(sent)
        assert open_turns(gateway) == 0
        assert gateway.stop() == 0
        assert gateway.log() == ""
    assert len(stage.requests) == before


def test_half_close_counts_as_a_disconnect(gateway: Gateway, stage: Stage, front: Front) -> None:
    """As in most servers."""
    asked = stage.play((BEGUN, Gate()))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask(stream=True)).frame()
        client.half_close()
        stage.left(asked).result(30)


def test_thousand_disconnects_leak_nothing(gateway: Gateway, stage: Stage, front: Front) -> None:
    process = psutil.Process(gateway.process.pid)
    assert gateway.get("/healthz").status_code == 200
    before = process.num_fds()
    body = encode_request("POST", front.path, json.dumps(front.ask(stream=True)).encode())
    stage.play((BEGUN, Gate()))
    for _ in range(10):
        clients = [RawClient(gateway.port) for _ in range(100)]
        for number, client in enumerate(clients):
            client.send((b"", b"GET ", body[:-1], body, b"\x16\x03\x01 garbage\r\n\r\n")[number % 5])
        for number, client in enumerate(clients):
            (client.close if number % 2 else client.reset)()
    stage.play(STREAMED)
    for _ in range(2):  # everything sent before the first stream is handled when the second ends
        assert gateway.post(front.path, front.ask(stream=True)).status_code == 200
    assert open_turns(gateway) == 0
    assert process.num_fds() <= before + 10, "only pooled upstream connections are added"


# Backpressure


def test_client_that_does_not_read_blocks_the_upstream(gateway: Gateway, stage: Stage, front: Front) -> None:
    """Of 200 MB the upstream can send only what the buffers in between hold, and the gateway does not grow."""
    process = psutil.Process(gateway.process.pid)
    stage.play(STREAMED)
    gateway.post(front.path, front.ask(stream=True))
    before = process.memory_info().rss
    piece = chunk(delta("x" * 1000) * 1000)
    asked = stage.play((BEGUN, *[piece] * 200))
    with RawClient(gateway.port, window=4096) as client, RawClient(gateway.port) as other:
        client.post(front.path, front.ask(stream=True)).frame()
        link = stage.link(asked)
        sent, unchanged = -1, 0
        while unchanged < 500:  # that many requests were answered meanwhile, and not a byte moved
            assert other.get("/healthz").reply().status == 200
            sent, unchanged = link.sent, unchanged + 1 if link.sent == sent else 0
        assert sent < 16 * MEBIBYTE
        assert process.memory_info().rss - before < 64 * MEBIBYTE
        assert not link.left.done()
        client.close()
        link.left.result(30)
    assert open_turns(gateway) == 0


def test_slow_reader_gets_everything(gateway: Gateway, stage: Stage, front: Front) -> None:
    words = [f"word{number:05d}" for number in range(20_000)]
    pieces = [chunk(b"".join(map(delta, words[start : start + 100]))) for start in range(0, len(words), 100)]
    stage.play((BEGUN, *pieces, STREAMED.removeprefix(BEGUN)))
    with RawClient(gateway.port, window=4096) as client:
        answer = client.post(front.path, front.ask(stream=True)).reply()
    position = 0
    for word in words:
        position = answer.body.index(word.encode(), position)
