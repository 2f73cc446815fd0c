"""Structured log to standard error: one JSON object per line, or text for a terminal. It never holds keys.

structlog would cost a third of the start-up time and as much per request as parsing it (docs/decisions/0004). After
`configure`, a thread writes the lines, so that no caller waits for the reader of standard error.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias

import msgspec

Line: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder(enc_hook=str).encode
_COLOURS = {"debug": "2", "info": "36", "warning": "33", "error": "31"}

BUFFER_BYTES = 1024 * 1024  # some 4,000 lines
FLUSH_SECONDS = 1.0
_BATCH_SECONDS = 0.01  # waking the thread costs as much CPU as several lines
_ATOMIC_BYTES = getattr(select, "PIPE_BUF", 4096)  # a pipe takes a write of at most this size whole


class _LogState:
    """Level, format and destination of the log."""

    def __init__(self) -> None:
        self.level = logging.INFO
        self.write: Callable[[Line], None] = self.write_encoded
        self.encode: Callable[[Line], bytes] = _encode_text
        self.put: Callable[[bytes], object] = lambda line: _write_lines([line])
        self.second = 0
        self.stamp = ""

    def write_encoded(self, line: Line) -> None:
        self.put(self.encode(line))


class _LogWriter:
    """A thread that writes lines from a bounded buffer. Lines that do not fit are dropped and counted."""

    def __init__(self, buffer_bytes: int) -> None:
        self._limit = buffer_bytes
        self._lock = threading.RLock()  # re-entrant, because a finalizer that logs may run while it is held
        self._lines: list[bytes] = []
        self._bytes = 0
        self._dropped = 0
        self._wake_ups: SimpleQueue[threading.Event | None] = SimpleQueue()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: bytes) -> None:
        with self._lock:
            if self._lines and self._bytes + len(line) > self._limit:
                self._dropped += 1
                return
            is_first = not self._lines
            self._lines.append(line)
            self._bytes += len(line)
        if is_first:
            self._wake_ups.put(None)

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Wait until the lines so far are written, or until `seconds` have passed."""
        written = threading.Event()
        self._wake_ups.put(written)
        written.wait(seconds)

    def _run(self) -> None:
        while True:
            flushed = self._wake_ups.get()
            lines, dropped = self._take()
            notes = [_encode_dropped(dropped)] if dropped else []
            unwritten = _write_lines(lines + notes)
            if unwritten:
                with self._lock:
                    self._dropped += dropped + unwritten - len(notes)
            if flushed:
                flushed.set()
            else:
                time.sleep(_BATCH_SECONDS)

    def _take(self) -> tuple[list[bytes], int]:
        with self._lock:
            lines, self._lines = self._lines, []
            dropped, self._dropped = self._dropped, 0
            self._bytes = 0
        return lines, dropped


def _encode_dropped(count: int) -> bytes:
    return _state.encode({"timestamp": _timestamp(), "level": "warning", "event": "log_dropped", "count": count})


def _write_lines(lines: Sequence[bytes]) -> int:
    """Write whole lines to standard error. Return how many could not be written."""
    done = 0
    try:
        out = sys.stderr.fileno()
        while done < len(lines):
            end, size = done + 1, len(lines[done])
            while end < len(lines) and size + len(lines[end]) <= _ATOMIC_BYTES:
                size += len(lines[end])
                end += 1
            _write(out, b"".join(lines[done:end]))
            done = end
    except (OSError, ValueError):  # a closed standard error must not fail a turn
        return len(lines) - done
    return 0


def _write(out: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(out, data) :]
        except BlockingIOError:  # another process that shares this file made it non-blocking
            select.select([], [out], [])


def debug(event: str, **fields: object) -> None:
    _log(logging.DEBUG, "debug", event, fields)


def info(event: str, **fields: object) -> None:
    _log(logging.INFO, "info", event, fields)


def warning(event: str, **fields: object) -> None:
    _log(logging.WARNING, "warning", event, fields)


def error(event: str, **fields: object) -> None:
    _log(logging.ERROR, "error", event, fields)


def exception(event: str, **fields: object) -> None:
    """Log an error with the traceback of the current exception."""
    _log(logging.ERROR, "error", event, {**fields, "exception": traceback.format_exc()})


def _log(number: int, level: str, event: str, fields: Line) -> None:
    if number >= _state.level:
        _state.write({"timestamp": _timestamp(), "level": level, "event": event, **fields})


def _timestamp() -> str:
    now = time.time()
    second = int(now)
    if second != _state.second:  # formatted once per second
        _state.stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))  # before `second`, which other threads compare
        _state.second = second
    return f"{_state.stamp}.{int((now - second) * 1e6):06d}Z"


def configure(form: Literal["json", "text"], level: str, *, buffer_bytes: int = BUFFER_BYTES) -> None:
    """Set format and level, and start the thread that writes. Until then the caller writes its lines itself."""
    number = logging.getLevelNamesMapping()[level.upper()]
    _state.level = number
    _state.encode = _encode_json if form == "json" else _encode_text
    writer = _LogWriter(buffer_bytes)
    _state.put = writer.put
    atexit.register(writer.flush)
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_LoggingHandler()], force=True)


def _encode_json(line: Line) -> bytes:
    try:
        text = _encode(line)
    except UnicodeEncodeError:  # a lone surrogate in a value
        text = _encode({key: str(value).encode(errors="replace").decode() for key, value in line.items()})
    return text + b"\n"


def _encode_text(line: Line) -> bytes:
    """Encode as `12:30:01 info  turn  model=demo status=200`, in colours on a terminal."""
    rest = {key: value for key, value in line.items() if key not in ("timestamp", "level", "event", "exception")}
    pairs = " ".join(f"{key}={_quote(value)}" for key, value in rest.items() if value is not None)
    level = line["level"]
    mark = f"\x1b[{_COLOURS[level]}m{level:<7}\x1b[0m" if sys.stderr.isatty() else f"{level:<7}"
    text = f"{line['timestamp'][11:19]} {mark} {_quote(line['event'])}  {pairs}".rstrip()
    if "exception" in line:
        text = f"{text}\n{line['exception']}"
    return f"{text}\n".encode(errors="replace")


def _quote(value: object) -> str:
    """Quote a value that could be read as a line or a field of its own."""
    text = str(value)
    return text if text.isprintable() and not any(mark in text for mark in " \"'=") else repr(text)


class _LoggingHandler(logging.Handler):
    """Forwards the lines of libraries that use the standard logging module."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: Line = {"logger": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = "".join(traceback.format_exception(*record.exc_info))
        _log(record.levelno, "error" if record.levelno >= logging.ERROR else "warning", record.getMessage(), fields)


@contextmanager
def captured() -> Iterator[list[Line]]:
    """Collect the lines of every level as dictionaries without timestamp, instead of writing them."""
    lines: list[Line] = []
    write, level = _state.write, _state.level
    _state.level = logging.DEBUG
    _state.write = lambda line: lines.append({key: value for key, value in line.items() if key != "timestamp"})
    try:
        yield lines
    finally:
        _state.write, _state.level = write, level


_state = _LogState()
