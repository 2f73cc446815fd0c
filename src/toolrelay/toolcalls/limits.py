"""Limits on what a model prints with its calls and after them."""

from __future__ import annotations

MAX_CALLS = 128  # in one answer, bad ones included
MAX_BLANKS = 1024  # characters after a call


class OutputLimiter:
    """Count the calls of one answer and the text after them."""

    def __init__(self) -> None:
        self._calls = 0
        self._blanks = 0

    def count_call(self) -> bool:
        """Return whether this call is one too many."""
        self._calls += 1
        self._blanks = 0
        return self._calls > MAX_CALLS

    def check_text(self, text: str) -> str:
        """Return the rule by which text after the calls is cut, or "" while it may only separate two calls."""
        self._blanks += len(text) - len(text.lstrip())
        if self._blanks > MAX_BLANKS:
            return "blanks_after_calls"
        return "" if text.isspace() else "text_after_calls"
