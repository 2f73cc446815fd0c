"""How a reading can fail."""

from __future__ import annotations


class ReadingError(Exception):
    pass


class NotACallError(ReadingError):
    """What was read so far is text after all; the scanner gives it out as such."""


class BrokenError(ReadingError):
    """A call had begun, and then its text made no sense. `rule` says what was broken, for the log."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class CutError(ReadingError):
    """The stream ended in the middle."""
