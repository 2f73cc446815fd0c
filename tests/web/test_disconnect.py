"""Clients that leave, and clients that do not read: the upstream must feel both."""

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
Leave = Callable[[RawClient], None]
LEAVES = pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset])


def turns(gateway: Gateway) -> list[dict[str, object]]:
    """The log's turns. What was answered, or let go, before this call is in it: the gateway does one thing at a time."""
    assert gateway.get("/healthz").status_code == 200
    return [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "turn"]


def open_turns(gateway: Gateway) -> float:
    [value] = [line.split()[1] for line in gateway.get("/metrics").text.splitlines() if line.startswith("toolrelay_turns_open ")]
    return float(value)


# Leaving


@LEAVES
def test_a_client_that_leaves_in_the_midst_of_a_stream_lets_the_upstream_go(
    gateway: Gateway, stage: Stage, front: Front, leave: Leave
) -> None:  # bug 44
    asked = stage.play((BEGUN, Gate()))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask(stream=True)).frame()
        leave(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@LEAVES
@pytest.mark.parametrize("heard", [b"", stream_head()])
def test_a_client_that_leaves_before_the_first_token_lets_the_upstream_go(
    gateway: Gateway, stage: Stage, front: Front, leave: Leave, heard: bytes
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play((heard, gate))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask(stream=True))
        gate.reached.result(30)
        leave(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@LEAVES
@pytest.mark.parametrize("heard", [b"", whole()[:-10]])
def test_a_client_that_leaves_without_streaming_lets_the_upstream_go(
    gateway: Gateway, stage: Stage, front: Front, leave: Leave, heard: bytes
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play((heard, gate))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask())
        gate.reached.result(30)
        leave(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@LEAVES
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_sent_its_next_request_and_leaves_lets_the_upstream_go(
    gateway: Gateway, stage: Stage, front: Front, leave: Leave, *, stream: bool
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play(whole(), (gate,)) + 1
    post = encode_request("POST", front.path, json.dumps(front.ask(stream=stream)).encode())
    with RawClient(gateway.port) as client:
        client.send(post + post + encode_request("GET", "/v1/models") * 2)
        gate.reached.result(30)
        leave(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


@LEAVES
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_sends_its_next_request_in_the_midst_and_leaves_lets_the_upstream_go(
    gateway: Gateway, stage: Stage, front: Front, leave: Leave, *, stream: bool
) -> None:  # bug 44
    gate = Gate()
    asked = stage.play((BEGUN, gate) if stream else (gate,))
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        client.post(front.path, front.ask(stream=stream))
        gate.reached.result(30)
        client.get("/v1/models")
        assert other.get("/healthz").reply().status == 200  # by now the gateway has read it
        leave(client)
        stage.left(asked).result(30)
    assert open_turns(gateway) == 0


def test_a_client_that_leaves_is_in_the_log_and_nothing_else_is(stage: Stage, front: Front) -> None:
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


def test_a_client_that_leaves_before_its_request_is_whole_leaves_no_trace(stage: Stage, front: Front) -> None:
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


def test_an_answer_that_nobody_waits_for_is_not_waited_for(gateway: Gateway, stage: Stage, front: Front) -> None:
    """A client that closes its half after the request is taken for one that left, as most servers take it."""
    asked = stage.play((BEGUN, Gate()))
    with RawClient(gateway.port) as client:
        client.post(front.path, front.ask(stream=True)).frame()
        client.half_close()
        stage.left(asked).result(30)


def test_a_thousand_clients_that_come_and_go_leave_nothing_behind(gateway: Gateway, stage: Stage, front: Front) -> None:
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
    for _ in range(2):  # what came in before the first stream began has been dealt with when the second ends
        assert gateway.post(front.path, front.ask(stream=True)).status_code == 200
    assert open_turns(gateway) == 0
    assert process.num_fds() <= before + 10, "the upstream's kept connections, and not more"


# Not reading


def test_a_client_that_does_not_read_holds_up_the_upstream(gateway: Gateway, stage: Stage, front: Front) -> None:
    """200 MB are offered; what the upstream gets rid of are the buffers in between, and the gateway does not grow."""
    process = psutil.Process(gateway.process.pid)
    stage.play(STREAMED)
    gateway.post(front.path, front.ask(stream=True))
    before = process.memory_info().rss
    piece = chunk(delta("x" * 1000) * 1000)
    asked = stage.play((BEGUN, *[piece] * 200))
    with RawClient(gateway.port, window=4096) as client, RawClient(gateway.port) as other:
        client.post(front.path, front.ask(stream=True)).frame()
        link = stage.link(asked)
        sent, still = -1, 0
        while still < 500:  # as many other requests were answered, and not a byte moved
            assert other.get("/healthz").reply().status == 200
            sent, still = link.sent, still + 1 if link.sent == sent else 0
        assert sent < 16 * MEBIBYTE
        assert process.memory_info().rss - before < 64 * MEBIBYTE
        assert not link.left.done()
        client.close()
        link.left.result(30)
    assert open_turns(gateway) == 0


def test_a_client_that_reads_slowly_gets_everything(gateway: Gateway, stage: Stage, front: Front) -> None:
    words = [f"word{number:05d}" for number in range(20_000)]
    pieces = [chunk(b"".join(map(delta, words[start : start + 100]))) for start in range(0, len(words), 100)]
    stage.play((BEGUN, *pieces, STREAMED.removeprefix(BEGUN)))
    with RawClient(gateway.port, window=4096) as client:
        answer = client.post(front.path, front.ask(stream=True)).reply()
    place = 0
    for word in words:
        place = answer.body.index(word.encode(), place)
