"""Log lines to standard error: one JSON object a line, or text for people. Names, sizes and times; no keys, no content.

An own module of this size, because the usual library costs a third of the start-up time and as much of a request as parsing it
does (docs/decisions/0004). Once `configure` was called, a thread writes the lines, so that no caller waits for their reader.
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
_BATCH_SECONDS = 0.01  # one wake-up of the thread costs as much CPU as several lines do
_ATOMIC_BYTES = getattr(select, "PIPE_BUF", 4096)  # a pipe takes all of such a write, or none of it


class _Lines:
    """Where lines go, and from which level on."""

    def __init__(self) -> None:
        self.least = logging.INFO
        self.write: Callable[[Line], None] = self.write_encoded
        self.encode: Callable[[Line], bytes] = _encode_text
        self.put: Callable[[bytes], object] = lambda line: _write_lines([line])
        self.second = 0
        self.stamp = ""

    def write_encoded(self, line: Line) -> None:
        self.put(self.encode(line))


class _Writer:
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
        """Wait until the lines so far are written, but no longer than that: perhaps nobody reads them."""
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
    return _lines.encode({"timestamp": _timestamp(), "level": "warning", "event": "log_dropped", "count": count})


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
    except (OSError, ValueError):  # nobody reads it any more, which is no reason to fail a turn
        return len(lines) - done
    return 0


def _write(out: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(out, data) :]
        except BlockingIOError:  # whoever shares this file with us has made it so
            select.select([], [out], [])


def debug(event: str, **fields: object) -> None:
    _say(logging.DEBUG, "debug", event, fields)


def info(event: str, **fields: object) -> None:
    _say(logging.INFO, "info", event, fields)


def warning(event: str, **fields: object) -> None:
    _say(logging.WARNING, "warning", event, fields)


def error(event: str, **fields: object) -> None:
    _say(logging.ERROR, "error", event, fields)


def exception(event: str, **fields: object) -> None:
    """An error with the traceback of the exception that is being handled."""
    _say(logging.ERROR, "error", event, {**fields, "exception": traceback.format_exc()})


def _say(number: int, level: str, event: str, fields: Line) -> None:
    if number >= _lines.least:
        _lines.write({"timestamp": _timestamp(), "level": level, "event": event, **fields})


def _timestamp() -> str:
    now = time.time()
    second = int(now)
    if second != _lines.second:  # the same for thousands of lines
        _lines.stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))  # first, for the thread that compares the second
        _lines.second = second
    return f"{_lines.stamp}.{int((now - second) * 1e6):06d}Z"


def configure(form: Literal["json", "text"], level: str, *, buffer_bytes: int = BUFFER_BYTES) -> None:
    """Set form and level, and start the thread that writes. Before that, lines are written at once by whoever logs them."""
    number = logging.getLevelNamesMapping()[level.upper()]
    _lines.least = number
    _lines.encode = _encode_json if form == "json" else _encode_text
    writer = _Writer(buffer_bytes)
    _lines.put = writer.put
    atexit.register(writer.flush)
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Bridge()], force=True)


def _encode_json(line: Line) -> bytes:
    try:
        text = _encode(line)
    except UnicodeEncodeError:  # a lone surrogate, from whoever sent one
        text = _encode({key: str(value).encode(errors="replace").decode() for key, value in line.items()})
    return text + b"\n"


def _encode_text(line: Line) -> bytes:
    """`12:30:01 info  turn  model=demo status=200`, in colours on a terminal."""
    rest = {key: value for key, value in line.items() if key not in ("timestamp", "level", "event", "exception")}
    said = " ".join(f"{key}={_shown(value)}" for key, value in rest.items() if value is not None)
    level = line["level"]
    mark = f"\x1b[{_COLOURS[level]}m{level:<7}\x1b[0m" if sys.stderr.isatty() else f"{level:<7}"
    text = f"{line['timestamp'][11:19]} {mark} {_shown(line['event'])}  {said}".rstrip()
    if "exception" in line:
        text = f"{text}\n{line['exception']}"
    return f"{text}\n".encode(errors="replace")


def _shown(value: object) -> str:
    """As it is if it is plain, else quoted, so that nobody's text can look like a line or a field of its own."""
    text = str(value)
    return text if text.isprintable() and not any(mark in text for mark in " \"'=") else repr(text)


class _Bridge(logging.Handler):
    """What libraries write through the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: Line = {"logger": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = "".join(traceback.format_exception(*record.exc_info))
        _say(record.levelno, "error" if record.levelno >= logging.ERROR else "warning", record.getMessage(), fields)


@contextmanager
def captured() -> Iterator[list[Line]]:
    """The lines of this stretch of code, of every level, as values without their time instead of text."""
    lines: list[Line] = []
    write, least = _lines.write, _lines.least
    _lines.least = logging.DEBUG
    _lines.write = lambda line: lines.append({key: value for key, value in line.items() if key != "timestamp"})
    try:
        yield lines
    finally:
        _lines.write, _lines.least = write, least


_lines = _Lines()
