"""Text and reasoning of one Codex turn, divided into messages and reasoning items."""

from __future__ import annotations

from typing import Literal

from toolrelay.backends.codex.json_access import object_of, text_of
from toolrelay.core.events import (
    AnnotationAdded,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import JsonObject


class Speech:
    """Write to `out`. `said`: text was emitted, which cannot be taken back."""

    def __init__(self) -> None:
        self.out: list[StreamEvent] = []
        self.said = False
        self._message: str | None = None
        self._phases: dict[str, str] = {}
        self._thought: str | None = None
        self._parts: dict[Literal["summary", "text"], dict[int, int]] = {}
        self._part_limit = IndexLimit("reasoning parts")

    def announce(self, item: JsonObject) -> None:
        """A message will come."""
        phase = text_of(item, "phase")
        if phase:
            self._phases[text_of(item, "id")] = phase

    def say(self, item_id: str, text: str) -> None:
        if item_id != self._message:
            self._begin_message(item_id)
        self.said = True
        self.out.append(TextDelta(text))

    def _begin_message(self, item_id: str) -> None:
        """The first message needs no beginning, unless it has more to say of itself than its text."""
        phase = self._phases.get(item_id)
        if phase is not None or self._message is not None:
            self.out.append(MessageStarted(phase=phase))
        self._message = item_id

    def annotate(self, item: JsonObject) -> None:
        """Citations, which come only with the whole message."""
        content = item.get("content")
        if self._message != text_of(item, "id") or not isinstance(content, list):
            return
        for part in content:
            found = object_of(part).get("annotations")
            self.out += [AnnotationAdded(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def think(self, item_id: str, text: str, place: JsonObject) -> None:
        """`place` says of which part of the thought, or of its summary. Raises BackendError for too many parts."""
        self.begin_thought(item_id)
        kind: Literal["summary", "text"] = "summary" if "summaryIndex" in place else "text"
        index = place.get("summaryIndex" if kind == "summary" else "contentIndex")
        index = index if isinstance(index, int) else 0
        parts = self._parts[kind]
        if index not in parts:
            self._part_limit.add(index)
            parts[index] = len(parts)
        self.out.append(ReasoningDelta(text, kind, parts[index]))

    def begin_thought(self, item_id: str) -> None:
        if self._thought != item_id:
            self._thought = item_id
            self._parts = {"summary": {}, "text": {}}
            self.out.append(ReasoningStarted(id=item_id or None))

    def end_thought(self, item: JsonObject) -> None:
        """The sealed content is passed on unasked: nothing else carries the model's thoughts to the next request."""
        self.begin_thought(text_of(item, "id"))
        self.out.append(ReasoningFinished(encrypted=text_of(item, "encrypted_content") or None))
        self._thought = None
