"""Clients that stop reading are disconnected and free what they hold. Slow readers are not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeAlias, TypeVar

import psutil
import pytest
import uvloop

from tests.gateway import TIMEOUT_SECONDS, Gateway, running
from tests.model_server import BEGUN, CLIENT_APIS, STREAMED, ClientApi, ModelServer, configuration, delta, whole
from tests.raw_client import RawClient, encode_request
from tests.upstream import chunk
from tests.web.http.application import SingleHandler
from toolrelay import log
from toolrelay.web.http.connection import HIGH_WATER, MAX_HEAD_BYTES, HttpConnection
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.http.server import Server

SOON = 0.2
CHAT = CLIENT_APIS["openai_chat"]
MUCH = 16 * 1024 * 1024  # more than the kernel takes on both sides
LONG_STREAM = (BEGUN, *[chunk(delta("x" * 1000) * 1000)] * 200)
TURNS = 8


@pytest.fixture(scope="module")
def short_timeout(model_server: ModelServer) -> Iterator[Gateway]:
    limits = f"[server]\nsend_timeout_seconds = {SOON}\n[limits]\nconcurrent_turns = {TURNS}\n"
    with running(configuration(model_server, before=limits)) as gateway:
        yield gateway


def lines(gateway: Gateway, event: str) -> list[dict[str, object]]:
    return [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == event]


def await_lines(gateway: Gateway, event: str, number: int) -> list[dict[str, object]]:
    """Return the log lines of that event once there are `number` of them."""
    while len(found := lines(gateway, event)) < number:
        assert gateway.get("/healthz").status_code == 200
    return found


def await_only_listener(gateway: Gateway) -> None:
    """Wait until no connection is open. Those of earlier requests may not be closed yet on this side."""
    process = psutil.Process(gateway.process.pid)
    until = time.monotonic() + TIMEOUT_SECONDS
    while (found := [link.status for link in process.net_connections() if link.laddr.port == gateway.port]) != ["LISTEN"]:
        assert time.monotonic() < until, found


def is_cut_off(client: RawClient, size: int) -> bool:
    """Return whether the connection ends before that many bytes have arrived."""
    try:
        return len(client.read_rest()) < size
    except ConnectionResetError:
        return True


# The whole gateway


def test_stalled_streams_free_their_turns_and_their_upstreams(
    short_timeout: Gateway, model_server: ModelServer, api: ClientApi
) -> None:
    turns, drops = len(lines(short_timeout, "turn")), len(lines(short_timeout, "client_stalled"))
    asked = model_server.enqueue(*[LONG_STREAM] * TURNS, STREAMED)
    with contextlib.ExitStack() as stack:
        for _ in range(TURNS):
            stack.enter_context(RawClient(short_timeout.port, window=4096)).post(api.path, api.request_body(stream=True)).frame()
        for number in range(asked, asked + TURNS):
            model_server.closed(number).result(30)
        assert short_timeout.post(api.path, api.request_body(stream=True)).status_code == 200
        ended = await_lines(short_timeout, "turn", turns + TURNS + 1)[turns:]
        assert [(line["status"], line["code"]) for line in ended[:TURNS]] == [(499, "client_stalled")] * TURNS
        assert ended[TURNS]["status"] == 200
        assert len(lines(short_timeout, "client_stalled")) == drops + TURNS


def test_unread_whole_response_is_dropped(short_timeout: Gateway, model_server: ModelServer, api: ClientApi) -> None:
    assert short_timeout.get("/healthz").status_code == 200
    drops = len(lines(short_timeout, "client_stalled"))
    model_server.enqueue(whole("x" * MUCH))
    with RawClient(short_timeout.port, window=4096) as client:
        client.post(api.path, api.request_body())
        [line] = await_lines(short_timeout, "client_stalled", drops + 1)[drops:]
        assert isinstance(line["unsent"], int)
        assert line["unsent"] > HIGH_WATER
        await_only_listener(short_timeout)
        assert is_cut_off(client, MUCH)


def test_unread_response_does_not_delay_the_shutdown(model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole("x" * MUCH))
    with running(configuration(model_server, before="[server]\nsend_timeout_seconds = 1\n")) as gateway:
        with RawClient(gateway.port, window=4096) as client:
            client.post(api.path, api.request_body())
            await_lines(gateway, "turn", 1)
            gateway.process.send_signal(signal.SIGTERM)
            assert gateway.process.wait(30) == 0
        assert len(lines(gateway, "client_stalled")) == 1


# One connection, with buffers of a known size in the kernel


class ObservedServer(Server):
    """A server with an event for the loss of a connection."""

    lost: asyncio.Event

    def unregister(self, connection: HttpConnection) -> None:
        super().unregister(connection)
        self.lost.set()


@contextlib.asynccontextmanager
async def _connected(server: ObservedServer, *, sends: int = 4096, receives: int = 4096) -> AsyncIterator[socket.socket]:
    server.lost = asyncio.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sends)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    await server.start(listener)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
    try:
        yield client
    finally:
        client.close()
        await server.stop(30, asyncio.Event())


T = TypeVar("T")
Run: TypeAlias = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run[Any]]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def answering(size: int, *, idle: float = 75, send_timeout: float = SOON) -> ObservedServer:
    async def handler(exchange: Exchange) -> None:
        exchange.respond(200, b"", b"x" * size)

    return ObservedServer(SingleHandler(handler), idle_timeout=idle, send_timeout=send_timeout)


@pytest.mark.parametrize(
    "sent",
    [
        encode_request("GET", "/") * 2,
        encode_request("GET", "/", b"", "connection: close"),
        encode_request("GET", "/") + b"nonsense\r\n\r\n",
        encode_request("GET", "/") + b"GET /" + b"x" * 2 * MAX_HEAD_BYTES,
    ],
    ids=["pipelined", "closing", "refused", "refused head"],
)
@pytest.mark.parametrize("size", [HIGH_WATER // 2, 4 * HIGH_WATER], ids=["little", "much"])
def test_connection_whose_client_stopped_reading_is_dropped(run: Run[None], size: int, sent: bytes) -> None:
    async def main() -> None:
        server = answering(size, idle=SOON)
        async with _connected(server) as client:
            await asyncio.get_running_loop().sock_sendall(client, sent)
            await asyncio.wait_for(server.lost.wait(), 30)

    with log.captured() as logged:
        run(main())
    assert [line["event"] for line in logged if line["event"] != "refused"] == ["client_stalled"]


def test_idle_connection_with_unread_bytes_is_dropped(run: Run[None]) -> None:
    async def main() -> None:
        server = answering(HIGH_WATER // 2, idle=SOON)
        async with _connected(server) as client:
            await asyncio.get_running_loop().sock_sendall(client, encode_request("GET", "/"))
            await asyncio.wait_for(server.lost.wait(), 30)

    with log.captured() as logged:
        run(main())
    assert [line["event"] for line in logged] == ["client_stalled"]


def test_half_closed_connection_with_unread_bytes_is_dropped(run: Run[None]) -> None:
    async def main() -> None:
        server = answering(HIGH_WATER // 2)
        async with _connected(server) as client:
            await asyncio.get_running_loop().sock_sendall(client, encode_request("GET", "/"))
            client.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(server.lost.wait(), 30)

    with log.captured() as logged:
        run(main())
    assert [line["event"] for line in logged] == ["client_stalled"]


@pytest.mark.parametrize(("sends", "receives"), [(4096, 4096), (1024 * 1024, 65536)], ids=["small buffers", "large buffers"])
def test_slow_but_steady_reader_gets_everything(run: Run[int], sends: int, receives: int) -> None:
    """A kernel with large buffers asks for more only after a third of them is sent."""
    size = 4 * sends + 4 * HIGH_WATER

    async def main() -> int:
        loop = asyncio.get_running_loop()
        server = answering(size, send_timeout=2 * SOON)
        received = 0
        async with _connected(server, sends=sends, receives=receives) as client:
            await loop.sock_sendall(client, encode_request("GET", "/", b"", "connection: close"))
            for _ in range(40):  # in all many times longer than the timeout
                received += len(await loop.sock_recv(client, receives // 2))
                await asyncio.sleep(SOON / 5)
            while piece := await loop.sock_recv(client, receives):
                received += len(piece)
        return received

    with log.captured() as logged:
        assert run(main()) > size
    assert not logged
