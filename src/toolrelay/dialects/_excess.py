"""When a model that prints calls has printed enough."""

from __future__ import annotations

CALLS_LIMIT = 128  # in one answer, the bad ones among them
BLANKS_LIMIT = 1024  # characters after a call


class Excess:
    """Counts what comes with the calls of one answer, and after them."""

    def __init__(self) -> None:
        self._calls = 0
        self._blanks = 0

    def in_calls(self) -> bool:
        """One more has come. Is it one too many?"""
        self._calls += 1
        self._blanks = 0
        return self._calls > CALLS_LIMIT

    def in_rest(self, text: str) -> str:
        """The rule by which this text after the calls is to be cut; "" as long as it may only be room for the next one."""
        self._blanks += len(text) - len(text.lstrip())
        if self._blanks > BLANKS_LIMIT:
            return "blanks_after_calls"
        return "" if text.isspace() else "text_after_calls"
