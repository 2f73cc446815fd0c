"""Where a turn's events go: frames in an open response, or one body at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from toolrelay.core.assembly import Assembly
from toolrelay.core.events import AnswerFailed, AnswerStarted, StreamEvent
from toolrelay.errors import ToolrelayError
from toolrelay.web.asgi import EVENT_STREAM, JSON, Headers, Piece, Send, respond
from toolrelay.wires.base import KEEP_ALIVE, Encoder, Envelope, Wire


class AnswerSink(Protocol):
    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        """Raises the error of an answer that failed before anything was written."""
        ...

    async def close(self) -> None:
        """The turn is over."""
        ...

    async def fail(self, error: ToolrelayError) -> bool:
        """Ends a response that is under way with the error. False: nothing was written yet, the error can be a plain HTTP one."""
        ...

    def stop(self) -> None:
        """The client is gone."""
        ...


class StreamSink:
    """Nothing is written before the model speaks, so that an error before it is a plain HTTP error.

    While nothing else is written, a comment is, every `keepalive` seconds; it commits the status 200. `piece` is the server's
    own way to write to an open response, where it has one.
    """

    def __init__(
        self, wire: Wire, envelope: Envelope, send: Send, headers: Headers, *, keepalive: float, piece: Piece | None = None
    ) -> None:
        self._piece = piece
        self._encoder: Encoder = wire.encoder(envelope)
        self._send = send
        self._headers = headers
        self._open = False
        self._over = False
        self._busy = False
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.time()
        self._timer = self._loop.call_later(keepalive, self._tick) if keepalive > 0 else None
        self._comment: asyncio.Task[None] | None = None

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if not self._open or self._piece is None or self._comment is not None:
            return self.send(events)
        frames = self._encoder.encode(events)
        self._written = self._loop.time()
        full = self._piece(frames) if frames else None
        return None if full is None else self._wait(full)

    async def _wait(self, full: Awaitable[None]) -> None:
        self._busy = True
        await full
        self._busy = False

    async def send(self, events: list[StreamEvent]) -> None:
        if self._comment is not None:
            await self._comment
        if not self._open:
            for event in events:
                if isinstance(event, AnswerFailed):
                    raise event.error
                if not isinstance(event, AnswerStarted):
                    break
        frames = self._encoder.encode(events)
        if frames:
            await self._write(frames)

    async def _write(self, frames: bytes) -> None:
        self._busy = True
        if not self._open:
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers + EVENT_STREAM})
            self._open = True
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})
        self._written = self._loop.time()
        self._busy = False

    def _tick(self) -> None:
        wait = self._written + self._keepalive - self._loop.time()
        if wait <= 0:
            wait = self._keepalive
            if not self._busy:
                self._comment = self._loop.create_task(self._write_comment())
        self._timer = self._loop.call_later(wait, self._tick)

    async def _write_comment(self) -> None:
        try:
            if not self._busy and not self._over:  # it had to wait for its turn
                await self._write(KEEP_ALIVE)
        finally:
            self._comment = None

    async def close(self) -> None:
        await self._settle()
        if self._open:
            await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, error: ToolrelayError) -> bool:
        await self._settle()
        if not self._open:
            return False
        await self._write(self._encoder.encode([AnswerFailed(error)]))
        await self._send({"type": "http.response.body", "body": b""})
        return True

    async def _settle(self) -> None:
        """No comment comes from here on, and one that is being written has been: the end comes after it."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._comment is not None:
            await self._comment

    def stop(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()


class WholeSink:
    """Folds the events; the body is written at the end."""

    def __init__(self, wire: Wire, envelope: Envelope, send: Send, headers: Headers) -> None:
        self._assembly = Assembly()
        self._begun = False
        self._wire = wire
        self._envelope = envelope
        self._send = send
        self._headers = headers

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        add = self._assembly.add
        for event in events:
            add(event)
        if self._assembly.error is not None:
            raise self._assembly.error
        return None

    async def close(self) -> None:
        body = self._wire.encode_answer(self._assembly.answer(), self._envelope)
        self._begun = True
        await respond(self._send, 200, [*self._headers, JSON], body)

    async def fail(self, error: ToolrelayError) -> bool:  # noqa: ARG002 -- a body that has begun has no place for it
        return self._begun

    def stop(self) -> None:
        pass
