"""Stop sequences, for servers that do not know them."""

from __future__ import annotations

from collections.abc import Sequence


class StopSequences:
    """Pass text on up to the first stop sequence, however the text is chunked.

    `hit`: a sequence was found; no more text comes out. The possible beginning of a sequence is held back.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.hit = False
        self._sequences = sequences
        self._longest = max(map(len, sequences))
        self._held = ""

    def feed(self, text: str) -> str:
        if self.hit:
            return ""
        text = self._held + text
        found = [at for at in map(text.find, self._sequences) if at >= 0]
        if found:
            self.hit = True
            self._held = ""
            return text[: min(found)]
        sizes = range(min(self._longest - 1, len(text)), 0, -1)
        kept = next((size for size in sizes if self._is_prefix(text[-size:])), 0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def _is_prefix(self, text: str) -> bool:
        return any(sequence.startswith(text) for sequence in self._sequences)

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def stop_sequences(stop: str | Sequence[str] | None) -> StopSequences | None:
    sequences = [stop] if isinstance(stop, str) else stop or ()
    usable = [sequence for sequence in sequences if sequence]
    return StopSequences(usable) if usable else None
