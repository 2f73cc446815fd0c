"""Trailers of a chunked request: they are dropped, count against the head limit, and do not reach another request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from hashlib import sha256

import psutil
import pytest

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, ClientApi
from tests.raw_client import RawClient, encode_request
from tests.scripted import listening
from tests.web.http.application import SingleHandler
from toolrelay import log
from toolrelay.web.http.connection import MAX_HEAD_BYTES
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.http.server import Server

MEBIBYTE = 1024 * 1024
CHAT = CLIENT_APIS["openai_chat"]
KEYS = {"alice": "sk-alice", "bob": "sk-bob"}
CONFIG = '[models.fast]\nprovider = "demo"\n' + "".join(
    f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(key.encode()).hexdigest()}"\n' for name, key in KEYS.items()
)
TRAILERS = (
    b"Authorization: Bearer sk-alice\r\nx-toolrelay-client: use_tool\r\nhost: elsewhere\r\nx-name: trailer\r\n"
    b"content-type: text/plain\r\nx-empty:\r\n"
)
UPGRADE = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c")


def chunked(path: str, body: bytes, *lines: str, trailers: bytes = b"") -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "host: 127.0.0.1", "transfer-encoding: chunked", *lines, "", ""]).encode()
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)


def asked(api: ClientApi, *lines: str, trailers: bytes = TRAILERS) -> bytes:
    """Return a request with trailers, and with the key that they name."""
    body = json.dumps(api.request_body()).encode()
    return chunked(api.path, body, f"authorization: Bearer {KEYS['alice']}", *lines, trailers=trailers)


@pytest.mark.parametrize("offer", [(), UPGRADE], ids=["plain", "upgrade"])
@pytest.mark.parametrize("pipelined", [False, True])
def test_request_after_trailers_with_a_key_is_refused_without_its_own(*, pipelined: bool, offer: tuple[str, ...]) -> None:
    first, second = asked(CHAT, *offer), encode_request("GET", "/v1/models")
    with running(CONFIG) as gateway, RawClient(gateway.port) as client:
        client.send(first + second if pipelined else first)
        assert client.reply().status == 200
        if not pipelined:
            client.send(second)
        reply = client.reply()
    assert reply.status == 401
    assert reply.json()["error"]["code"] == "missing_api_key"


def test_turn_after_trailers_is_logged_under_its_own_key(api: ClientApi) -> None:
    own = encode_request("POST", api.path, json.dumps(api.request_body()).encode(), f"authorization: Bearer {KEYS['bob']}")
    with running(CONFIG) as gateway:
        with RawClient(gateway.port) as client:
            client.send(asked(api) + own)
            assert [client.reply().status, client.reply().status] == [200, 200]
        assert gateway.get("/healthz").status_code == 200  # proves that the last turn is in the log
        assert [json.loads(line)["key"] for line in gateway.log().splitlines()] == ["alice", "bob"]


# Fragmentation


async def echo(exchange: Exchange) -> None:
    body = await exchange.body(1000)
    headers = sorted((name.decode(), value.decode()) for name, value in exchange.headers.items())
    exchange.respond(200, b"", json.dumps([exchange.method, exchange.path, headers, body.decode()]).encode())


async def _responses(port: int, pieces: list[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        for _ in range(3):  # the server reads this piece before the next one is sent
            await asyncio.sleep(0)
    answers = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return re.sub(rb"test_\w+", b"", answers)


@pytest.mark.parametrize("offer", [(), UPGRADE], ids=["plain", "upgrade"])
def test_request_after_trailers_has_its_own_headers_however_it_is_split(offer: tuple[str, ...]) -> None:
    first = chunked("/a", b"hello", *offer, trailers=TRAILERS)
    second = encode_request("POST", "/b", b"there", "x-name: own", "connection: close")
    whole = first + second
    alone = chunked("/a", b"hello", *offer)

    async def main() -> None:
        async with listening(Server(SingleHandler(echo))) as port:
            expected = await _responses(port, [alone + second])
            assert expected.count(b'"/a"') == expected.count(b'"/b"') == expected.count(b'["x-name", "own"]') == 1
            assert await _responses(port, [whole[place : place + 1] for place in range(len(whole))]) == expected
            for place in range(1, len(whole)):
                assert await _responses(port, [whole[:place], whole[place:]]) == expected, whole[:place]

    asyncio.run(main())


# Size limit


@pytest.fixture(scope="module")
def demo() -> Iterator[Gateway]:
    with running('[models.fast]\nprovider = "demo"\n') as gateway:
        yield gateway


ENDLESS = {
    "lines": (b"0\r\n", b"x-trailer: 1\r\n"),
    "a name": (b"0\r\n", b"x"),
    "a value": (b"0\r\nx-trailer: ", b"x"),
    "a chunk extension": (b"1;x=", b"x"),
}
endless = pytest.mark.parametrize(("start", "piece"), ENDLESS.values(), ids=ENDLESS)
paths = pytest.mark.parametrize("path", [CHAT.path, "/nowhere"])


def begun(path: str, start: bytes, *lines: str) -> bytes:
    """Return a chunked request up to the start of its trailers or of a chunk extension."""
    return chunked(path, b"hello", *lines).removesuffix(b"0\r\n\r\n") + start


@endless
def test_trailers_above_the_limit_are_refused(demo: Gateway, start: bytes, piece: bytes) -> None:
    with RawClient(demo.port) as client:
        client.send(begun(CHAT.path, start) + piece * (2 * MAX_HEAD_BYTES // len(piece)))
        reply = client.reply()
        assert client.read_rest() == b""
    assert reply.status == 431
    assert reply.json()["error"]["code"] == "head_too_large"
    assert reply.headers["connection"] == "close"


@endless
@paths
@pytest.mark.parametrize("offer", [(), UPGRADE], ids=["plain", "upgrade"])
def test_endless_trailers_are_cut_off_and_not_kept(
    demo: Gateway, path: str, start: bytes, piece: bytes, offer: tuple[str, ...]
) -> None:
    process = psutil.Process(demo.process.pid)
    before = process.memory_info().rss
    megabyte = piece * (MEBIBYTE // len(piece))
    peak = before
    sent = 0
    with RawClient(demo.port) as client, contextlib.suppress(ConnectionError):
        client.send(begun(path, start, *offer))
        while sent < 100:
            client.send(megabyte)
            sent += 1
            peak = max(peak, process.memory_info().rss)
    assert sent < 100
    assert peak - before < 16 * MEBIBYTE
    assert demo.get("/healthz").status_code == 200
    assert "internal_error" not in demo.log()


def test_trailers_below_the_limit_are_dropped(demo: Gateway, api: ClientApi) -> None:
    trailers = b"x-trailer: 1\r\n" * (MAX_HEAD_BYTES // 2 // 14)
    with RawClient(demo.port) as client:
        for _ in range(3):
            client.send(chunked(api.path, json.dumps(api.request_body()).encode(), trailers=trailers))
            assert client.reply().status == 200


def test_pipelined_endless_trailers_do_not_affect_the_response_before_them() -> None:
    reached, released = asyncio.Event(), asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        reached.set()
        await released.wait()
        await echo(exchange)

    async def main() -> bytes:
        async with listening(Server(SingleHandler(handler))) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode_request("GET", "/a") + begun("/b", b"0\r\n"))
            await reached.wait()
            for _ in range(4):
                writer.write(b"x" * MAX_HEAD_BYTES)
                await writer.drain()
                await asyncio.sleep(0)
            released.set()
            answered = await asyncio.wait_for(reader.readuntil(b'""]'), 30)
            writer.close()
        return answered

    with log.captured():
        assert b'["GET", "/a"' in asyncio.run(main())
