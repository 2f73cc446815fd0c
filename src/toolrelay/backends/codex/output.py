"""The output of one Codex turn: messages and reasoning items as stream events, and token usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from toolrelay.backends.codex.rpc import number_of, object_of, text_of
from toolrelay.core.events import (
    AnnotationAdded,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    StreamEvent,
    TextDelta,
    Usage,
    estimate_usage,
    limit_tokens,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import Json, JsonObject


class OutputItems:
    """Append to `events`. `has_text`: there was text, so the turn can no longer be retried.

    With `restore`, which changes the text of a whole message, each message is held until it ends.
    """

    def __init__(self, restore: Callable[[str], str] | None = None) -> None:
        self._restore = restore
        self._held: list[str] = []
        self.events: list[StreamEvent] = []
        self.has_text = False
        self._message_id: str | None = None
        self._phases: dict[str, str] = {}
        self._reasoning_id: str | None = None
        self._parts: dict[Literal["summary", "text"], dict[int, int]] = {}
        self._part_limit = IndexLimit("reasoning parts")

    def start_message(self, item: JsonObject) -> None:
        phase = text_of(item, "phase")
        if phase:
            self._phases[text_of(item, "id")] = phase

    def add_text(self, item_id: str, text: str) -> None:
        if item_id != self._message_id:
            self.release_text()
            phase = self._phases.get(item_id)
            if phase is not None or self._message_id is not None:  # the first message starts implicitly, unless it has a phase
                self.events.append(MessageStarted(phase=phase, is_separate=self.has_text))
            self._message_id = item_id
        self.has_text = True
        if self._restore is None:
            self.events.append(TextDelta(text))
        else:
            self._held.append(text)

    def release_text(self) -> None:
        """Emit the message that was held."""
        if self._held and self._restore is not None:
            self.events.append(TextDelta(self._restore("".join(self._held))))
            self._held.clear()

    def add_annotations(self, item: JsonObject) -> None:
        """Emit the citations, which arrive only with the complete message."""
        content = item.get("content")
        if self._message_id != text_of(item, "id") or not isinstance(content, list):
            return
        for part in content:
            found = object_of(part).get("annotations")
            self.events += [AnnotationAdded(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def start_reasoning(self, item_id: str) -> None:
        if self._reasoning_id != item_id:
            self._reasoning_id = item_id
            self._parts = {"summary": {}, "text": {}}
            self.events.append(ReasoningStarted(id=item_id or None))

    def add_reasoning(self, item_id: str, text: str, params: JsonObject) -> None:
        """Emit a delta of the part that `params` names. Raise BackendError for too many parts."""
        self.start_reasoning(item_id)
        kind: Literal["summary", "text"] = "summary" if "summaryIndex" in params else "text"
        index = number_of(params, "summaryIndex" if kind == "summary" else "contentIndex")
        parts = self._parts[kind]
        if index not in parts:
            self._part_limit.add(index)
            parts[index] = len(parts)
        self.events.append(ReasoningDelta(text, kind, parts[index]))

    def finish_reasoning(self, item: JsonObject) -> None:
        """Pass on the encrypted content even if not requested: only it carries the reasoning to the next request."""
        self.start_reasoning(text_of(item, "id"))
        self.events.append(ReasoningFinished(encrypted=text_of(item, "encrypted_content") or None))
        self._reasoning_id = None


class TurnUsage:
    """Reported usage of the completed responses, plus a marked estimate for one without a report.

    `request_chars` is the size of each request to the model, `output_chars` that of the unfinished response.
    """

    def __init__(self, request_chars: int) -> None:
        self.output_chars = 0
        self._request_chars = request_chars
        self._responses: Usage | None = None
        self._thread: Usage | None = None

    def add_response(self, usage: Json) -> None:
        if isinstance(usage, dict):
            decoded = _decode_usage(usage)
            self._responses = decoded if self._responses is None else self._responses + decoded
            self.output_chars = 0

    def set_thread_total(self, usage: Json) -> None:
        """Each thread has only one turn, so the thread's total is the turn's."""
        total = object_of(usage).get("total")
        if isinstance(total, dict):
            self._thread = _decode_usage(total)

    def total(self) -> Usage:
        if self._responses is None and self._thread is not None:
            return self._thread
        if self._responses is not None and not self.output_chars:
            return self._responses
        estimate = estimate_usage(self._request_chars, self.output_chars)
        return estimate if self._responses is None else self._responses + estimate


def _decode_usage(usage: JsonObject) -> Usage:
    return Usage(
        input=_count(usage, "inputTokens"),
        output=_count(usage, "outputTokens"),
        total=_count(usage, "totalTokens"),
        cached=_count(usage, "cachedInputTokens"),
        cache_written=_count(usage, "cacheWriteInputTokens") or None,
        reasoning=_count(usage, "reasoningOutputTokens"),
    )


def _count(usage: JsonObject, name: str) -> int:
    return limit_tokens(number_of(usage, name))
