"""The limit on the indexes that an upstream may use in one answer.

An upstream numbers the choices, calls, items and parts of its answer as it likes. An index is therefore only ever a key: it sets
no length and no loop count. Decoders count each new choice, call, item and part here.
"""

from __future__ import annotations

from toolrelay.errors import BackendError

MAX_INDEXES = 1024  # of one kind in one answer; the longest real answers have a few hundred items


class IndexLimit:
    """Counts the elements of one kind in an answer, such as "tool calls"."""

    __slots__ = ("_count", "_kind")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._count = 0

    def add(self, index: int | None) -> None:
        """Count one element, with its index if it has one. Raise BackendError for a negative index or too many elements."""
        if index is not None and index < 0:
            raise BackendError(f"The model's server sent a negative index for its {self._kind}.", code="upstream_invalid")
        self._count += 1
        if self._count > MAX_INDEXES:
            message = f"The model's server sent more than {MAX_INDEXES} {self._kind} in one answer."
            raise BackendError(message, code="upstream_invalid")
