"""Base of the decoders of streams: server-sent events, or lines of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from toolrelay.core.events import AnswerFailed, StreamEvent
from toolrelay.errors import BackendError
from toolrelay.wires.sse import FrameTooLargeError, SseSplitter


class Splitter(Protocol):
    """Splits a stream into frames. `feed` and `flush` raise FrameTooLargeError."""

    def feed(self, data: bytes) -> list[bytes]: ...

    def flush(self) -> list[bytes]: ...


class FrameDecoder:
    """See wires.base.Decoder. A subclass adds the events of one frame at a time, or raises BackendError.

    After `_is_over` is set, nothing more is read.
    """

    splitter: Callable[[], Splitter] = SseSplitter

    def __init__(self) -> None:
        self._splitter = self.splitter()
        self._is_over = False

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        """Add the events of one frame."""

    def _read_whole(self, body: bytes, out: list[StreamEvent]) -> None:
        """Add the events of an answer that came as one object."""

    def _close(self, out: list[StreamEvent]) -> None:
        """Handle the end of the connection."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        try:
            for frame in self._splitter.feed(data):
                if self._is_over:
                    break
                self._read(frame, out)
        except FrameTooLargeError:
            self._fail(provider_error("sent a frame that is too large to be relayed"), out)
        except BackendError as error:
            self._fail(error, out)
        return out

    def flush(self) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if self._is_over:
            return out
        try:
            for frame in self._splitter.flush():
                self._read_last(frame, out)
            if not self._is_over:
                self._close(out)
        except BackendError as error:
            self._fail(error, out)
        return out

    def decode_whole(self, body: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        try:
            self._read_whole(body, out)
        except BackendError as error:
            self._fail(error, out)
        return out

    def _read_last(self, frame: bytes, out: list[StreamEvent]) -> None:
        """Read a frame that the stream ended with, without the frame's own end."""
        self._read(frame, out)

    def _fail(self, error: BackendError, out: list[StreamEvent]) -> None:
        if not self._is_over:
            self._is_over = True
            out.append(AnswerFailed(error))


def provider_error(problem: str, code: str = "upstream_invalid") -> BackendError:
    return BackendError(f"The provider {problem}.", code=code)
