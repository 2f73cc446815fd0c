"""What a turn of Codex has cost: told for each response that came to its end, guessed and marked for one that did not."""

from __future__ import annotations

from toolrelay.backends.codex.json_access import number_of, object_of
from toolrelay.core.events import Usage, estimated_usage
from toolrelay.core.json import Json, JsonObject


class Cost:
    """`size` counts the characters that each response was asked with. `written` are those of a response that is under way."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: Usage | None = None
        self._total: Usage | None = None
        self.written = 0

    def add(self, said: Json) -> None:
        """The cost of a response that has ended."""
        if isinstance(said, dict):
            usage = _decoded(said)
            self._known = usage if self._known is None else self._known + usage
            self.written = 0

    def note(self, said: Json) -> None:
        """The cost of the whole thread, which is the turn's: it has no other."""
        total = object_of(said).get("total")
        if isinstance(total, dict):
            self._total = _decoded(total)

    def usage(self) -> Usage:
        if self._known is None and self._total is not None:
            return self._total
        if self._known is not None and not self.written:
            return self._known
        estimate = estimated_usage(self._size, self.written)
        return estimate if self._known is None else self._known + estimate


def _decoded(said: JsonObject) -> Usage:
    return Usage(
        input=number_of(said, "inputTokens"),
        output=number_of(said, "outputTokens"),
        total=number_of(said, "totalTokens"),
        cached=number_of(said, "cachedInputTokens"),
        cache_written=number_of(said, "cacheWriteInputTokens") or None,
        reasoning=number_of(said, "reasoningOutputTokens"),
    )
