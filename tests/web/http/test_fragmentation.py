"""Requests that arrive in pieces."""

from __future__ import annotations

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.raw_client import encode_request
from tests.strategies import cut_bytes
from tests.web.http.application import SingleHandler
from toolrelay import log
from toolrelay.web.http.connection import HttpConnection
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.http.server import Server


class Collected(asyncio.Transport):
    """A transport of which only what is written matters."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def heard(pieces: list[bytes]) -> bytes:
    """What is answered to bytes that arrive so, without the ids."""

    async def answer(exchange: Exchange) -> None:
        body = await exchange.body(1000)
        exchange.respond(200, b"", b"%b %b %b" % (exchange.method.encode(), exchange.path.encode(), body))

    async def main() -> bytes:
        transport, server = Collected(), Server(SingleHandler(answer))
        connection = HttpConnection(server)
        connection.connection_made(transport)
        for piece in pieces:
            connection.data_received(piece)
            for _ in range(3):
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        transport.close()
        connection.connection_lost(None)
        await asyncio.sleep(0)
        return re.sub(rb"test_\w+", b"", transport.written)

    with log.captured():
        return asyncio.run(main())


_OFFERS = st.sampled_from(
    [encode_request("POST", "/u", b"hello", "connection: upgrade", f"{name}: h2c") for name in ("upgrade", "UPGRADE ")]
)
_CHUNKED = b"POST /c?d HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
_REQUESTS = st.sampled_from(
    [
        encode_request("GET", "/a"),
        encode_request("HEAD", "/a"),
        encode_request("POST", "/b", b"hello\r\nupgrade: x"),
        _CHUNKED,
        encode_request("GET", "/e", b"", "connection: close"),
        encode_request("GET", "/f", version="1.0"),
    ]
)


@given(_OFFERS | _REQUESTS, st.lists(_REQUESTS, max_size=3), st.data())
@settings(max_examples=50, deadline=None)
def test_how_requests_arrive_does_not_matter(first: bytes, ahead: list[bytes], data: st.DataObject) -> None:
    whole = b"".join([first, *ahead])
    assert heard(data.draw(cut_bytes(whole))) == heard([whole])
