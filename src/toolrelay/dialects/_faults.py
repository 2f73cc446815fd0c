"""How a reading can fail.

NotACallError   what was read so far is text after all; the scanner gives it out as such
BrokenError     a call had begun, and then its text made no sense; what was given out cannot be taken back
CutError        the stream ended in the middle
"""

from __future__ import annotations


class ReadingError(Exception):
    pass


class NotACallError(ReadingError):
    pass


class BrokenError(ReadingError):
    """`rule` says what was broken, for the log."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class CutError(ReadingError):
    pass
