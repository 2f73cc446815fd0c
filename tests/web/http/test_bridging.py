"""What a bridge to ASGI needs of an exchange: the whole head, framing, the addresses and the client's disconnect."""

from __future__ import annotations

import asyncio

import pytest

from tests.raw_client import encode_request
from tests.web.http.client import Client, run
from tests.web.http.test_exchange import RecordingChannel
from toolrelay.web.http.exchange import Exchange

# Request


@pytest.mark.parametrize(
    ("target", "raw_path", "query"),
    [
        ("/a/b?c=d&e=%20f", b"/a/b", b"c=d&e=%20f"),
        ("/a%20b%2Fc", b"/a%20b%2Fc", b""),
        ("/a?", b"/a", b""),
        ("/a?b?c#d", b"/a", b"b?c"),
        ("http://localhost:80/a?b", b"/a", b"b"),
        ("http://localhost", b"/", b""),
    ],
)
def test_raw_path_and_query_are_kept(target: str, raw_path: bytes, query: bytes) -> None:
    found: list[tuple[bytes, bytes]] = []

    async def handler(exchange: Exchange) -> None:
        found.append((exchange.raw_path, exchange.query))
        exchange.respond(200, b"", b"")

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", target, b"", "connection: close"))
        assert (await client.read_rest()).startswith(b"HTTP/1.1 200 ")

    run(handler, scenario)
    assert found == [(raw_path, query)]


def test_repeated_headers_are_kept_in_order() -> None:
    found: list[list[tuple[bytes, bytes]]] = []

    async def handler(exchange: Exchange) -> None:
        found.append(exchange.header_pairs)
        exchange.respond(200, b"", b"")

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/1", b"", "Cookie: a", "x: 1", "cookie: b", "COOKIE: a"))
        client.send(encode_request("GET", "/2", b"", "connection: close"))
        await client.read_rest()

    run(handler, scenario)
    first, second = found
    assert [value for name, value in first if name == b"cookie"] == [b"a", b"b", b"a"]
    assert sorted(name for name, _ in first) == [b"cookie", b"cookie", b"cookie", b"host", b"x"]
    assert second == [(b"host", b"127.0.0.1"), (b"connection", b"close")], "the next request has only its own"


def test_trailers_are_no_headers() -> None:
    found: list[list[tuple[bytes, bytes]]] = []

    async def handler(exchange: Exchange) -> None:
        await exchange.body(10)
        found.append(exchange.header_pairs)
        exchange.respond(200, b"", b"")

    async def scenario(client: Client) -> None:
        head = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        client.send(head + b"1\r\na\r\n0\r\nhost: b\r\n\r\n")
        await client.read_rest()

    run(handler, scenario)
    assert [value for name, value in found[0] if name == b"host"] == [b"a"]


def test_addresses_are_those_of_the_socket() -> None:
    async def handler(exchange: Exchange) -> None:
        client, server = exchange.client_address, exchange.server_address
        assert client is not None
        assert server is not None
        exchange.respond(200, b"", f"{client[0]} {client[1]} {server[0]} {server[1]}".encode())

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/", b"", "connection: close"))
        body = (await client.read_rest()).rpartition(b"\r\n\r\n")[2].decode()
        assert body == "{0[0]} {0[1]} {1[0]} {1[1]}".format(*client.addresses)

    run(handler, scenario)


# Response


def make_exchange(channel: RecordingChannel, method: str = "GET", *, is_http_1_1: bool = True) -> Exchange:
    return Exchange(channel, method, "/", {}, "test", is_http_1_1)


def test_response_with_a_length_is_not_chunked() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"content-length: 10\r\n", has_length=True)
    exchange.write(b"hello")
    exchange.write(b"there")
    exchange.end()
    written = b"".join(channel.written)
    assert written.endswith(b"content-length: 10\r\n\r\nhellothere")
    assert b"transfer-encoding" not in written
    assert exchange.response_complete


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("POST", 304)])
@pytest.mark.parametrize("has_length", [False, True])
def test_streamed_response_without_a_body_is_its_head(method: str, status: int, *, has_length: bool) -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel, method)
    exchange.begin(status, b"etag: a\r\n", has_length=has_length)
    assert exchange.response_complete
    exchange.write(b"hello")
    exchange.end()
    [written] = channel.written
    assert written.endswith(b"etag: a\r\n\r\n")
    assert b"transfer-encoding" not in written


@pytest.mark.parametrize("status", [204, 304])
def test_whole_response_without_a_body_has_no_length(status: int) -> None:
    channel = RecordingChannel()
    make_exchange(channel).respond(status, b"etag: a\r\n", b"dropped")
    [written] = channel.written
    assert written.endswith(b"etag: a\r\n\r\n")
    assert b"content-length" not in written


def test_response_to_head_has_the_length_of_the_body() -> None:
    channel = RecordingChannel()
    make_exchange(channel, "HEAD").respond(200, b"", b"hello")
    [written] = channel.written
    assert written.endswith(b"content-length: 5\r\n\r\n")


def test_stream_to_http_1_0_is_not_chunked() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel, is_http_1_1=False)
    exchange.begin(200, b"")
    exchange.write(b"hello")
    exchange.end()
    written = b"".join(channel.written)
    assert written.endswith(b"\r\n\r\nhello")
    assert b"transfer-encoding" not in written


def test_flush_sends_the_head_once() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    exchange.flush()
    exchange.flush()
    [head] = channel.written
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")
    exchange.write(b"hello")
    assert channel.written[1:] == [b"5\r\nhello\r\n"]


def test_second_start_of_a_response_is_ignored() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    exchange.begin(500, b"")
    exchange.end()
    assert b"".join(channel.written).count(b"HTTP/1.1 ") == 1


# Disconnection


def test_every_waiter_learns_of_a_disconnect() -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        waiters = [asyncio.ensure_future(exchange.wait_for_disconnect()) for _ in range(3)]
        waiters[0].cancel()
        waiting.set()
        await asyncio.gather(*waiters[1:])
        await exchange.wait_for_disconnect()  # at once
        ended.set()

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        await asyncio.wait_for(waiting.wait(), 30)
        assert not ended.is_set()
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    run(handler, scenario)
