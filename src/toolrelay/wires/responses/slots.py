"""Responses, the items of a provider's answer while they grow: what of each has come, and which frame belongs to which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.core.surrogates import join_surrogates, join_surrogates_so_far

Thought: TypeAlias = Literal["text", "summary"]


class Run:
    """A text that grows. `half` is the first half of a surrogate pair, which waits for the second."""

    __slots__ = ("half", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.half = ""

    def grow(self, delta: str) -> str:
        """Takes a delta in; returns what is new and can be handed on."""
        text, self.half = join_surrogates_so_far(self.half + delta)
        if text:
            self.pieces.append(text)
        return text

    def complete(self, whole: str) -> str:
        """Takes the whole text in; returns what the deltas had left out. Where the two disagree, what was handed on stands."""
        whole = join_surrogates(whole)
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
    """One item. `place` is the output_index that the provider gave it; `done`: nothing more is expected of it.

    `limit` counts the parts of all items of the answer.
    """

    __slots__ = ("done", "id", "limit", "place")

    def __init__(self, place: int | None, identifier: str | None, limit: IndexLimit) -> None:
        self.place = place
        self.id = identifier
        self.limit = limit
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

    def __init__(self, place: int | None, identifier: str | None, limit: IndexLimit) -> None:
        super().__init__(place, identifier, limit)
        self.phase: str | None = None
        self.parts: dict[int, PartRun] = {}

    def part(self, index: int, *, refusal: bool) -> PartRun:
        run = self.parts.get(index)
        if run is None:
            self.limit.add(index)
            run = self.parts[index] = PartRun(refusal=refusal)
        return run

    @property
    def is_empty(self) -> bool:
        return not any(part.pieces or part.annotations for part in self.parts.values())


class ReasoningSlot(_Slot):
    """`begun`: it was announced once, under its own id. `shown` are the positions of its parts since it was announced last."""

    __slots__ = ("begun", "runs", "shown")

    def __init__(self, place: int | None, identifier: str | None, limit: IndexLimit) -> None:
        super().__init__(place, identifier, limit)
        self.begun = False
        self.runs: dict[tuple[Thought, int], Run] = {}
        self.shown: dict[Thought, dict[int, int]] = {"text": {}, "summary": {}}

    def run(self, kind: Thought, index: int) -> Run:
        run = self.runs.get((kind, index))
        if run is None:
            self.limit.add(index)
            run = self.runs[kind, index] = Run()
        return run

    def position(self, kind: Thought, index: int) -> int:
        """Providers start at 1 or skip numbers; the positions are dense, in the order in which the parts began."""
        shown = self.shown[kind]
        return shown.setdefault(index, len(shown))


class CallSlot(_Slot):
    """It starts when its name is known. `number` is its index in the answer; `first` the arguments it was announced with."""

    __slots__ = ("call_id", "extra", "finished", "first", "kind", "name", "namespace", "number", "run")

    def __init__(self, place: int | None, identifier: str | None, limit: IndexLimit) -> None:
        super().__init__(place, identifier, limit)
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
        self._item_limit = IndexLimit("output items")
        self._part_limit = IndexLimit("content parts")
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
        self._item_limit.add(place)
        slot = kind(place, identifier, self._part_limit)
        self.all.append(slot)
        if identifier:
            self._by_id[identifier] = slot
        if place is not None:
            self._by_place[place] = slot
        return slot

    def pair(self, output: list[JsonObject]) -> list[Slot | None]:
        """For each item of the final output the slot that it grew in, if any. The surest sign goes first."""
        pairs: list[Slot | None] = [None] * len(output)
        places = streamed_indexes([slot.place for slot in self.all if slot.place is not None], len(output))
        free = dict.fromkeys(self.all)
        for sign_of_slot, sign_of_item in _SIGNS:
            waiting: dict[tuple[type[Slot], object], list[Slot]] = {}
            for slot in reversed(free):
                sign = sign_of_slot(slot)
                if sign is not None:
                    waiting.setdefault((slot.__class__, sign), []).append(slot)
            for number, item in enumerate(output):
                found = waiting.get((slot_type(item), sign_of_item(item, places[number]))) if pairs[number] is None else None
                if found:
                    pairs[number] = slot = found.pop()
                    del free[slot]
        return pairs


def streamed_indexes(seen: Iterable[int], count: int) -> Sequence[int]:
    """The indexes under which `count` parts of a whole were streamed, one by one. Providers may start at 1, or skip numbers."""
    known = sorted(seen)
    if not known or known[-1] < count:
        return range(count)
    return [*known, *range(known[-1] + 1, known[-1] + 1 + count)][:count]


def _string(item: JsonObject, name: str) -> str | None:
    value = item.get(name)
    return value if isinstance(value, str) and value else None


def _spoken_words(slot: Slot) -> tuple[str, ...] | None:
    match slot:
        case MessageSlot(parts=parts):
            return tuple("".join(parts[index].pieces) for index in sorted(parts))
        case CallSlot(kind=kind, name=name, run=run):
            return kind, name, "".join(run.pieces)
        case _:
            return None


def _final_words(item: JsonObject, _place: int) -> tuple[object, ...] | None:
    words: tuple[object, ...]
    match item:
        case {"type": "message", "content": list(content)}:
            parts = [part for part in content if isinstance(part, dict)]
            words = tuple([part.get("refusal" if part.get("type") == "refusal" else "text") for part in parts])
        case {"type": "function_call", "name": name, "arguments": arguments}:
            words = "function", name, arguments
        case {"type": "custom_tool_call", "name": name, "input": given}:
            words = "custom", name, given
        case _:
            return None
    return words if words and all(isinstance(word, str) for word in words) else None


# What a slot and an item of the final output have in common: its id, its call_id, its words, its place; or the slot has no place.
_SIGNS: tuple[tuple[Callable[[Slot], object], Callable[[JsonObject, int], object]], ...] = (
    (lambda slot: slot.id or None, lambda item, _place: _string(item, "id")),
    (lambda slot: slot.call_id or None if isinstance(slot, CallSlot) else None, lambda item, _place: _string(item, "call_id")),
    (_spoken_words, _final_words),
    (lambda slot: slot.place, lambda _item, place: place),
    (lambda slot: "none" if slot.place is None else None, lambda _item, _place: "none"),
)
