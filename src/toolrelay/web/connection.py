"""One client's connection: uvicorn's, which also passes over offers to change the protocol, and does not wait for ever for a request.

Uvicorn takes an offer that it cannot accept, such as the one that Java's client makes with its first request, for the end of that
request, and loses its body.
"""

from __future__ import annotations

import asyncio
import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFER = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_PASSED_OVER = b"\r\nx-offer"  # as long as what it stands for


class Connection(HttpToolsProtocol):
    _until: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] -- uvicorn narrows it too
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._between_requests and b"pgrade" in data:
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(_PASSED_OVER, head) + end + body
        super().data_received(data)
        if self.timeout_keep_alive_task is None and self._between_requests and not self.transport.is_closing():
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._until = None
        super().on_headers_complete()

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        """However slowly it comes, the head of a request has as long as an idle connection is kept."""
        if self._until is None:
            self._until = self.loop.time() + self.timeout_keep_alive
        self.timeout_keep_alive_task = self.loop.call_at(self._until, self.timeout_keep_alive_handler)
