"""A client on an asyncio stream, connected to a server in the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.scripted import listening
from tests.web.http.application import Handler, SingleHandler
from toolrelay.web.http.server import Server


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @property
    def addresses(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The addresses of the client and of the server."""
        return self._writer.get_extra_info("sockname"), self._writer.get_extra_info("peername")

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def read_until(self, marker: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(marker), 30)

    async def read_rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 30)

    def close_writing(self) -> None:
        self._writer.write_eof()

    def stop_reading(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected_client(handler: Handler, *, server: Server | None = None) -> AsyncIterator[Client]:
    async with listening(server or Server(SingleHandler(handler))) as port:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield client
        finally:
            client.close()


def run(handler: Handler, scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with connected_client(handler) as client:
            await scenario(client)

    asyncio.run(main())
