"""Responses, the items of a provider's answer while they grow: what of each has come, and which frame belongs to which."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.wires._json import mended

Thought: TypeAlias = Literal["text", "summary"]


class Run:
    """A text that grows. `half` is the first half of a surrogate pair, which waits for the second."""

    __slots__ = ("half", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.half = ""

    def grow(self, delta: str) -> str:
        """Takes a delta in; returns what is new and can be handed on."""
        text = self.half + delta
        self.half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        text = mended(text)
        if text:
            self.pieces.append(text)
        return text

    def complete(self, whole: str) -> str:
        """Takes the whole text in; returns what the deltas had left out. Where the two disagree, what was handed on stands."""
        whole = mended(whole)
        so_far = "".join(self.pieces)
        if not whole.startswith(so_far):
            return self.give_up()
        rest = whole[len(so_far) :]
        self.pieces = [whole] if whole else []
        self.half = ""
        return rest

    def give_up(self) -> str:
        """A half whose other half will not come."""
        if not self.half:
            return ""
        self.half = ""
        self.pieces.append("\ufffd")
        return "\ufffd"


class _Slot:
    """One item. `place` is the output_index that the provider gave it; `done`: nothing more is expected of it."""

    __slots__ = ("done", "id", "place")

    def __init__(self, place: int | None, identifier: str | None) -> None:
        self.place = place
        self.id = identifier
        self.done = False


class PartRun(Run):
    """A part of a message; of its annotations and logprobs so many have been handed on."""

    __slots__ = ("annotations", "logprobs", "refusal")

    def __init__(self, *, refusal: bool) -> None:
        super().__init__()
        self.refusal = refusal
        self.annotations = 0
        self.logprobs = 0


class MessageSlot(_Slot):
    __slots__ = ("parts", "phase")

    def __init__(self, place: int | None, identifier: str | None) -> None:
        super().__init__(place, identifier)
        self.phase: str | None = None
        self.parts: dict[int, PartRun] = {}

    def part(self, index: int, *, refusal: bool) -> PartRun:
        run = self.parts.get(index)
        if run is None:
            run = self.parts[index] = PartRun(refusal=refusal)
        return run

    @property
    def is_empty(self) -> bool:
        return not any(part.pieces or part.annotations for part in self.parts.values())


class ReasoningSlot(_Slot):
    """`begun`: it was announced once, under its own id."""

    __slots__ = ("begun", "runs")

    def __init__(self, place: int | None, identifier: str | None) -> None:
        super().__init__(place, identifier)
        self.begun = False
        self.runs: dict[tuple[Thought, int], Run] = {}


class CallSlot(_Slot):
    """It starts when its name is known. `number` is its index in the answer; `first` the arguments it was announced with."""

    __slots__ = ("call_id", "extra", "finished", "first", "kind", "name", "namespace", "number", "run")

    def __init__(self, place: int | None, identifier: str | None) -> None:
        super().__init__(place, identifier)
        self.kind: CallKind = "function"
        self.name = ""
        self.call_id: str | None = None
        self.namespace: str | None = None
        self.extra: JsonObject | None = None
        self.number: int | None = None
        self.run = Run()
        self.first: Any = None
        self.finished = False


class OpaqueSlot(_Slot):
    __slots__ = ()


Slot: TypeAlias = MessageSlot | ReasoningSlot | CallSlot | OpaqueSlot

S = TypeVar("S", bound=Slot)

_SLOTS: dict[str, type[Slot]] = {
    "message": MessageSlot,
    "reasoning": ReasoningSlot,
    "function_call": CallSlot,
    "custom_tool_call": CallSlot,
}


def slot_type(item: JsonObject) -> type[Slot]:
    kind = item.get("type")
    return _SLOTS.get(kind, OpaqueSlot) if isinstance(kind, str) else OpaqueSlot


class Slots:
    """The items of one answer, found by what a frame says of its own.

    Providers change ids between frames, leave the output_index out, or use one for all. So an id counts if it is known and
    nothing speaks against it, then the place, then the id alone, then whatever item of that kind is open.
    """

    def __init__(self) -> None:
        self.all: list[Slot] = []
        self._by_id: dict[str, Slot] = {}
        self._by_place: dict[int, Slot] = {}

    def find(self, kind: type[S], place: int | None, identifier: str | None) -> S | None:
        named = self._by_id.get(identifier) if identifier else None
        if isinstance(named, kind) and (place is None or named.place == place):
            return named
        if place is not None:
            placed = self._by_place.get(place)
            if isinstance(placed, kind):
                return placed
        if isinstance(named, kind):
            return named
        if place is None:
            for slot in reversed(self.all):
                if isinstance(slot, kind) and not slot.done:
                    return slot
        return None

    def announced(self, kind: type[S], place: int | None, identifier: str | None) -> S | None:
        """The slot of an item that is announced a second time, or whose deltas came before it."""
        slot = self.find(kind, place, identifier) if place is not None or identifier else None
        if slot is None or slot.done or (identifier and slot.id and slot.id != identifier):
            return None
        return slot

    def open(self, kind: type[S], place: int | None, identifier: str | None) -> S:
        slot = kind(place, identifier)
        self.all.append(slot)
        if identifier:
            self._by_id[identifier] = slot
        if place is not None:
            self._by_place[place] = slot
        return slot

    def pair(self, output: list[JsonObject]) -> list[Slot | None]:
        """For each item of the final output the slot that it grew in, if any. The surest sign goes first."""
        pairs: list[Slot | None] = [None] * len(output)
        free = list(self.all)
        for test in (_same_id, _same_call, _same_words, _same_place, _unplaced):
            for place, item in enumerate(output):
                if pairs[place] is None:
                    slot = next((s for s in free if s.__class__ is slot_type(item) and test(s, item, place)), None)
                    if slot is not None:
                        pairs[place] = slot
                        free.remove(slot)
        return pairs


def _same_id(slot: Slot, item: JsonObject, _place: int) -> bool:
    return bool(slot.id) and slot.id == item.get("id")


def _same_call(slot: Slot, item: JsonObject, _place: int) -> bool:
    return isinstance(slot, CallSlot) and bool(slot.call_id) and slot.call_id == item.get("call_id")


def _same_words(slot: Slot, item: JsonObject, _place: int) -> bool:
    match slot:
        case MessageSlot():
            content = item.get("content")
            parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
            said = [part.get("refusal") if part.get("type") == "refusal" else part.get("text") for part in parts]
            return bool(said) and said == ["".join(slot.parts[index].pieces) for index in sorted(slot.parts)]
        case CallSlot(name=name, run=run):
            arguments = item.get("input" if slot.kind == "custom" else "arguments")
            return name == item.get("name") and "".join(run.pieces) == arguments
        case _:
            return False


def _same_place(slot: Slot, _item: JsonObject, place: int) -> bool:
    return slot.place == place


def _unplaced(slot: Slot, _item: JsonObject, _place: int) -> bool:
    return slot.place is None
