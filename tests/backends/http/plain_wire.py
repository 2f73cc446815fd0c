"""A minimal wire for tests, and a backend that uses it with a scripted upstream."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from tests.upstream import Upstream
from toolrelay.backends.http import HttpBackend, HttpSettings
from toolrelay.core.events import AnswerFailed, AnswerFinished, Noticed, StreamEvent, TextDelta
from toolrelay.core.messages import Message
from toolrelay.core.profiles import Profile
from toolrelay.core.request import Request
from toolrelay.errors import BackendError, ToolrelayError, invalid
from toolrelay.wires.base import OutgoingRequest
from toolrelay.wires.chat import WIRE as CHAT

KEY = "sk-very-secret"
SECRET_WORD = "xyzzy"  # content of the request, which no error may repeat
REQUEST = Request(wire="plain", model="mine", items=(Message(role="user", content=SECRET_WORD),))
STREAMED = replace(REQUEST, stream=True)
DONE = AnswerFinished(finish="stop")


class LineDecoder:
    """A line of text is a delta, `[DONE]` is the end."""

    def __init__(self) -> None:
        self._held = b""
        self._over = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        *lines, self._held = (self._held + data).split(b"\n")
        self._over = self._over or b"[DONE]" in lines
        return [DONE if line == b"[DONE]" else TextDelta(line.decode()) for line in lines if line]

    def flush(self) -> list[StreamEvent]:
        return [] if self._over else [AnswerFailed(BackendError("no end", code="unfinished"))]


def encode_request(request: Request, profile: Profile) -> OutgoingRequest:
    if request.user == "nobody":
        raise invalid("There is no such user.", "user")
    body = json.dumps({"model": request.model, "stream": request.stream, "content": SECRET_WORD}).encode()
    return OutgoingRequest(path="/plain words", body=body, dropped=tuple(request.extra or ()))


def decode_error(status: int, body: bytes) -> BackendError:
    return BackendError(f"refused with {len(body)} bytes: {body[:20].decode()}", status=status, code="refused")


WIRE = replace(
    CHAT,  # its server half, which no backend uses
    name="plain",
    encode_request=encode_request,
    decoder=LineDecoder,
    decode_answer=lambda body: [TextDelta(body.decode()), DONE],
    decode_error=decode_error,
)


class Pauses(list[float]):
    """Records pauses instead of waiting."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def settings_for(url: str, timeout: float = 30) -> HttpSettings:
    return HttpSettings(
        name="mine", provider="compatible", model="theirs", base_url=url, wire="chat", api_key=KEY, timeout_seconds=timeout
    )


@asynccontextmanager
async def backend_for(
    upstream: Upstream, *, path: str = "/v1", read_timeout: float = 30, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[HttpBackend, Pauses]]:
    pauses = Pauses()
    backend = HttpBackend(settings_for(upstream.url + path, read_timeout), WIRE, Profile(), context=context, pause=pauses)
    try:
        yield backend, pauses
    finally:
        await backend.close()
        assert not backend._pool._all


async def collect(backend: HttpBackend, request: Request = STREAMED) -> list[StreamEvent]:
    return [event for batch in await batches(backend, request) for event in batch]


async def batches(backend: HttpBackend, request: Request, on_batch: Callable[[], None] = lambda: None) -> list[list[StreamEvent]]:
    """Return the delivered batches; `on_batch` is called after each."""
    delivered: list[list[StreamEvent]] = []

    def deliver(batch: list[StreamEvent]) -> None:
        assert batch
        delivered.append(batch)
        on_batch()

    await backend.stream_into(request, deliver)
    return delivered


def ask(upstream: Upstream, request: Request = STREAMED, read_timeout: float = 30) -> tuple[list[StreamEvent], Pauses]:
    """Return one request's events without notices, and the pauses between its tries."""

    async def main() -> tuple[list[StreamEvent], Pauses]:
        async with backend_for(upstream, read_timeout=read_timeout) as (backend, pauses):
            events = await collect(backend, request)
            return [event for event in events if not isinstance(event, Noticed)], pauses

    return asyncio.run(main())


def failure(events: Sequence[StreamEvent]) -> ToolrelayError:
    """Return the error of an answer that consists of it."""
    (event,) = events
    assert isinstance(event, AnswerFailed)
    return event.error
