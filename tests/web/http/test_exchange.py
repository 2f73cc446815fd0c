"""Requests and responses of one connection, as a handler sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator

import pytest

from tests.raw_client import encode_request
from tests.web.http.application import SingleHandler
from tests.web.http.client import Client, connected_client, run
from toolrelay import log
from toolrelay.web.http.connection import HIGH_WATER, MAX_PIPELINED
from toolrelay.web.http.exchange import ClientDisconnectedError, Exchange, header_line
from toolrelay.web.http.server import Server

LARGE = b"a" * (3 * HIGH_WATER)


class _Ready:
    def __await__(self) -> Generator[None, None, None]:
        yield


class RecordingChannel:
    """A response channel that records what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.write_paused = False
        self.drained: Awaitable[None] = _Ready()
        self.client_address = self.server_address = ("127.0.0.1", 1)
        self.is_tls = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def drain(self) -> Awaitable[None]:
        return self.drained

    def resume_reading(self) -> None: ...


async def respond_with_path(exchange: Exchange) -> None:
    exchange.respond(200, b"", exchange.path.encode())


# Request


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a/b?c=d", "/a/b"),
        ("/a%20b%C3%A9", "/a b\u00e9"),
        ("http://localhost:80/a", "/a"),
        ("/a#b", "/a"),
    ],
)
def test_path_is_decoded_without_host_and_query(target: str, path: str) -> None:
    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", target))
        head = await client.read_until(b"\r\n\r\n")
        body = await client.reader.readexactly(len(path.encode()))
        assert b"content-length: %d\r\n" % len(path.encode()) in head
        assert body.decode() == path

    run(respond_with_path, scenario)


def test_repeated_header_keeps_its_first_value() -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.respond(200, b"", exchange.headers[b"x-name"])

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/", b"", "X-Name: first", "x-name: second", "connection: close"))
        assert (await client.read_rest()).endswith(b"\r\n\r\nfirst")

    run(handler, scenario)


def test_expect_header_with_a_complete_body_gets_no_100_continue() -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.respond(200, b"", await exchange.body(10))

    async def scenario(client: Client) -> None:
        client.send(encode_request("POST", "/", b"hello", "expect: 100-continue", "connection: close"))
        assert (await client.read_rest()).startswith(b"HTTP/1.1 200 ")

    run(handler, scenario)


def test_content_length_with_thousands_of_zeros_is_accepted() -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.respond(200, b"", await exchange.body(10))

    async def scenario(client: Client) -> None:
        client.send(b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: %b5\r\n\r\nhello" % (b"0" * 5000))
        assert (await client.read_rest()).endswith(b"\r\n\r\nhello")

    run(handler, scenario)


def test_unread_body_is_discarded() -> None:
    async def scenario(client: Client) -> None:
        for _ in range(3):
            client.send(encode_request("POST", "/a", LARGE) + encode_request("GET", "/b"))
            assert (await client.read_until(b"/a")).startswith(b"HTTP/1.1 200 ")
            assert (await client.read_until(b"/b")).startswith(b"HTTP/1.1 200 ")

    run(respond_with_path, scenario)


@pytest.mark.parametrize("body", [b"", LARGE[: HIGH_WATER // 2]], ids=["without bodies", "with bodies"])
def test_many_pipelined_requests_are_answered(body: bytes) -> None:
    async def handler(exchange: Exchange) -> None:
        received = await exchange.body(len(body))
        exchange.respond(200, b"", b"%b %d" % (exchange.path.encode(), len(received)))

    async def scenario(client: Client) -> None:
        number = 5 * MAX_PIPELINED
        client.send(b"".join(encode_request("POST", f"/{place}", body) for place in range(number)))
        for place in range(number):
            assert (await client.read_until(b"/%d %d" % (place, len(body)))).startswith(b"HTTP/1.1 200 ")

    run(handler, scenario)


# Response


def make_exchange(channel: RecordingChannel) -> Exchange:
    return Exchange(channel, "POST", "/", {}, "test")


def test_head_is_sent_with_the_first_chunk() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    assert not channel.written
    exchange.write(b"hello")
    exchange.write(b"there")
    exchange.end()
    first, *rest = channel.written
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
    assert rest == [b"5\r\nthere\r\n", b"0\r\n\r\n"]


def test_streamed_response_may_end_without_a_chunk() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    exchange.end()
    [written] = channel.written
    assert written.endswith(b"chunked\r\n\r\n0\r\n\r\n")


def test_empty_chunk_does_not_end_a_streamed_response() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    exchange.write(b"")
    exchange.write(b"hello")
    exchange.write(b"")
    exchange.end()
    assert b"".join(channel.written).endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")


def test_nothing_is_written_after_the_end_of_a_response() -> None:
    channel = RecordingChannel()
    streamed, plain = make_exchange(channel), make_exchange(channel)
    streamed.begin(200, b"")
    streamed.write(b"hello")
    streamed.end()
    plain.respond(200, b"", b"hello")
    written = list(channel.written)
    for exchange in (streamed, plain):
        exchange.write(b"more")
        exchange.end()
        exchange.respond(500, b"", b"failed")
    assert channel.written == written


def test_error_during_a_streamed_response_sends_no_second_response() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    exchange.write(b"hello")
    exchange.respond(500, b"", b"failed")
    assert b"500" not in b"".join(channel.written)
    assert not exchange.response_complete


def test_whole_response_is_one_write() -> None:
    channel = RecordingChannel()
    make_exchange(channel).respond(200, b"x-a: b\r\n", b"hello")
    [written] = channel.written
    assert written.endswith(b"x-a: b\r\ncontent-length: 5\r\n\r\nhello")


def test_write_to_a_slow_reader_returns_an_awaitable() -> None:
    channel = RecordingChannel()
    exchange = make_exchange(channel)
    exchange.begin(200, b"")
    assert exchange.write(b"hello") is None
    channel.write_paused = True
    assert exchange.write(b"hello") is channel.drained


def test_nothing_is_written_after_a_disconnect() -> None:
    channel = RecordingChannel()
    streaming, plain = make_exchange(channel), make_exchange(channel)
    streaming.begin(200, b"")
    for exchange in (streaming, plain):
        exchange.disconnect()
    assert streaming.write(b"hello") is None
    streaming.end()
    plain.respond(200, b"", b"hello")
    assert not channel.written


def test_handler_without_a_response_closes_the_connection() -> None:
    async def handler(exchange: Exchange) -> None:
        pass

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        assert await client.read_rest() == b""

    run(handler, scenario)


def test_exception_of_a_handler_is_logged_and_closes_the_connection() -> None:
    async def handler(exchange: Exchange) -> None:
        raise RuntimeError("as planned")

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        assert await client.read_rest() == b""

    with log.captured() as lines:
        run(handler, scenario)
    assert [line["event"] for line in lines] == ["internal_error"]
    assert "as planned" in lines[0]["exception"]


def test_unknown_status_is_sent_without_a_phrase() -> None:
    channel = RecordingChannel()
    make_exchange(channel).respond(499, b"", b"")
    assert channel.written[0].startswith(b"HTTP/1.1 499 \r\n")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\x00b", b"\x7f"])
def test_header_value_with_control_characters_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="value"):
        header_line(b"x", value)


# Disconnection


@pytest.mark.parametrize("body", [b"", b"a", LARGE], ids=["nothing", "little", "much"])
def test_disconnect_cancels_the_block_and_not_the_task(body: bytes) -> None:  # bug 44
    reached, ended = asyncio.Event(), asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.body(len(LARGE))
        reached.set()
        with pytest.raises(ClientDisconnectedError), exchange.cancel_on_disconnect():
            await asyncio.Event().wait()
        assert exchange.disconnected
        await asyncio.sleep(0)  # the task is no longer cancelled
        ended.set()

    async def scenario(client: Client) -> None:
        client.send(encode_request("POST", "/", body))
        await asyncio.wait_for(reached.wait(), 30)
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    run(handler, scenario)


def test_block_is_not_entered_after_a_disconnect() -> None:  # bug 44
    reached, ended = asyncio.Event(), asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        reached.set()
        await exchange.wait_for_disconnect()
        with pytest.raises(ClientDisconnectedError), exchange.cancel_on_disconnect():
            raise AssertionError("nobody would cancel this block")
        ended.set()

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        await asyncio.wait_for(reached.wait(), 30)
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    run(handler, scenario)


# Shutdown


def test_pipelined_requests_are_answered_before_shutdown() -> None:
    reached, released = asyncio.Event(), asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        reached.set()
        await released.wait()
        await respond_with_path(exchange)

    async def main() -> None:
        server = Server(SingleHandler(handler))
        async with connected_client(handler, server=server) as client:
            client.send(encode_request("GET", "/a") + encode_request("GET", "/b"))
            await reached.wait()
            stopping = asyncio.ensure_future(server.stop(30, asyncio.Event()))
            await asyncio.sleep(0)
            released.set()
            received = await client.read_rest()
            await stopping
        first, _, second = received.partition(b"/a")
        assert b"connection: close" not in first
        assert b"connection: close" in second
        assert second.endswith(b"/b")

    asyncio.run(main())


@pytest.mark.parametrize("is_forced", [False, True])
def test_handler_that_outlasts_the_shutdown_is_cancelled(*, is_forced: bool) -> None:
    reached = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            exchange.respond(503, b"", b"no")

    async def main() -> None:
        server, force_requested = Server(SingleHandler(handler)), asyncio.Event()
        async with connected_client(handler, server=server) as client:
            client.send(encode_request("GET", "/"))
            await reached.wait()
            if is_forced:
                force_requested.set()
            await server.stop(30 if is_forced else 0, force_requested)
            assert (await client.read_rest()).endswith(b"connection: close\r\n\r\nno")

    asyncio.run(main())
