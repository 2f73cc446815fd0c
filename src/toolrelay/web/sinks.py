"""Where a turn's events go: frames in an open response, or one body at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from toolrelay.core.assembly import Assembly
from toolrelay.core.events import AnswerFailed, AnswerStarted, StreamEvent
from toolrelay.errors import ToolrelayError
from toolrelay.web.http.exchange import EVENT_STREAM, JSON
from toolrelay.wires.base import KEEP_ALIVE, Encoder, Envelope, Wire


class AnswerSink(Protocol):
    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        """Raises the error of an answer that failed before anything was written."""
        ...

    def close(self) -> None:
        """The turn is over."""
        ...

    def fail(self, error: ToolrelayError) -> bool:
        """Ends a response that is under way with the error. False: nothing was written yet, the error can be a plain HTTP one."""
        ...

    def stop(self) -> None:
        """The client is gone."""
        ...


class Response(Protocol):
    """What a sink needs of an exchange."""

    @property
    def full(self) -> bool: ...

    def respond(self, status: int, lines: bytes, body: bytes) -> None: ...

    def begin(self, status: int, lines: bytes) -> None: ...

    def write(self, data: bytes) -> Awaitable[None] | None: ...

    def end(self) -> None: ...


class StreamSink:
    """Nothing is written before the model speaks, so that an error before it is a plain HTTP error.

    While nothing else is written, a comment is, every `keepalive` seconds; it commits the status 200.
    """

    def __init__(self, wire: Wire, envelope: Envelope, response: Response, *, keepalive: float) -> None:
        self._encoder: Encoder = wire.encoder(envelope)
        self._response = response
        self._open = False
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.time()
        self._timer = self._loop.call_later(keepalive, self._tick) if keepalive > 0 else None

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if not self._open:
            for event in events:
                if isinstance(event, AnswerFailed):
                    raise event.error
                if not isinstance(event, AnswerStarted):
                    break
        frames = self._encoder.encode(events)
        if not frames:
            return None
        if not self._open:
            self._begin()
        self._written = self._loop.time()
        return self._response.write(frames)

    def _begin(self) -> None:
        self._open = True
        self._response.begin(200, EVENT_STREAM)

    def _tick(self) -> None:
        wait = self._written + self._keepalive - self._loop.time()
        if wait <= 0:
            wait = self._keepalive
            if not self._response.full:
                if not self._open:
                    self._begin()
                self._response.write(KEEP_ALIVE)
        self._timer = self._loop.call_later(wait, self._tick)

    def close(self) -> None:
        self.stop()
        if self._open:
            self._response.end()

    def fail(self, error: ToolrelayError) -> bool:
        self.stop()
        if not self._open:
            return False
        self._response.write(self._encoder.encode([AnswerFailed(error)]))
        self._response.end()
        return True

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class WholeSink:
    """Folds the events; the body is written at the end."""

    def __init__(self, wire: Wire, envelope: Envelope, response: Response) -> None:
        self._assembly = Assembly()
        self._begun = False
        self._wire = wire
        self._envelope = envelope
        self._response = response

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        add = self._assembly.add
        for event in events:
            add(event)
        if self._assembly.error is not None:
            raise self._assembly.error
        return None

    def close(self) -> None:
        body = self._wire.encode_answer(self._assembly.answer(), self._envelope)
        self._begun = True
        self._response.respond(200, JSON, body)

    def fail(self, error: ToolrelayError) -> bool:  # noqa: ARG002 -- a body that has begun has no place for it
        return self._begun

    def stop(self) -> None:
        pass
