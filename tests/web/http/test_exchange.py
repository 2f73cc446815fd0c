"""One request and its answer, on a connection of their own: what a page may rely on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager

import pytest

from tests.raw_client import encode_request
from tests.scripted import listening
from tests.web.http.application import Handler, SingleHandler
from toolrelay import log
from toolrelay.web.http.connection import HIGH_WATER, MAX_PIPELINED
from toolrelay.web.http.exchange import ClientDisconnectedError, Exchange, header_line
from toolrelay.web.http.server import Server

MUCH = b"a" * (3 * HIGH_WATER)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def hears(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(mark), 30)

    async def hears_the_end(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 30)

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def client_of(answer: Handler, *, server: Server | None = None) -> AsyncIterator[Client]:
    async with listening(server or Server(SingleHandler(answer))) as port:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield client
        finally:
            client.close()


def run(answer: Handler, story: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with client_of(answer) as client:
            await story(client)

    asyncio.run(main())


class _Ready:
    def __await__(self) -> Generator[None, None, None]:
        yield


class Wire:
    """A connection of which only what is written matters."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.write_paused = False
        self.drained: Awaitable[None] = _Ready()

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def drain(self) -> Awaitable[None]:
        return self.drained

    def resume_reading(self) -> None: ...


async def say_the_path(exchange: Exchange) -> None:
    exchange.respond(200, b"", exchange.path.encode())


# The request


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a/b?c=d", "/a/b"),
        ("/a%20b%C3%A9", "/a b\u00e9"),
        ("http://localhost:80/a", "/a"),
        ("/a#b", "/a"),
    ],
)
def test_the_path_is_what_stands_between_host_and_query(target: str, path: str) -> None:
    async def story(client: Client) -> None:
        client.send(encode_request("GET", target))
        head = await client.hears(b"\r\n\r\n")
        said = await client.reader.readexactly(len(path.encode()))
        assert b"content-length: %d\r\n" % len(path.encode()) in head
        assert said.decode() == path

    run(say_the_path, story)


def test_of_a_header_that_comes_twice_the_first_counts() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.respond(200, b"", exchange.headers[b"x-name"])

    async def story(client: Client) -> None:
        client.send(encode_request("GET", "/", b"", "X-Name: first", "x-name: second", "connection: close"))
        assert (await client.hears_the_end()).endswith(b"\r\n\r\nfirst")

    run(answer, story)


def test_who_has_sent_the_body_already_is_not_told_to_continue() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.respond(200, b"", await exchange.body(10))

    async def story(client: Client) -> None:
        client.send(encode_request("POST", "/", b"hello", "expect: 100-continue", "connection: close"))
        assert (await client.hears_the_end()).startswith(b"HTTP/1.1 200 ")

    run(answer, story)


def test_content_length_may_have_thousands_of_zeros() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.respond(200, b"", await exchange.body(10))

    async def story(client: Client) -> None:
        client.send(b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: %b5\r\n\r\nhello" % (b"0" * 5000))
        assert (await client.hears_the_end()).endswith(b"\r\n\r\nhello")

    run(answer, story)


def test_a_body_that_nobody_reads_is_passed_over() -> None:
    async def story(client: Client) -> None:
        for _ in range(3):
            client.send(encode_request("POST", "/a", MUCH) + encode_request("GET", "/b"))
            assert (await client.hears(b"/a")).startswith(b"HTTP/1.1 200 ")
            assert (await client.hears(b"/b")).startswith(b"HTTP/1.1 200 ")

    run(say_the_path, story)


@pytest.mark.parametrize("body", [b"", MUCH[: HIGH_WATER // 2]], ids=["without bodies", "with bodies"])
def test_any_number_of_requests_may_be_sent_ahead(body: bytes) -> None:
    async def answer(exchange: Exchange) -> None:
        said = await exchange.body(len(body))
        exchange.respond(200, b"", b"%b %d" % (exchange.path.encode(), len(said)))

    async def story(client: Client) -> None:
        number = 5 * MAX_PIPELINED
        client.send(b"".join(encode_request("POST", f"/{place}", body) for place in range(number)))
        for place in range(number):
            assert (await client.hears(b"/%d %d" % (place, len(body)))).startswith(b"HTTP/1.1 200 ")

    run(answer, story)


# The answer


def exchange_on(line: Wire) -> Exchange:
    return Exchange(line, "POST", "/", {}, "test")


def test_a_head_leaves_with_the_first_piece_of_its_body() -> None:
    line = Wire()
    exchange = exchange_on(line)
    exchange.begin(200, b"")
    assert not line.written
    exchange.write(b"hello")
    exchange.write(b"there")
    exchange.end()
    first, *rest = line.written
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
    assert rest == [b"5\r\nthere\r\n", b"0\r\n\r\n"]


def test_an_open_response_may_end_without_a_piece() -> None:
    line = Wire()
    exchange = exchange_on(line)
    exchange.begin(200, b"")
    exchange.end()
    [written] = line.written
    assert written.endswith(b"chunked\r\n\r\n0\r\n\r\n")


def test_empty_piece_does_not_end_an_open_response() -> None:
    line = Wire()
    exchange = exchange_on(line)
    exchange.begin(200, b"")
    exchange.write(b"")
    exchange.write(b"hello")
    exchange.write(b"")
    exchange.end()
    assert b"".join(line.written).endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")


def test_nothing_is_written_after_the_end_of_a_response() -> None:
    line = Wire()
    streamed, plain = exchange_on(line), exchange_on(line)
    streamed.begin(200, b"")
    streamed.write(b"hello")
    streamed.end()
    plain.respond(200, b"", b"hello")
    written = list(line.written)
    for exchange in (streamed, plain):
        exchange.write(b"more")
        exchange.end()
        exchange.respond(500, b"", b"failed")
    assert line.written == written


def test_error_in_the_midst_of_an_open_response_is_no_second_response() -> None:
    line = Wire()
    exchange = exchange_on(line)
    exchange.begin(200, b"")
    exchange.write(b"hello")
    exchange.respond(500, b"", b"failed")
    assert b"500" not in b"".join(line.written)
    assert not exchange.response_complete


def test_a_whole_response_is_one_write() -> None:
    line = Wire()
    exchange_on(line).respond(200, b"x-a: b\r\n", b"hello")
    [written] = line.written
    assert written.endswith(b"x-a: b\r\ncontent-length: 5\r\n\r\nhello")


def test_a_client_that_reads_too_slowly_is_to_be_waited_for() -> None:
    line = Wire()
    exchange = exchange_on(line)
    exchange.begin(200, b"")
    assert exchange.write(b"hello") is None
    line.write_paused = True
    assert exchange.write(b"hello") is line.drained


def test_what_is_written_to_a_client_that_has_left_goes_nowhere() -> None:
    line = Wire()
    streaming, plain = exchange_on(line), exchange_on(line)
    streaming.begin(200, b"")
    for exchange in (streaming, plain):
        exchange.disconnect()
    assert streaming.write(b"hello") is None
    streaming.end()
    plain.respond(200, b"", b"hello")
    assert not line.written


def test_a_page_that_does_not_answer_costs_the_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        pass

    async def story(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        assert await client.hears_the_end() == b""

    run(answer, story)


def test_a_fault_beneath_the_pages_is_logged_and_ends_the_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        raise RuntimeError("as planned")

    async def story(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        assert await client.hears_the_end() == b""

    with log.captured() as lines:
        run(answer, story)
    assert [line["event"] for line in lines] == ["internal_error"]
    assert "as planned" in lines[0]["exception"]


def test_a_status_that_nobody_knows_is_a_status() -> None:
    line = Wire()
    exchange_on(line).respond(499, b"", b"")
    assert line.written[0].startswith(b"HTTP/1.1 499 \r\n")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\x00b", b"\x7f"])
def test_a_value_that_would_be_more_than_one_line_is_none(value: bytes) -> None:
    with pytest.raises(ValueError, match="value"):
        header_line(b"x", value)


# Leaving


@pytest.mark.parametrize("body", [b"", b"a", MUCH], ids=["nothing", "little", "much"])
def test_a_client_that_leaves_cancels_whoever_watches(body: bytes) -> None:  # bug 44
    reached, ended = asyncio.Event(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.body(len(MUCH))
        reached.set()
        with pytest.raises(ClientDisconnectedError), exchange.cancel_on_disconnect():
            await asyncio.Event().wait()
        assert exchange.disconnected
        await asyncio.sleep(0)  # the task is no longer cancelled
        ended.set()

    async def story(client: Client) -> None:
        client.send(encode_request("POST", "/", body))
        await asyncio.wait_for(reached.wait(), 30)
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    run(answer, story)


# The server's end


def test_requests_that_were_sent_ahead_are_answered_before_the_end() -> None:
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        reached.set()
        await goes_on.wait()
        await say_the_path(exchange)

    async def main() -> None:
        server = Server(SingleHandler(answer))
        async with client_of(answer, server=server) as client:
            client.send(encode_request("GET", "/a") + encode_request("GET", "/b"))
            await reached.wait()
            stopping = asyncio.ensure_future(server.stop(30, asyncio.Event()))
            await asyncio.sleep(0)
            goes_on.set()
            told = await client.hears_the_end()
            await stopping
        first, _, second = told.partition(b"/a")
        assert b"connection: close" not in first
        assert b"connection: close" in second
        assert second.endswith(b"/b")

    asyncio.run(main())


@pytest.mark.parametrize("hurries", [False, True])
def test_who_does_not_finish_in_time_is_cancelled(*, hurries: bool) -> None:
    reached = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            exchange.respond(503, b"", b"no")

    async def main() -> None:
        server, force_requested = Server(SingleHandler(answer)), asyncio.Event()
        async with client_of(answer, server=server) as client:
            client.send(encode_request("GET", "/"))
            await reached.wait()
            if hurries:
                force_requested.set()
            await server.stop(30 if hurries else 0, force_requested)
            assert (await client.hears_the_end()).endswith(b"connection: close\r\n\r\nno")

    asyncio.run(main())
