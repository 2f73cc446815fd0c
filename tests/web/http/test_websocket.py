"""WebSockets on a connection of the HTTP server, with the frames of `websockets` as the client."""

from __future__ import annotations

import asyncio
import os
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from tests.raw_client import encode_request
from tests.scripted import listening
from tests.strategies import cut_bytes
from tests.web.http.application import SingleHandler
from tests.web.http.client import Client, connected_client
from tests.web.http.transport import RecordingTransport
from toolrelay import log
from toolrelay.errors import ClientError
from toolrelay.web.http.connection import HttpConnection
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.http.server import Server
from toolrelay.web.http.websocket import WebSocket, frame_head

LIMIT = 1000
HANDSHAKE_LINES = (
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
HANDSHAKE = encode_request("GET", "/ws", b"", *HANDSHAKE_LINES)


async def echo(exchange: Exchange) -> None:
    """Echo the messages of a WebSocket at /ws; answer plain requests."""
    if exchange.path != "/ws":
        exchange.respond(200, b"", b"plain")
        return
    try:
        socket = exchange.open_websocket(max_message_bytes=LIMIT, ping_seconds=float(exchange.headers.get(b"x-ping", b"0")))
    except ClientError as error:
        exchange.respond(error.status, b"", error.message.encode())
        return
    socket.listen(socket.write)
    await socket.wait_for_end()
    await socket.close(1001 if socket.is_leaving else 1000)


def frame(data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    """Return a frame of a client."""
    return Frame(opcode, data, fin).serialize(mask=True)


def read_frames(data: bytes) -> list[tuple[Opcode, bytes]]:
    """Return the whole frames that a client gets."""
    protocol = ClientProtocol(_URI, state=OPEN, max_size=None)
    protocol.receive_data(data)
    return [(event.opcode, bytes(event.data)) for event in protocol.events_received() if isinstance(event, Frame)]


_URI = parse_uri("ws://localhost/")


async def next_frame(client: Client) -> tuple[Opcode, bytes]:
    """Read one frame of less than 64 KiB."""
    head = await asyncio.wait_for(client.reader.readexactly(2), 60)
    size = head[1]
    if size == 126:
        size = int.from_bytes(await asyncio.wait_for(client.reader.readexactly(2), 60))
    return Opcode(head[0] & 15), await asyncio.wait_for(client.reader.readexactly(size), 60)


async def open_socket(client: Client, *lines: str) -> None:
    client.send(encode_request("GET", "/ws", b"", *HANDSHAKE_LINES, *lines))
    head = await client.read_until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
    assert b"connection: close" not in head


def close_code(data: bytes) -> int:
    return int.from_bytes(data[:2])


# Any chunking

_MESSAGES = st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=3), max_size=4)  # each in fragments


def echoed(pieces: list[bytes]) -> bytes:
    """Return what the server sends to bytes that arrive in these pieces."""

    async def main() -> bytes:
        transport, server = RecordingTransport(), Server(SingleHandler(echo))
        connection = HttpConnection(server)
        connection.connection_made(transport)
        for piece in pieces:
            connection.data_received(piece)
            for _ in range(3):
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        transport.close()
        connection.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)
        return transport.written

    with log.captured():
        return asyncio.run(main())


@given(data=st.data(), messages=_MESSAGES)
@settings(max_examples=40)
def test_messages_cut_anywhere_are_the_same(data: st.DataObject, messages: list[list[bytes]]) -> None:
    sent, expected = HANDSHAKE, []
    for fragments in messages:
        for number, fragment in enumerate(fragments):
            opcode = Opcode.CONT if number else Opcode.TEXT
            sent += frame(fragment, opcode, fin=number == len(fragments) - 1) + frame(b"?", Opcode.PING)
            expected.append((Opcode.PONG, b"?"))
        expected.append((Opcode.TEXT, b"".join(fragments)))
    head, _, received = echoed(data.draw(cut_bytes(sent))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    frames = read_frames(received)
    assert [each for each in frames if each[0] is Opcode.TEXT] == [each for each in expected if each[0] is Opcode.TEXT]
    assert sorted(frames) == sorted(expected)


def test_message_in_tiny_fragments_takes_the_memory_of_its_bytes() -> None:
    count = 5_000
    first, more = frame(b"ab", fin=False), frame(b"cd", Opcode.CONT, fin=False)

    async def main() -> tuple[list[bytes], int]:
        received: list[bytes] = []
        connection = HttpConnection(Server(SingleHandler(echo)))
        connection.connection_made(RecordingTransport())
        socket = WebSocket(connection, max_message_bytes=4 * count, ping_seconds=0)
        socket.listen(received.append)
        socket.feed(first)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(count):
            socket.feed(more)
        after, _ = tracemalloc.get_traced_memory()
        socket.feed(frame(b"", Opcode.CONT))
        connection.connection_lost(None)
        return received, after - before

    tracemalloc.start()
    try:
        received, taken = asyncio.run(main())
    finally:
        tracemalloc.stop()
    assert received == [b"ab" + b"cd" * count]
    assert taken < 10 * count


@pytest.mark.parametrize("size", [0, 1, 125, 126, 1023, 1024, 65535, 65536, 70000])
def test_text_frames_are_those_of_the_library(size: int) -> None:
    data = os.urandom(size)
    assert frame_head(size) + data == Frame(Opcode.TEXT, data).serialize(mask=False)


# Hostile frames

_HUGE = bytes([0x81, 0x80 | 127]) + (100 * 1024 * 1024).to_bytes(8) + b"mask"
_HOSTILE = {
    "a frame of 100 MB": (_HUGE + b"x" * 100_000, 1009),
    "fragments that are too large together": (frame(b"x" * 600, fin=False) + frame(b"x" * 600, Opcode.CONT), 1009),
    "endless fragments": (frame(b"x", fin=False) + frame(b"x" * 100, Opcode.CONT, fin=False) * 10, 1009),
    "binary": (frame(b"\x00", Opcode.BINARY), 1003),
    "not masked": (Frame(Opcode.TEXT, b"hello").serialize(mask=False), 1002),
    "reserved bits": (b"\xf1\x80mask", 1002),
    "unknown opcode": (b"\x83\x80mask", 1002),
    "continuation of nothing": (frame(b"x", Opcode.CONT), 1002),
    "a message within a message": (frame(b"x", fin=False) + frame(b"y"), 1002),
    "a large ping": (b"\x89\xfe\x00\xffmask" + b"x" * 255, 1002),
    "a ping in fragments": (b"\x09\x80mask", 1002),
    "a close frame with half a code": (frame(b"\x03", Opcode.CLOSE), 1002),
    "a close frame with an invalid code": (frame((999).to_bytes(2), Opcode.CLOSE), 1002),
    "HTTP": (encode_request("GET", "/plain"), 1002),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_frame_closes_the_connection_with_its_code(name: str) -> None:
    sent, code = _HOSTILE[name]

    async def main() -> None:
        async with connected_client(echo) as client:
            await open_socket(client)
            client.send(sent)
            opcode, data = await next_frame(client)
            assert (opcode, close_code(data)) == (Opcode.CLOSE, code)
            client.close_writing()
            assert await client.read_rest() == b""

    asyncio.run(main())


def test_hundred_megabytes_that_keep_coming_do_not_hide_the_close_frame() -> None:
    async def main() -> None:
        async with connected_client(echo) as client:
            await open_socket(client)
            client.send(_HUGE)
            for _ in range(64):
                client.send(bytes(65536))
            opcode, data = await next_frame(client)
            assert (opcode, close_code(data)) == (Opcode.CLOSE, 1009)

    asyncio.run(main())


# Handshakes

_VERSION_12 = encode_request("GET", "/ws", b"", *HANDSHAKE_LINES[:2], "sec-websocket-version: 12", HANDSHAKE_LINES[3])
_NO_KEY = encode_request("GET", "/ws", b"", *HANDSHAKE_LINES[:3])
_PLAIN = encode_request("GET", "/plain")


@pytest.mark.parametrize("refused", [_VERSION_12, _NO_KEY])
@pytest.mark.parametrize("is_joined", [True, False])
def test_http_goes_on_after_an_invalid_handshake(refused: bytes, *, is_joined: bool) -> None:
    async def main() -> None:
        async with connected_client(echo) as client:
            client.send(refused + _PLAIN if is_joined else refused)
            assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
            await client.read_until(b".")
            if not is_joined:
                client.send(_PLAIN)
            assert (await client.read_until(b"plain")).startswith(b"HTTP/1.1 200 ")

    asyncio.run(main())


def test_handshake_for_a_page_without_websocket_is_a_plain_request() -> None:
    async def main() -> None:
        async with connected_client(echo) as client:
            client.send(encode_request("GET", "/page", b"", *HANDSHAKE_LINES) + _PLAIN)
            for _ in range(2):
                assert (await client.read_until(b"plain")).startswith(b"HTTP/1.1 200 ")

    asyncio.run(main())


def test_handshake_with_a_body_is_a_plain_request() -> None:
    async def main() -> None:
        async with connected_client(echo) as client:
            client.send(encode_request("GET", "/ws", b"body", *HANDSHAKE_LINES) + _PLAIN)
            assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 426 ")
            assert b"HTTP/1.1 200 " in await client.read_until(b"plain")

    asyncio.run(main())


# Ends


def test_close_of_the_client_is_answered_and_ends_the_connection() -> None:
    async def main() -> None:
        async with connected_client(echo) as client:
            await open_socket(client)
            client.send(frame((1000).to_bytes(2) + b"bye", Opcode.CLOSE))
            assert await next_frame(client) == (Opcode.CLOSE, (1000).to_bytes(2) + b"bye")
            assert await client.read_rest() == b""

    asyncio.run(main())


def test_lost_connection_ends_the_handler() -> None:
    async def main() -> None:
        ended = asyncio.get_running_loop().create_future()

        async def handler(exchange: Exchange) -> None:
            socket = exchange.open_websocket(max_message_bytes=LIMIT, ping_seconds=0)
            await socket.wait_for_end()
            await socket.close(1000)
            ended.set_result(socket.close_code)

        async with connected_client(handler) as client:
            await open_socket(client)
            client.close()
            assert await asyncio.wait_for(ended, 60) == 1006

    asyncio.run(main())


def test_silent_client_is_pinged() -> None:
    async def main() -> None:
        async with connected_client(echo) as client:
            await open_socket(client, "x-ping: 0.01")
            assert await next_frame(client) == (Opcode.PING, b"")
            client.send(frame(b"", Opcode.PONG) + frame(b"hello"))
            while (received := await next_frame(client))[0] is Opcode.PING:
                pass
            assert received == (Opcode.TEXT, b"hello")

    asyncio.run(main())


def test_shutdown_closes_with_1001() -> None:
    async def main() -> None:
        server = Server(SingleHandler(echo))
        async with listening(server) as port:
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            await open_socket(client)
            stopping = asyncio.create_task(server.stop(60, asyncio.Event()))
            opcode, data = await next_frame(client)
            assert (opcode, close_code(data)) == (Opcode.CLOSE, 1001)
            client.send(frame(data, Opcode.CLOSE))
            assert await client.read_rest() == b""
            await asyncio.wait_for(stopping, 60)
            client.close()

    asyncio.run(main())


def test_client_that_reads_nothing_is_disconnected() -> None:
    async def main() -> None:
        server = Server(SingleHandler(echo), send_timeout=0.05)
        with log.captured() as lines:
            async with connected_client(echo, server=server) as client:
                await open_socket(client)
                client.stop_reading()
                message = frame(b"x" * 900)
                async with asyncio.timeout(60):
                    while not any(line["event"] == "client_stalled" for line in lines):
                        client.send(message * 100)
                        await asyncio.sleep(0)

    asyncio.run(main())
