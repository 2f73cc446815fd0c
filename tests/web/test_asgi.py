"""The bridge from our HTTP server to ASGI applications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.raw_client import encode_request
from tests.web.http.client import Client, run
from toolrelay import log
from toolrelay.errors import ClientError
from toolrelay.web.asgi import Bridge
from toolrelay.web.http.connection import HIGH_WATER
from toolrelay.web.http.exchange import Exchange

MAX_BODY = 1000
CLOSE = "connection: close"


def bridged(application: ASGIApp, scenario: Callable[[Client], Awaitable[None]]) -> None:
    """Serve the application, and run the scenario against it."""
    bridge = Bridge(application, max_body_bytes=MAX_BODY)

    async def handler(exchange: Exchange) -> None:
        try:
            await bridge.handle(exchange, exchange.path)
        except ClientError as error:
            exchange.respond(error.status, b"", error.message.encode())

    run(handler, scenario)


def ask(application: ASGIApp, *requests: bytes) -> bytes:
    """Return all bytes that the server sends until it closes the connection, as the last request must ask it to."""
    received: list[bytes] = []

    async def scenario(client: Client) -> None:
        client.send(b"".join(requests))
        received.append(await client.read_rest())

    bridged(application, scenario)
    return received[0]


def one_page(endpoint: Callable[[Request], Awaitable[Response]], *methods: str) -> Starlette:
    return Starlette(routes=[Route("/{path:path}", endpoint, methods=list(methods) or ["GET"])])


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


# Scope


def test_application_gets_path_query_headers_and_addresses() -> None:
    async def page(request: Request) -> Response:
        client = request.client
        assert client is not None
        parts = [request.url.path, *request.query_params.getlist("a"), *request.headers.getlist("x"), client.host]
        return PlainTextResponse("|".join(parts))

    response = ask(one_page(page), encode_request("GET", "/b%20c?a=1&a=%C3%A9", b"", "X: 2", "x: 3", CLOSE))
    assert body_of(response).decode() == "/b c|1|é|2|3|127.0.0.1"


def test_root_path_is_not_part_of_the_routes() -> None:
    async def page(request: Request) -> Response:
        return PlainTextResponse(f"{request.path_params['name']} {request.url.path}")

    bridge = Bridge(Starlette(routes=[Route("/models/{name}", page)]), max_body_bytes=MAX_BODY)

    async def handler(exchange: Exchange) -> None:
        await bridge.handle(exchange, exchange.path, "/v1")

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/v1/models/a", b"", CLOSE))
        assert body_of(await client.read_rest()) == b"a /v1/models/a"

    run(handler, scenario)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_scope_has_the_http_version(version: str) -> None:
    async def page(request: Request) -> Response:
        return PlainTextResponse(request.scope["http_version"])

    assert body_of(ask(one_page(page), encode_request("GET", "/", b"", CLOSE, version=version))) == version.encode()


# Request bodies


async def echo(request: Request) -> Response:
    return Response(await request.body())


def test_body_is_received() -> None:
    assert body_of(ask(one_page(echo, "POST"), encode_request("POST", "/", b"a" * MAX_BODY, CLOSE))) == b"a" * MAX_BODY


def test_too_large_body_is_a_413() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    assert ask(application, encode_request("POST", "/", b"a" * (MAX_BODY + 1), CLOSE)).startswith(b"HTTP/1.1 413 ")


def test_pipelined_requests_are_answered_in_order() -> None:
    requests = [encode_request("POST", "/", f"<{number}>".encode()) for number in range(20)]
    response = ask(one_page(echo, "POST"), *requests, encode_request("POST", "/", b"end", CLOSE))
    positions = [response.index(f"<{number}>".encode()) for number in range(20)]
    assert positions == sorted(positions)
    assert response.endswith(b"end")


def test_disconnect_during_the_body_is_reported() -> None:
    asked = asyncio.Event()
    received: list[Message] = []
    ended = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        received.append(await receive())
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})
        ended.set()

    async def scenario(client: Client) -> None:
        client.send(encode_request("POST", "/", b"abc")[:-1])
        await asyncio.wait_for(asked.wait(), 30)
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    bridged(application, scenario)
    assert received == [{"type": "http.disconnect"}]


# Responses


def test_whole_response_has_one_length_and_the_headers_of_the_application() -> None:
    async def page(_: Request) -> Response:
        response = PlainTextResponse("hello", headers={"Set-Cookie": "a=1"})
        response.headers.append("set-cookie", "b=2")
        return response

    response = ask(one_page(page), encode_request("GET", "/", b"", CLOSE))
    head = response.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert [line for line in head if line.startswith(b"content-length")] == [b"content-length: 5"]
    assert [line for line in head if line.startswith(b"set-cookie")] == [b"set-cookie: a=1", b"set-cookie: b=2"]
    assert any(line.startswith(b"x-request-id: ") for line in head)
    assert body_of(response) == b"hello"


def test_response_with_connection_close_closes_the_connection() -> None:
    async def page(_: Request) -> Response:
        return PlainTextResponse("hello", headers={"connection": "close"})

    response = ask(one_page(page), encode_request("GET", "/"))
    assert response.count(b"connection: close") == 1
    assert body_of(response) == b"hello"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [200, 204, 304])
def test_response_is_framed_for_its_method_and_status(method: str, status: int) -> None:
    async def page(_: Request) -> Response:
        return Response("" if status == 204 else "hello", status)

    response = ask(one_page(page), encode_request(method, "/"), encode_request("GET", "/", b"", CLOSE))
    head, _, rest = response.partition(b"\r\n\r\n")
    has_body = method == "GET" and status == 200
    assert rest.startswith(b"helloHTTP/1.1 " if has_body else b"HTTP/1.1 ")
    assert (b"content-length" in head) == (status == 200)


@pytest.fixture
def files(tmp_path: Path) -> Starlette:
    (tmp_path / "small.txt").write_bytes(b"0123456789")
    (tmp_path / "large.bin").write_bytes(bytes(range(256)) * 12_000)
    routes: Sequence[BaseRoute] = [Mount("/files", StaticFiles(directory=tmp_path))]
    return Starlette(routes=routes)


def test_static_files_are_served(files: Starlette) -> None:
    large = ask(files, encode_request("GET", "/files/large.bin", b"", CLOSE))
    assert b"content-length: 3072000\r\n" in large
    assert body_of(large) == bytes(range(256)) * 12_000
    head = ask(files, encode_request("HEAD", "/files/large.bin", b"", CLOSE))
    assert b"content-length: 3072000\r\n" in head
    assert body_of(head) == b""
    part = ask(files, encode_request("GET", "/files/small.txt", b"", "range: bytes=2-4", CLOSE))
    assert part.startswith(b"HTTP/1.1 206 ")
    assert body_of(part) == b"234"
    [etag] = [line for line in large.split(b"\r\n") if line.startswith(b"etag: ")]
    same = ask(files, encode_request("GET", "/files/large.bin", b"", f"if-none-match: {etag[6:].decode()}", CLOSE))
    assert same.startswith(b"HTTP/1.1 304 ")
    assert body_of(same) == b""


def streamed(*chunks: bytes) -> Starlette:
    async def page(_: Request) -> Response:
        async def generate() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return StreamingResponse(generate())

    return one_page(page)


def test_stream_is_chunked_and_the_connection_stays_usable() -> None:
    response = ask(streamed(b"one", b"", b"two"), encode_request("GET", "/"), encode_request("GET", "/", b"", CLOSE))
    assert response.count(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n") == 2


def test_stream_to_http_1_0_ends_with_the_connection() -> None:
    response = ask(streamed(b"one", b"two"), encode_request("GET", "/", version="1.0"))
    assert body_of(response) == b"onetwo"
    assert b"transfer-encoding" not in response


def test_head_of_a_stream_is_sent_before_its_first_chunk() -> None:
    released = asyncio.Event()

    async def page(_: Request) -> Response:
        async def generate() -> AsyncIterator[bytes]:
            await released.wait()
            yield b"late"

        return StreamingResponse(generate(), media_type="text/event-stream")

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        assert b"text/event-stream" in await client.read_until(b"\r\n\r\n")
        released.set()
        await client.read_until(b"4\r\nlate\r\n0\r\n\r\n")

    bridged(one_page(page), scenario)


def test_disconnect_ends_a_silent_stream() -> None:
    ended = asyncio.Event()

    async def page(_: Request) -> Response:
        async def generate() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await asyncio.Event().wait()
            finally:
                ended.set()

        return StreamingResponse(generate())

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        await client.read_until(b"one")
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    with log.captured() as lines:
        bridged(one_page(page), scenario)
    assert lines == []


def test_disconnect_does_not_cancel_a_page_that_does_not_stream() -> None:
    asked, released, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def page(request: Request) -> Response:
        asked.set()
        await released.wait()
        assert await request.is_disconnected()
        ended.set()
        return PlainTextResponse("too late")

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/"))
        await asyncio.wait_for(asked.wait(), 30)
        client.close()
        await asyncio.wait_for(ended.wait(), 30)

    async def until_disconnected(scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["toolrelay.exchange"]
        asyncio.ensure_future(exchange.wait_for_disconnect()).add_done_callback(lambda _: released.set())
        await application(scope, receive, send)

    application = one_page(page)
    bridged(until_disconnected, scenario)


def test_slow_reader_pauses_the_stream() -> None:
    sent = 0
    paused = asyncio.Event()
    total = 400

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        exchange: Exchange = scope["toolrelay.exchange"]
        await send({"type": "http.response.start", "status": 200})
        for _ in range(total):
            sending = asyncio.ensure_future(send({"type": "http.response.body", "body": b"a" * HIGH_WATER, "more_body": True}))
            await asyncio.sleep(0)
            if exchange.write_paused and not sending.done():
                paused.set()
            await sending
            sent += 1
        await send({"type": "http.response.body"})

    async def scenario(client: Client) -> None:
        client.send(encode_request("GET", "/", b"", CLOSE))
        await asyncio.wait_for(paused.wait(), 30)
        assert sent < total
        assert (await client.read_rest()).count(b"a") >= total * HIGH_WATER

    bridged(application, scenario)


async def send_all(send: Send, *messages: Message) -> None:
    for message in messages:
        await send(message)


def start(*headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": list(headers)}


def body(data: bytes = b"", *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


LENGTH = (b"Content-Length", b"5")


@pytest.mark.parametrize(
    "messages",
    [
        [start(LENGTH), body(b"too long")],
        [start(LENGTH), body(b"abc")],
        [start(LENGTH), body(b"abc", more=True), body(b"def", more=True)],
        [start(LENGTH), body(b"abc", more=True), body(b"d")],
        [start(), body(b"abc", more=True)],
        [start()],
        [],
        [body(b"abc")],
        [start(), start()],
        [start(), body(), start()],
        [start((b"x", b"a\r\nb: c"))],
        [{"type": "websocket.accept"}],
    ],
)
def test_invalid_response_of_an_application_is_an_error(messages: list[Message]) -> None:
    """Whatever was sent, the connection ends: what follows would be read as a part of it."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send_all(send, *messages)

    with log.captured() as lines:
        response = ask(application, encode_request("GET", "/a"), encode_request("GET", "/b", b"", CLOSE))
    assert response.count(b"HTTP/1.1 ") <= 1
    assert [line["event"] for line in lines] == ["internal_error"]
