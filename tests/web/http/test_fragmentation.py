"""Requests that arrive in pieces."""

from __future__ import annotations

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.raw_client import encode_request
from tests.strategies import cut_bytes
from tests.web.http.application import SingleHandler
from tests.web.http.transport import RecordingTransport
from toolrelay import log
from toolrelay.web.http.connection import HttpConnection
from toolrelay.web.http.exchange import Exchange
from toolrelay.web.http.server import Server


def responses_to(pieces: list[bytes]) -> bytes:
    """Return the responses to bytes that arrive in these pieces, without request ids."""

    async def handler(exchange: Exchange) -> None:
        body = await exchange.body(1000)
        exchange.respond(200, b"", b"%b %b %b" % (exchange.method.encode(), exchange.path.encode(), body))

    async def main() -> bytes:
        transport, server = RecordingTransport(), Server(SingleHandler(handler))
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


_UPGRADES = st.sampled_from(
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


@given(_UPGRADES | _REQUESTS, st.lists(_REQUESTS, max_size=3), st.data())
@settings(max_examples=50, deadline=None)
def test_fragmentation_does_not_change_the_responses(first: bytes, pipelined: list[bytes], data: st.DataObject) -> None:
    whole = b"".join([first, *pipelined])
    assert responses_to(data.draw(cut_bytes(whole))) == responses_to([whole])
