"""Plain ASGI: the few words of it that the doors use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from toolrelay.errors import ClientError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]
Piece: TypeAlias = Callable[[bytes], Awaitable[None] | None]  # what it returns is to be waited for: the client reads too slowly
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SILENCE_SECONDS = 60.0  # how long a body that is under way may pause

JSON = (b"content-type", b"application/json")
EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ClientGoneError(Exception):
    """The client went away before its request was whole."""


def header(scope: Scope, name: bytes) -> str | None:
    """The value of a request's header; `name` in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, or 413 as soon as it is known to be too large."""
    too_large = ClientError(
        f"The request body is larger than {limit} bytes. The limit is server.max_body_bytes.",
        status=413,
        code="request_too_large",
    )
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise too_large
    try:
        async with asyncio.timeout(SILENCE_SECONDS) as silence:
            return await _read_pieces(receive, limit, too_large, silence)
    except TimeoutError:
        raise ClientError(
            f"The rest of the request body did not come: {SILENCE_SECONDS:g} seconds passed without a byte of it.",
            status=408,
            code="request_timeout",
        ) from None


async def _read_pieces(receive: Receive, limit: int, too_large: ClientError, silence: asyncio.Timeout) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise too_large
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        silence.reschedule(asyncio.get_running_loop().time() + SILENCE_SECONDS)


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """A whole response."""
    if status != 204:  # which may not even say that its body is empty
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
