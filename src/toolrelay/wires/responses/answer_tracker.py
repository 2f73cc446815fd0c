"""Responses, what was received of a provider's answer, and the events for what each further frame adds.

The same text may come up to five times: as deltas, when a text, its part and its item are done, and in the final response; or in
any one of these alone. Each is compared with what was emitted, and only the difference is emitted.
"""

from __future__ import annotations

from typing import Any, Literal

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
    limit_tokens,
)
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.wires.json import arguments_text, is_object
from toolrelay.wires.responses.request import NAME
from toolrelay.wires.responses.resource import ReasoningKind
from toolrelay.wires.responses.slots import (
    CallSlot,
    MessageSlot,
    OpaqueSlot,
    PartBuffer,
    ReasoningSlot,
    Slot,
    Slots,
    slot_type,
    streamed_indexes,
)

_CALL_MEMBERS = frozenset({"type", "id", "status", "call_id", "name", "arguments", "input", "namespace"})
_REASONING_MEMBERS: tuple[tuple[ReasoningKind, str], ...] = (("summary", "summary"), ("text", "content"))


class AnswerTracker:
    """`out` takes the events; `current` is the item that was emitted last."""

    def __init__(self) -> None:
        self.out: list[StreamEvent] = []
        self.current: Slot | None = None
        self._slots = Slots()
        self._is_started = False
        self._has_text = False
        self._call_count = 0

    def start(self, response: JsonObject) -> None:
        if not self._is_started:
            self._is_started = True
            self.out.append(AnswerStarted(model=_text(response, "model"), service_tier=_text(response, "service_tier")))

    def _enter(self, slot: Slot) -> None:
        self.start({})
        self.current = slot

    # Messages

    def message(self, index: int | None, item_id: str | None) -> MessageSlot:
        return self._slots.find(MessageSlot, index, item_id) or self._slots.open(MessageSlot, index, item_id)

    def add_text(self, slot: MessageSlot, part: PartBuffer, text: str, logprobs: list[Any] | None = None) -> None:
        if not text and not logprobs:
            return
        self._enter_message(slot)
        self._has_text = self._has_text or not part.is_refusal
        if part.is_refusal:
            self.out.append(RefusalDelta(text))
        elif logprobs:
            part.logprobs += len(logprobs)
            self.out.append(TextDelta(text, 0, logprobs))
        else:
            self.out.append(TextDelta(text))

    def complete_text(self, slot: MessageSlot, part: PartBuffer, whole: object, logprobs: object = None) -> None:
        rest = part.complete(whole) if isinstance(whole, str) else part.flush()
        self.add_text(slot, part, rest, logprobs[part.logprobs :] if isinstance(logprobs, list) else None)

    def annotate(self, slot: MessageSlot, part: PartBuffer, annotation: object) -> None:
        if isinstance(annotation, dict):
            self._enter_message(slot)
            part.annotations += 1
            self.out.append(AnnotationAdded(annotation))

    def finish_part(self, slot: MessageSlot, index: int, part: Json) -> None:
        if not isinstance(part, dict):
            return
        match part.get("type"):
            case "refusal":
                self.complete_text(slot, slot.part(index, is_refusal=True), part.get("refusal"))
            case "output_text" | "text":
                buffer = slot.part(index, is_refusal=False)
                self.complete_text(slot, buffer, part.get("text"), part.get("logprobs"))
                for annotation in _list(part, "annotations")[buffer.annotations :]:
                    self.annotate(slot, buffer, annotation)

    def _enter_message(self, slot: MessageSlot) -> None:
        if self.current is not slot:
            self._enter(slot)
            self.out.append(MessageStarted(phase=slot.phase, is_separate=self._has_text))

    # Reasoning

    def reasoning(self, index: int | None, item_id: str | None) -> ReasoningSlot:
        return self._slots.find(ReasoningSlot, index, item_id) or self._slots.open(ReasoningSlot, index, item_id)

    def add_reasoning(self, slot: ReasoningSlot, kind: ReasoningKind, part: int, delta: str) -> None:
        self._emit_reasoning(slot, kind, part, slot.buffer(kind, part).add(delta))

    def complete_reasoning(self, slot: ReasoningSlot, kind: ReasoningKind, part: int, whole: object) -> None:
        if isinstance(whole, str):
            self._emit_reasoning(slot, kind, part, slot.buffer(kind, part).complete(whole))

    def _emit_reasoning(self, slot: ReasoningSlot, kind: ReasoningKind, part: int, text: str) -> None:
        if text:
            self._enter_reasoning(slot)
            self.out.append(ReasoningDelta(text, kind, slot.position(kind, part)))

    def _enter_reasoning(self, slot: ReasoningSlot) -> None:
        if self.current is not slot:
            self._enter(slot)
            self.out.append(ReasoningStarted(id=None if slot.is_started else slot.id))
            slot.is_started = True
            slot.positions.clear()

    # Calls

    def call(self, index: int | None, item_id: str | None, kind: CallKind) -> CallSlot:
        slot = self._slots.find(CallSlot, index, item_id)
        if slot is None:
            slot = self._slots.open(CallSlot, index, item_id)
            slot.kind = kind
        return slot

    def emit_arguments(self, slot: CallSlot, text: str) -> None:
        """Emit arguments, unless the call's name is not known yet: then they wait in its buffer."""
        if text and slot.number is not None and not slot.is_finished:
            self.out.append(ArgumentsDelta(slot.number, text))

    def complete_call(self, slot: CallSlot, whole: object, name: object = None) -> None:
        if isinstance(name, str) and name and not slot.name:
            slot.name = name
            self._start_call(slot)
        text = arguments_text(whole)
        self.emit_arguments(slot, slot.buffer.complete(text) if text else slot.buffer.flush())

    def _start_call(self, slot: CallSlot) -> int:
        if slot.number is None:
            self._enter(slot)
            slot.number = self._call_count
            self._call_count += 1
            started = CallStarted(slot.number, slot.name, kind=slot.kind, namespace=slot.namespace, extra=slot.extra)
            self.out.append(started)
            self.emit_arguments(slot, "".join(slot.buffer.pieces))
        return slot.number

    def _finish_call(self, slot: CallSlot) -> None:
        if slot.is_finished:
            return
        number = self._start_call(slot)
        if not slot.buffer.pieces and slot.first:
            self.complete_call(slot, slot.first)
        if not slot.buffer.pieces and slot.kind == "function":
            self.emit_arguments(slot, "{}")
        slot.is_finished = True
        self.out.append(CallFinished(number))

    # Items

    def add_item(self, index: int | None, item: JsonObject) -> None:
        kind, item_id = slot_type(item), _text(item, "id")
        slot = self._slots.find_added(kind, index, item_id) or self._slots.open(kind, index, item_id)
        self._update(slot, item)
        if isinstance(slot, ReasoningSlot):
            self._enter_reasoning(slot)

    def finish_item(self, index: int | None, item: JsonObject) -> None:
        kind, item_id = slot_type(item), _text(item, "id")
        slot = self._slots.find(kind, index, item_id)
        if slot is None or (slot.is_done and slot.id != item_id):
            slot = self._slots.open(kind, index, item_id)
        self._finish(slot, item, is_whole=item.get("status") != "incomplete")

    def _update(self, slot: Slot, item: JsonObject) -> None:
        match slot:
            case MessageSlot():
                slot.phase = slot.phase or _text(item, "phase")
            case CallSlot() if slot.number is None:
                slot.kind = "custom" if item.get("type") == "custom_tool_call" else "function"
                slot.name = _text(item, "name") or slot.name
                slot.call_id = _text(item, "call_id") or slot.call_id
                slot.namespace = _text(item, "namespace")
                slot.extra = {key: value for key, value in item.items() if key not in _CALL_MEMBERS and value is not None} or None
                slot.first = _arguments(slot, item)
                if slot.name:
                    self._start_call(slot)

    def _finish(self, slot: Slot, item: JsonObject, *, is_whole: bool) -> None:
        """Take the item in its last state. `is_whole`: it was not truncated."""
        was_done, slot.is_done = slot.is_done, True
        self._update(slot, item)
        match slot:
            case MessageSlot():
                parts = _list(item, "content")
                for index, part in zip(streamed_indexes(slot.parts, len(parts)), parts, strict=True):
                    self.finish_part(slot, index, part)
            case ReasoningSlot():
                self._finish_reasoning(slot, item)
            case CallSlot():
                self.complete_call(slot, _arguments(slot, item))
                if is_whole:
                    self._finish_call(slot)
            case OpaqueSlot() if not was_done:
                self._enter(slot)
                self.out.append(ItemReceived(wire=NAME, raw=item))

    def _finish_reasoning(self, slot: ReasoningSlot, item: JsonObject) -> None:
        for kind, name in _REASONING_MEMBERS:
            parts = _list(item, name)
            seen = [index for each, index in slot.buffers if each == kind]
            for index, part in zip(streamed_indexes(seen, len(parts)), parts, strict=True):
                if isinstance(part, dict):
                    self.complete_reasoning(slot, kind, index, part.get("text"))
        encrypted = _text(item, "encrypted_content")
        if not slot.is_started or encrypted or self.current is slot:
            self._enter_reasoning(slot)
            self.current = None
            self.out.append(ReasoningFinished(encrypted=encrypted))

    # The end

    def end(self, response: JsonObject, outcome: Literal["completed", "incomplete"]) -> None:
        """Emit what only the final response has, and finish what it leaves out but was streamed."""
        self.start(response)
        output = [item for item in _list(response, "output") if isinstance(item, dict)]
        for index, (item, slot) in enumerate(zip(output, self._slots.pair(output), strict=True)):
            if slot is None or not slot.is_done or (isinstance(slot, MessageSlot) and slot.is_empty):
                opened = slot or self._slots.open(slot_type(item), index, _text(item, "id"))
                self._finish(opened, item, is_whole=_is_whole(item, outcome))
        for slot in self._slots.all:
            self._flush(slot, outcome)
        has_calls = any(isinstance(slot, CallSlot) and slot.is_finished for slot in self._slots.all)
        finish: Finish = "calls" if has_calls else "stop"
        if outcome == "incomplete":
            filtered = _object(response, "incomplete_details").get("reason") == "content_filter"
            finish = "content_filter" if filtered else "length"
        usage = response.get("usage")
        counts = _usage(usage) if isinstance(usage, dict) else None
        self.out.append(AnswerFinished(finish=finish, usage=counts, service_tier=_text(response, "service_tier")))

    def _flush(self, slot: Slot, outcome: str) -> None:
        """Complete what was left open, calls only if the answer is complete."""
        match slot:
            case MessageSlot():
                for part in slot.parts.values():
                    self.add_text(slot, part, part.flush())
            case ReasoningSlot():
                for (kind, index), buffer in slot.buffers.items():
                    self._emit_reasoning(slot, kind, index, buffer.flush())
            case CallSlot() if not slot.is_done and outcome == "completed":
                self.emit_arguments(slot, slot.buffer.flush())
                self._finish_call(slot)


def _is_whole(item: JsonObject, outcome: str) -> bool:
    """Return whether a call that only the final response has was not truncated: by its status, else by its arguments."""
    status = item.get("status")
    if status is not None or outcome == "completed":
        return status != "incomplete"
    return is_object(arguments_text(item.get("arguments")))


def _arguments(slot: CallSlot, item: JsonObject) -> Json:
    return item.get("input" if slot.kind == "custom" else "arguments")


def _text(members: JsonObject, name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None


def _list(members: JsonObject, name: str) -> list[Json]:
    value = members.get(name)
    return value if isinstance(value, list) else []


def _object(members: JsonObject, name: str) -> JsonObject:
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def _usage(members: JsonObject) -> Usage:
    input_details, output_details = _object(members, "input_tokens_details"), _object(members, "output_tokens_details")
    return Usage(
        input=_count(members, "input_tokens") or 0,
        output=_count(members, "output_tokens") or 0,
        total=_count(members, "total_tokens"),
        cached=_count(input_details, "cached_tokens"),
        cache_written=_count(input_details, "cache_write_tokens"),
        reasoning=_count(output_details, "reasoning_tokens"),
    )


def _count(members: JsonObject, name: str) -> int | None:
    value = members.get(name)
    return limit_tokens(value) if isinstance(value, int) and not isinstance(value, bool) else None
