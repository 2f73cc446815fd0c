"""Ctrl-C as an event, the end of the terminal as an exit, and a terminal that does not echo."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, once, Ctrl-C makes `wake` readable instead of raising KeyboardInterrupt."""

    def __init__(self) -> None:
        self.wake, self._waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._waker, False)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        os.close(self.wake)
        os.close(self._waker)

    def take(self) -> bool:
        """Return whether Ctrl-C was pressed since the last time."""
        try:
            return bool(os.read(self.wake, 1024))
        except BlockingIOError:
            return False

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(self._waker, b".")


def exit_on_signals() -> None:
    """Let SIGTERM and the hangup of the terminal end the program in order, so that it stops its gateway."""

    def leave(number: int, _frame: FrameType | None) -> None:
        for each in _ENDINGS:
            signal.signal(each, signal.SIG_IGN)  # once is enough
        sys.exit(128 + number)

    for number in _ENDINGS:
        signal.signal(number, leave)


class EchoSwitch:
    """Turns the echo of a terminal off while an answer is printed, so that typing does not disturb it."""

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal if terminal is not None and os.isatty(terminal) else None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        self.set_echo(is_on=False)
        try:
            yield
        finally:
            self.set_echo(is_on=True)

    def set_echo(self, *, is_on: bool) -> None:
        if self._terminal is None:
            return
        with suppress(termios.error):  # the terminal is gone
            attributes = termios.tcgetattr(self._terminal)
            attributes[3] = attributes[3] | termios.ECHO if is_on else attributes[3] & ~termios.ECHO
            termios.tcsetattr(self._terminal, termios.TCSANOW, attributes)
