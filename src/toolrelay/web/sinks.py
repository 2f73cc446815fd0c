"""Sinks for a turn's events: a stream of server-sent events, or one JSON body at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from toolrelay.core.assembly import Assembly
from toolrelay.core.events import AnswerFailed, AnswerStarted, StreamEvent
from toolrelay.errors import ToolrelayError
from toolrelay.web.http.exchange import EVENT_STREAM, JSON
from toolrelay.wires.base import Encoder, Envelope, Wire


class AnswerSink(Protocol):
    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        """Raise the error of an answer that failed before anything was written."""
        ...

    def close(self) -> None:
        """End the response after a complete turn."""
        ...

    def fail(self, error: ToolrelayError) -> bool:
        """End a started response with the error. Return False if nothing was written: then an HTTP error is possible."""
        ...

    def stop(self) -> None:
        """Write nothing more: the client is disconnected."""
        ...


class ResponseWriter(Protocol):
    """The part of an exchange that a sink uses."""

    @property
    def write_paused(self) -> bool: ...

    def respond(self, status: int, headers: bytes, body: bytes) -> None: ...

    def begin(self, status: int, headers: bytes) -> None: ...

    def write(self, data: bytes) -> Awaitable[None] | None: ...

    def end(self) -> None: ...


class StreamSink:
    """Starts the response with the first event of the model, so that an error before it can be an HTTP error.

    After `keepalive` seconds without a write it sends the wire's keep-alive, which commits the status 200.
    """

    def __init__(self, wire: Wire, envelope: Envelope, response: ResponseWriter, *, keepalive: float) -> None:
        self._encoder: Encoder = wire.encoder(envelope)
        self._response = response
        self._is_open = False
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._last_write = self._loop.time()
        self._timer = self._loop.call_later(keepalive, self._tick) if keepalive > 0 else None

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        if not self._is_open:
            for event in events:
                if isinstance(event, AnswerFailed):
                    raise event.error
                if not isinstance(event, AnswerStarted):
                    break
        frames = self._encoder.encode(events)
        if not frames:
            return None
        if not self._is_open:
            self._start()
        self._last_write = self._loop.time()
        return self._response.write(frames)

    def _start(self) -> None:
        self._is_open = True
        self._response.begin(200, EVENT_STREAM)

    def _tick(self) -> None:
        wait = self._last_write + self._keepalive - self._loop.time()
        if wait <= 0:
            wait = self._keepalive
            if not self._response.write_paused:
                if not self._is_open:
                    self._start()
                self._response.write(self._encoder.keep_alive())
        self._timer = self._loop.call_later(wait, self._tick)

    def close(self) -> None:
        self.stop()
        if self._is_open:
            self._response.end()

    def fail(self, error: ToolrelayError) -> bool:
        self.stop()
        if not self._is_open:
            return False
        self._response.write(self._encoder.encode([AnswerFailed(error)]))
        self._response.end()
        return True

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class BufferedSink:
    """Collects the events and writes the body at the end."""

    def __init__(self, wire: Wire, envelope: Envelope, response: ResponseWriter) -> None:
        self._assembly = Assembly()
        self._is_sent = False
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
        self._is_sent = True
        self._response.respond(200, JSON, body)

    def fail(self, error: ToolrelayError) -> bool:  # noqa: ARG002 -- a body that was sent has no place for it
        return self._is_sent

    def stop(self) -> None:
        pass
