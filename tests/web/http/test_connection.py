"""Limits of a connection in time and size, invalid HTTP, and HTTP/1.0."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, CLIENT_APIS, REST, STREAMED, ClientApi, ModelServer, configuration, frames, whole
from tests.raw_client import RawClient, encode_request
from tests.scripted import scripted, serving
from tests.scripted_backend import ScriptedBackend
from tests.upstream import Gate
from toolrelay import log
from toolrelay.backends.demo import DemoBackend
from toolrelay.core.events import AnswerFinished, AnswerStarted, TextDelta
from toolrelay.web.http import exchange
from toolrelay.web.http.connection import MAX_HEAD_BYTES

SOON = 0.2
CHAT = CLIENT_APIS["openai_chat"]


def test_silent_connection_is_closed() -> None:
    async def scenario() -> None:
        async with serving(scripted(DemoBackend()), idle_timeout=SOON) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_slow_head_is_closed_after_the_idle_timeout() -> None:
    async def scenario() -> None:
        async with serving(scripted(DemoBackend()), idle_timeout=SOON) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")

            async def send_slowly() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        writer.write(b"x-drop: 1\r\n")
                        await writer.drain()
                        await asyncio.sleep(SOON / 20)

            sending = asyncio.create_task(send_slowly())
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            sending.cancel()
            writer.close()

    asyncio.run(scenario())


def test_turn_may_take_longer_than_the_idle_timeout() -> None:
    async def scenario() -> None:
        over = asyncio.Event()
        backend = ScriptedBackend([[AnswerStarted(), TextDelta("Hello"), over, AnswerFinished(finish="stop")]])
        async with serving(scripted(backend), idle_timeout=1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode_request("POST", CHAT.path, json.dumps(CHAT.request_body(stream=True)).encode()))
            await reader.readuntil(b"\n\n")
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await idle.read() == b""
            idle_writer.close()
            over.set()
            await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            writer.close()

    with log.captured():
        asyncio.run(scenario())


# Size limits


def head_of(size: int, path: str = "/healthz") -> bytes:
    """Return a request head of exactly `size` bytes."""
    bare = encode_request("GET", path, b"", "x-long: ")
    return encode_request("GET", path, b"", "x-long: " + "a" * (size - len(bare)))


def is_cut_off(client: RawClient) -> bool:
    """Return whether the connection ends before a hundred megabytes are accepted."""
    try:
        for _ in range(100):
            client.send(b"a" * 1_000_000)
    except ConnectionError:
        return True
    return False


def is_closed(client: RawClient) -> bool:
    """Return whether the connection ends without more data. Unread bytes on the other side make it a reset."""
    try:
        return client.read_rest() == b""
    except ConnectionResetError:
        return True


def test_head_of_exactly_the_limit_is_accepted(gateway: Gateway) -> None:
    head = head_of(MAX_HEAD_BYTES)
    assert len(head) == MAX_HEAD_BYTES
    with RawClient(gateway.port) as client:
        for _ in range(2):
            assert client.send(head).reply().status == 200


@pytest.mark.parametrize("whole_head", [False, True])
@pytest.mark.parametrize("earlier", [0, 1])
def test_head_above_the_limit_is_refused(gateway: Gateway, earlier: int, *, whole_head: bool) -> None:
    with RawClient(gateway.port) as client:
        for _ in range(earlier):
            assert client.get("/healthz").reply().status == 200
        client.send(head_of(MAX_HEAD_BYTES + 1) if whole_head else head_of(2 * MAX_HEAD_BYTES)[:-4])
        reply = client.reply()
        assert client.read_rest() == b""
    assert reply.status == 431
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    assert reply.json()["error"]["code"] == "head_too_large"
    assert reply.headers["connection"] == "close"
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"].startswith("req_")


def test_endless_refused_head_is_cut_off(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        assert is_cut_off(client.send(b"GET /healthz HTTP/1.1\r\nx-long: "))
    assert gateway.get("/healthz").status_code == 200


@pytest.mark.parametrize("ahead", [head_of(3 * MAX_HEAD_BYTES), b"nonsense\r\n\r\n"], ids=["a long head", "garbage"])
def test_invalid_pipelined_request_does_not_affect_the_response_before_it(
    gateway: Gateway, model_server: ModelServer, api: ClientApi, ahead: bytes
) -> None:
    gate = Gate()
    model_server.enqueue((BEGUN, gate, REST))
    body = json.dumps(api.request_body(stream=True)).encode()
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        client.send(encode_request("POST", api.path, body) + ahead)
        gate.reached.result(30)
        assert other.get("/healthz").reply().status == 200  # proves that the gateway has read it
        gate.open()
        assert frames(client.reply().body)
        assert is_closed(client)


def test_invalid_pipelined_body_does_not_affect_the_response_before_it(
    gateway: Gateway, model_server: ModelServer, api: ClientApi
) -> None:
    gate = Gate()
    model_server.enqueue((BEGUN, gate, REST))
    body = json.dumps(api.request_body(stream=True)).encode()
    chunked = f"POST {api.path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    with RawClient(gateway.port) as client, RawClient(gateway.port) as other:
        client.send(encode_request("POST", api.path, body) + chunked)
        gate.reached.result(30)
        client.send(b"zz\r\n\r\n")
        assert other.get("/healthz").reply().status == 200  # proves that the gateway has read it
        gate.open()
        assert frames(client.reply().body)
        assert is_closed(client)


def test_invalid_body_of_a_refused_request_closes_the_connection(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        client.send(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        assert client.reply().status == 404
        client.send(b"zz\r\n\r\n")
        assert is_closed(client)


def test_large_body_does_not_count_as_head(gateway: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole(), whole())
    body = json.dumps(api.request_body()).encode().ljust(10 * MAX_HEAD_BYTES)
    with RawClient(gateway.port) as client:
        for _ in range(2):
            assert client.send(encode_request("POST", api.path, body)).reply().status == 200


def test_invalid_http_is_refused_in_json(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        reply = client.send(b"nonsense\r\n\r\n").reply()
        assert client.read_rest() == b""
    assert reply.status == 400
    assert reply.json()["error"]["code"] == "invalid_http"
    assert reply.headers["connection"] == "close"
    assert reply.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("refusal", [413, 401, 404])
def test_body_of_a_refused_request_is_read_up_to_a_limit(model_server: ModelServer, api: ClientApi, refusal: int) -> None:
    keys = f'[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\n' if refusal == 401 else ""
    path = "/nowhere" if refusal == 404 else api.path
    with (
        running(configuration(model_server, before=f"[server]\nmax_body_bytes = 1000\n{keys}")) as gateway,
        RawClient(gateway.port) as client,
    ):
        client.send(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {10**15}\r\n\r\n".encode())
        assert client.reply().status == refusal
        assert is_cut_off(client)


# Time limits


@pytest.mark.parametrize("begun", [b"", b'{"model":'])
def test_missing_body_is_refused_after_a_timeout(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_TIMEOUT_SECONDS", SOON)

    async def scenario() -> bytes:
        async with serving(scripted(DemoBackend())) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode_request("POST", CHAT.path, b" " * 100)[:-100] + begun)
            response = await reader.read()
            writer.close()
        return response

    with log.captured() as lines:
        response = asyncio.run(scenario())
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["code"] == "request_timeout"
    assert [(line["event"], line["status"]) for line in lines] == [("refused", 408)]


def test_slow_but_steady_body_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_TIMEOUT_SECONDS", 1)

    async def scenario() -> bytes:
        async with serving(scripted(DemoBackend())) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            whole_request = encode_request("POST", CHAT.path, b"{     ", "connection: close")
            writer.write(whole_request[:-6])
            for byte in whole_request[-6:]:  # in all longer than the timeout
                await asyncio.sleep(0.2)
                writer.write(bytes([byte]))
            response = await reader.read()
            writer.close()
        return response

    with log.captured():
        assert asyncio.run(scenario()).startswith(b"HTTP/1.1 400 ")


# HTTP/1.0


def test_stream_to_http_1_0_has_no_chunks_and_ends_with_the_connection(
    gateway: Gateway, model_server: ModelServer, api: ClientApi
) -> None:
    model_server.enqueue(STREAMED, STREAMED)
    body = json.dumps(api.request_body(stream=True)).encode()
    with RawClient(gateway.port) as client:
        chunked_frames = frames(client.send(encode_request("POST", api.path, body)).reply().body)
    with RawClient(gateway.port) as client:
        status, headers = client.send(encode_request("POST", api.path, body, version="1.0")).head()
        raw = client.read_rest()
    assert status == 200
    assert "transfer-encoding" not in headers
    assert headers["connection"] == "close"
    assert raw.startswith((b"data: ", b"event: "))
    assert b"\r\n" not in raw, "no chunk framing"
    assert len(frames(raw)) == len(chunked_frames)


def test_head_request_of_http_1_0_has_no_body(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        reply = client.send(encode_request("HEAD", "/healthz", version="1.0")).reply(to="HEAD")
        assert client.read_rest() == b""
    assert int(reply.headers["content-length"]) > 0
