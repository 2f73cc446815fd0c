"""Responses, what a provider's answer has said so far, and the events that each further frame makes new.

The same words may come up to five times: as deltas, when a text, its part and its item are done, and in the final response; or in
any one of these alone. Each is compared with what has been handed on, and only the difference goes out.
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
)
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.wires.json import decode, encode
from toolrelay.wires.responses.items import NAME
from toolrelay.wires.responses.slots import (
    CallSlot,
    MessageSlot,
    OpaqueSlot,
    PartRun,
    ReasoningSlot,
    Slot,
    Slots,
    Thought,
    slot_type,
    streamed_indexes,
)

_CALL_MEMBERS = frozenset({"type", "id", "status", "call_id", "name", "arguments", "input", "namespace"})


class Record:
    """`out` takes the events; `current` is the item that a delta of text would be added to."""

    def __init__(self) -> None:
        self.out: list[StreamEvent] = []
        self._slots = Slots()
        self.current: Slot | None = None
        self._started = False
        self._calls = 0

    def start(self, response: JsonObject) -> None:
        if not self._started:
            self._started = True
            self.out.append(AnswerStarted(model=_text(response, "model"), service_tier=_text(response, "service_tier")))

    # Messages

    def message(self, place: int | None, identifier: str | None) -> MessageSlot:
        return self._slots.find(MessageSlot, place, identifier) or self._slots.open(MessageSlot, place, identifier)

    def say(self, slot: MessageSlot, part: PartRun, text: str, logprobs: list[Any] | None = None) -> None:
        if not text and not logprobs:
            return
        self._speak(slot)
        if part.refusal:
            self.out.append(RefusalDelta(text))
        elif logprobs:
            part.logprobs += len(logprobs)
            self.out.append(TextDelta(text, 0, logprobs))
        else:
            self.out.append(TextDelta(text))

    def complete(self, slot: MessageSlot, part: PartRun, whole: object, logprobs: object = None) -> None:
        rest = part.complete(whole) if isinstance(whole, str) else part.give_up()
        self.say(slot, part, rest, logprobs[part.logprobs :] if isinstance(logprobs, list) else None)

    def annotate(self, slot: MessageSlot, part: PartRun, annotation: object) -> None:
        if isinstance(annotation, dict):
            self._speak(slot)
            part.annotations += 1
            self.out.append(AnnotationAdded(annotation))

    def finish_part(self, slot: MessageSlot, index: int, part: object) -> None:
        if not isinstance(part, dict):
            return
        match part.get("type"):
            case "refusal":
                self.complete(slot, slot.part(index, refusal=True), part.get("refusal"))
            case "output_text" | "text":
                run = slot.part(index, refusal=False)
                self.complete(slot, run, part.get("text"), part.get("logprobs"))
                for annotation in _list(part, "annotations")[run.annotations :]:
                    self.annotate(slot, run, annotation)

    def _speak(self, slot: MessageSlot) -> None:
        if self.current is not slot:
            self.start({})
            self.current = slot
            self.out.append(MessageStarted(phase=slot.phase))

    # Reasoning

    def reasoning(self, place: int | None, identifier: str | None) -> ReasoningSlot:
        return self._slots.find(ReasoningSlot, place, identifier) or self._slots.open(ReasoningSlot, place, identifier)

    def think(self, slot: ReasoningSlot, kind: Thought, part: int, delta: str) -> None:
        self._hand_on_thought(slot, kind, part, slot.run(kind, part).grow(delta))

    def complete_thought(self, slot: ReasoningSlot, kind: Thought, part: int, whole: object) -> None:
        if isinstance(whole, str):
            self._hand_on_thought(slot, kind, part, slot.run(kind, part).complete(whole))

    def _hand_on_thought(self, slot: ReasoningSlot, kind: Thought, part: int, text: str) -> None:
        if text:
            self._ponder(slot)
            self.out.append(ReasoningDelta(text, kind, slot.position(kind, part)))

    def _ponder(self, slot: ReasoningSlot) -> None:
        if self.current is not slot:
            self.start({})
            self.current = slot
            self.out.append(ReasoningStarted(id=None if slot.begun else slot.id))
            slot.begun = True
            slot.shown = {"text": {}, "summary": {}}

    # Calls

    def call(self, place: int | None, identifier: str | None, kind: CallKind) -> CallSlot:
        slot = self._slots.find(CallSlot, place, identifier)
        if slot is None:
            slot = self._slots.open(CallSlot, place, identifier)
            slot.kind = kind
        return slot

    def argue(self, slot: CallSlot, text: str) -> None:
        """More arguments. Those of a call whose name is not known yet wait for it."""
        if text and slot.number is not None and not slot.finished:
            self.out.append(ArgumentsDelta(slot.number, text))

    def complete_call(self, slot: CallSlot, whole: object, name: object = None) -> None:
        if isinstance(name, str) and name and not slot.name:
            slot.name = name
            self._start_call(slot)
        text = _arguments(whole)
        self.argue(slot, slot.run.complete(text) if text else slot.run.give_up())

    def _start_call(self, slot: CallSlot) -> None:
        if slot.number is not None:
            return
        self.start({})
        self.current = slot
        slot.number = self._calls
        self._calls += 1
        self.out.append(
            CallStarted(slot.number, slot.name, kind=slot.kind, namespace=slot.namespace, extra=slot.extra),
        )
        self.argue(slot, "".join(slot.run.pieces))

    def _finish_call(self, slot: CallSlot) -> None:
        if slot.finished:
            return
        self._start_call(slot)
        if not slot.run.pieces and slot.first:
            self.complete_call(slot, slot.first)
        if not slot.run.pieces and slot.kind == "function":
            self.argue(slot, "{}")
        slot.finished = True
        if slot.number is not None:
            self.out.append(CallFinished(slot.number))

    # Items

    def add_item(self, place: int | None, item: JsonObject) -> None:
        kind, identifier = slot_type(item), _text(item, "id")
        slot = self._slots.announced(kind, place, identifier) or self._slots.open(kind, place, identifier)
        self._describe(slot, item)
        if isinstance(slot, ReasoningSlot):
            self._ponder(slot)

    def finish_item(self, place: int | None, item: JsonObject) -> None:
        kind, identifier = slot_type(item), _text(item, "id")
        slot = self._slots.find(kind, place, identifier)
        if slot is None or (slot.done and slot.id != identifier):
            slot = self._slots.open(kind, place, identifier)
        self._finish(slot, item, whole=item.get("status") != "incomplete")

    def _describe(self, slot: Slot, item: JsonObject) -> None:
        match slot:
            case MessageSlot():
                slot.phase = slot.phase or _text(item, "phase")
            case CallSlot() if slot.number is None:
                slot.kind = "custom" if item.get("type") == "custom_tool_call" else "function"
                slot.name = _text(item, "name") or slot.name
                slot.call_id = _text(item, "call_id") or slot.call_id
                slot.namespace = _text(item, "namespace")
                slot.extra = {key: value for key, value in item.items() if key not in _CALL_MEMBERS and value is not None} or None
                slot.first = item.get("input" if slot.kind == "custom" else "arguments")
                if slot.name:
                    self._start_call(slot)

    def _finish(self, slot: Slot, item: JsonObject, *, whole: bool) -> None:
        """The item as the provider says it is in the end. `whole`: it was not cut."""
        done, slot.done = slot.done, True
        self._describe(slot, item)
        match slot:
            case MessageSlot():
                parts = _list(item, "content")
                for index, part in zip(streamed_indexes(slot.parts, len(parts)), parts, strict=True):
                    self.finish_part(slot, index, part)
            case ReasoningSlot():
                self._finish_reasoning(slot, item)
            case CallSlot():
                self.complete_call(slot, item.get("input" if slot.kind == "custom" else "arguments"))
                if whole:
                    self._finish_call(slot)
            case OpaqueSlot() if not done:
                self.start({})
                self.current = slot
                self.out.append(ItemReceived(wire=NAME, raw=item))

    def _finish_reasoning(self, slot: ReasoningSlot, item: JsonObject) -> None:
        for kind, name in _THOUGHTS:
            pieces = _list(item, name)
            seen = [index for of_kind, index in slot.runs if of_kind == kind]
            for index, piece in zip(streamed_indexes(seen, len(pieces)), pieces, strict=True):
                if isinstance(piece, dict):
                    self.complete_thought(slot, kind, index, piece.get("text"))
        encrypted = _text(item, "encrypted_content")
        if not slot.begun or encrypted or self.current is slot:
            self._ponder(slot)
            self.current = None
            self.out.append(ReasoningFinished(encrypted=encrypted))

    # The end

    def end(self, response: JsonObject, outcome: Literal["completed", "incomplete"]) -> None:
        """Hands on what only the final response says, and what it leaves unsaid but was streamed."""
        self.start(response)
        output = [item for item in _list(response, "output") if isinstance(item, dict)]
        for place, (item, slot) in enumerate(zip(output, self._slots.pair(output), strict=True)):
            if slot is None or not slot.done or (isinstance(slot, MessageSlot) and slot.is_empty):
                grown = slot or self._slots.open(slot_type(item), place, _text(item, "id"))
                self._finish(grown, item, whole=_is_whole(item, outcome))
        for slot in self._slots.all:
            self._give_up(slot, outcome)
        called = any(isinstance(slot, CallSlot) and slot.finished for slot in self._slots.all)
        finish: Finish = "calls" if called else "stop"
        if outcome == "incomplete":
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            finish = "content_filter" if reason == "content_filter" else "length"
        usage = response.get("usage")
        self.out.append(
            AnswerFinished(
                finish=finish,
                usage=_usage(usage) if isinstance(usage, dict) else None,
                service_tier=_text(response, "service_tier"),
            )
        )

    def _give_up(self, slot: Slot, outcome: str) -> None:
        """What was left open in an answer that is complete is complete."""
        match slot:
            case MessageSlot():
                for part in slot.parts.values():
                    self.say(slot, part, part.give_up())
            case ReasoningSlot():
                for (kind, number), run in slot.runs.items():
                    self._hand_on_thought(slot, kind, number, run.give_up())
            case CallSlot() if not slot.done and outcome == "completed":
                self.argue(slot, slot.run.give_up())
                self._finish_call(slot)


_THOUGHTS: tuple[tuple[Thought, str], ...] = (("summary", "summary"), ("text", "content"))


def _is_whole(item: JsonObject, outcome: str) -> bool:
    """Whether a call that only the final response shows was not cut. Without a status its arguments must tell."""
    status = item.get("status")
    if status is not None or outcome == "completed":
        return status != "incomplete"
    try:
        return isinstance(decode(_arguments(item.get("arguments"))), dict)
    except ValueError:
        return False


def _arguments(value: object) -> str:
    """Some providers send the arguments as an object."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()


def _text(members: JsonObject, name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None


def _list(members: JsonObject, name: str) -> list[Json]:
    value = members.get(name)
    return value if isinstance(value, list) else []


def _usage(members: JsonObject) -> Usage:
    read, spent = members.get("input_tokens_details"), members.get("output_tokens_details")
    return Usage(
        input=_count(members, "input_tokens") or 0,
        output=_count(members, "output_tokens") or 0,
        total=_count(members, "total_tokens"),
        cached=_count(read, "cached_tokens"),
        cache_written=_count(read, "cache_write_tokens"),
        reasoning=_count(spent, "reasoning_tokens"),
    )


def _count(members: object, name: str) -> int | None:
    value = members.get(name) if isinstance(members, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
