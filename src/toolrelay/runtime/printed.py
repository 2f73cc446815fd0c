"""A replacement for standard output that writes what is printed to the log.

Standard output carries only the line that the gateway is ready. Who started the gateway may read nothing after that: then a
tool that prints would block once the pipe is full.
"""

from __future__ import annotations

import io
import threading

from toolrelay import log

MAX_LINE = 10_000  # characters; a longer line is logged in pieces


class PrintedLines(io.TextIOBase):
    """Logs each line as the event `printed`: its size, and its text only with `log_content`."""

    def __init__(self, *, log_content: bool = False) -> None:
        super().__init__()
        self._log_content = log_content
        self._lines = threading.local()  # threads do not mix their lines

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *lines, rest = (getattr(self._lines, "rest", "") + text).split("\n")
        for line in lines:
            self._log(line)
        if len(rest) > MAX_LINE:
            self._log(rest)
            rest = ""
        self._lines.rest = rest
        return len(text)

    def _log(self, line: str) -> None:
        content = {"text": line[:MAX_LINE]} if self._log_content else {}
        log.info("printed", bytes=len(line.encode(errors="replace")), **content)
