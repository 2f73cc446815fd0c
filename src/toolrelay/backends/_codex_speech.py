"""What a model says and thinks within one turn of Codex, divided into messages and thoughts, up to its stop sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from toolrelay.backends._codex_words import object_of, text_of
from toolrelay.core.events import (
    AnnotationAdded,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.json import JsonObject


class Speech:
    """Writes to `out`. `said`: text has left, which cannot be taken back. `stopped`: a stop sequence was reached."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.out: list[StreamEvent] = []
        self.said = False
        self.stopped = False
        self._stops = Stops(stops) if stops else None
        self._message: str | None = None
        self._phases: dict[str, str] = {}
        self._thought: str | None = None

    def announce(self, item: JsonObject) -> None:
        """A message will come."""
        phase = text_of(item, "phase")
        if phase:
            self._phases[text_of(item, "id")] = phase

    def say(self, item_id: str, text: str) -> None:
        if item_id != self._message:
            self._begin_message(item_id)
        if self._stops is not None:
            text = self._stops.feed(text)
            self.stopped = self._stops.hit
        if text:
            self.said = True
            self.out.append(TextDelta(text))

    def _begin_message(self, item_id: str) -> None:
        """The first message needs no beginning, unless it has more to say of itself than its text."""
        self.release()
        phase = self._phases.get(item_id)
        if phase is not None or self._message is not None:
            self.out.append(MessageStarted(phase=phase))
        self._message = item_id

    def release(self) -> None:
        """Text that was held back because it might have become a stop sequence."""
        held = self._stops.flush() if self._stops is not None else ""
        if held:
            self.said = True
            self.out.append(TextDelta(held))

    def annotate(self, item: JsonObject) -> None:
        """Citations, which come only with the whole message."""
        content = item.get("content")
        if self._message != text_of(item, "id") or not isinstance(content, list):
            return
        for part in content:
            found = object_of(part).get("annotations")
            self.out += [AnnotationAdded(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def think(self, item_id: str, text: str, place: JsonObject) -> None:
        """`place` says of which part of the thought, or of its summary."""
        self.begin_thought(item_id)
        kind: Literal["summary", "text"] = "summary" if "summaryIndex" in place else "text"
        part = place.get("summaryIndex" if kind == "summary" else "contentIndex")
        self.out.append(ReasoningDelta(text, kind, part if isinstance(part, int) else 0))

    def begin_thought(self, item_id: str) -> None:
        if self._thought != item_id:
            self.release()
            self._thought = item_id
            self.out.append(ReasoningStarted(id=item_id or None))

    def end_thought(self, item: JsonObject) -> None:
        """The sealed content is passed on unasked: nothing else carries the model's thoughts to the next request."""
        self.begin_thought(text_of(item, "id"))
        self.out.append(ReasoningFinished(encrypted=text_of(item, "encrypted_content") or None))
        self._thought = None


class Stops:
    """Stop sequences, which Codex knows nothing of: text up to the first of them, however it is cut.

    `hit`: one was found, and no more text comes. What may be the beginning of one is held back.
    """

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
