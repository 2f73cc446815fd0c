"""Log lines to standard error: one JSON object a line, or text for people. Names, sizes and times; no keys, no content.

An own module of this size, because the usual library costs a third of the start-up time and as much of a request as parsing it
does (docs/decisions/0004).
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import msgspec

Line: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder(enc_hook=str).encode
_COLOURS = {"debug": "2", "info": "36", "warning": "33", "error": "31"}


class _Lines:
    """Where lines go, and from which level on."""

    def __init__(self) -> None:
        self.least = logging.INFO
        self.write: Callable[[Line], None] = _write_text
        self.second = 0
        self.stamp = ""


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
        _lines.second, _lines.stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
    return f"{_lines.stamp}.{int((now - second) * 1e6):06d}Z"


def configure(form: Literal["json", "text"], level: str) -> None:
    number = logging.getLevelNamesMapping()[level.upper()]
    _lines.least = number
    _lines.write = _write_json if form == "json" else _write_text
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_Bridge()], force=True)


def _write_json(line: Line) -> None:
    try:
        text = _encode(line)
    except UnicodeEncodeError:  # a lone surrogate, from whoever sent one
        text = _encode({key: str(value).encode(errors="replace").decode() for key, value in line.items()})
    _put(text)


def _put(text: bytes) -> None:
    try:
        out = sys.stderr.buffer
        out.write(text + b"\n")
        out.flush()
    except OSError:  # nobody reads it any more, which is no reason to fail a turn
        pass


def _write_text(line: Line) -> None:
    """`12:30:01 info  turn  model=demo status=200`, in colours on a terminal."""
    rest = {key: value for key, value in line.items() if key not in ("timestamp", "level", "event", "exception")}
    said = " ".join(f"{key}={_shown(value)}" for key, value in rest.items() if value is not None)
    level = line["level"]
    mark = f"\x1b[{_COLOURS[level]}m{level:<7}\x1b[0m" if sys.stderr.isatty() else f"{level:<7}"
    text = f"{line['timestamp'][11:19]} {mark} {_shown(line['event'])}  {said}".rstrip()
    if "exception" in line:
        text = f"{text}\n{line['exception']}"
    _put(text.encode(errors="replace"))


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
