"""Stop sequences, which Codex knows nothing of: text up to the first of them, however it is cut."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """`hit`: one was found, and no more text comes. What may be the beginning of one is held back."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.hit = False
        self._sequences = sequences
        self._longest = max(map(len, sequences))
        self._held = ""

    def feed(self, text: str) -> str:
        """What of the text so far may be said now."""
        if self.hit:
            return ""
        text = self._held + text
        places = [place for place in map(text.find, self._sequences) if place >= 0]
        if places:
            self.hit = True
            self._held = ""
            return text[: min(places)]
        kept = next((size for size in range(min(self._longest - 1, len(text)), 0, -1) if self._begins(text[-size:])), 0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def _begins(self, end: str) -> bool:
        return any(sequence.startswith(end) for sequence in self._sequences)

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held
