"""A terminal with a screen: `toolrelay` runs in a real pty, and an emulator shows what a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import Self

import pyte

TIMEOUT_SECONDS = 60  # only a test that hangs reaches it
# The program's terminal becomes its controlling terminal, so that Ctrl-C is a signal and /dev/tty exists.
_CONTROLLED = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"


class _Emulator(pyte.HistoryScreen):
    """Answers the program's questions about the cursor."""

    terminal = -1

    def write_process_input(self, data: str) -> None:
        os.write(self.terminal, data.encode())


class Screen:
    """A program in a terminal of this size."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 100,
        lines: int = 40,
        environ: dict[str, str] | None = None,
        shell: str = "",
    ) -> None:
        """`shell` is a command that runs instead, in which $TOOLRELAY is the program."""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        variables = {"TERM": "xterm-256color", "TOOLRELAY": f"{sys.executable} -m toolrelay", **(environ or {})}
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        program = [sys.executable, "-m", "toolrelay", *arguments]
        if shell:
            program = [sys.executable, "-c", f"import os; os.execl('/bin/sh', 'sh', '-c', {shell!r})"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CONTROLLED, *program],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**inherited, **variables},
        )
        os.close(theirs)
        self.raw = ""
        self._emulator = _Emulator(columns, lines, history=100_000, ratio=0.5)
        self._emulator.terminal = self._ours
        self._stream = pyte.ByteStream(self._emulator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None and self._ours >= 0:
            self.process.send_signal(signal.SIGTERM)  # so that it stops its gateway
            self._read_to_end()
            try:
                self.process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            os.close(self._ours)

    @property
    def text(self) -> str:
        """All that was printed and not erased: what has scrolled away, and what is on the screen."""
        emulator = self._emulator
        past = ["".join(line[column].data for column in range(emulator.columns)) for line in emulator.history.top]
        return "\n".join(line.rstrip() for line in [*past, *emulator.display]).rstrip()

    @property
    def display(self) -> list[str]:
        """What is on the screen now."""
        return [line.rstrip() for line in self._emulator.display]

    def expect(self, text: str, times: int = 1) -> None:
        """Wait until a text was printed so many times."""
        self._await(lambda: self.text.count(text) >= times, text)

    def expect_prompt(self) -> None:
        """Wait until the prompt is there, and empty."""
        self._await(lambda: [line for line in self.display if line][-1:] == [">"], "the prompt")

    def expect_raw(self, text: str) -> None:
        self._await(lambda: text in self.raw, text, emulates=False)

    def send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def enter(self, line: str) -> None:
        self.send(f"{line}\r")

    def hang_up(self) -> None:
        """Close the terminal, as a person closes its window."""
        os.close(self._ours)
        self._ours = -1

    def end(self) -> int:
        """Wait for the end of the program, and return its exit code."""
        self._read_to_end()
        return self.process.wait(TIMEOUT_SECONDS)

    def _await(self, is_there: object, wanted: str, *, emulates: bool = True) -> None:
        assert callable(is_there)
        until = time.monotonic() + TIMEOUT_SECONDS
        while not is_there():
            left = until - time.monotonic()
            assert left > 0, f"no {wanted!r} in:\n{self.text}\n{self.raw[-2000:]!r}"
            has_ended = self.process.poll() is not None
            has_read = self._read(left, emulates=emulates)
            while has_read and self._read(0, emulates=emulates):
                pass
            if not has_read and has_ended:
                assert is_there(), f"ended without {wanted!r}:\n{self.text}"
                return

    def _read_to_end(self) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until and (self._read(0.1) or self.process.poll() is None):
            pass

    def _read(self, seconds: float, *, emulates: bool = True) -> bool:
        if not select.select([self._ours], [], [], min(seconds, 0.5))[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # EIO: the other end of the terminal is closed
            return False
        self.raw += data.decode(errors="replace")
        if emulates:
            self._stream.feed(data)
        return bool(data)


# What rich and prompt_toolkit print: colours, cursor movements, erasing, modes, the title, and questions about the cursor.
_SEQUENCES = re.compile(r"\x1b\[[?>]?[0-9;]*[A-HJKXPmhlnsutrq]|\x1b[78=>()][B0]?|\x1b\]0;\x07")


def controls(raw: str) -> list[str]:
    """Return the control characters in an output that belong to no sequence that the program itself prints."""
    return [each for each in _SEQUENCES.sub("", raw) if not (each.isprintable() or each in "\r\n\b\x07")]
