"""Responses, the items of a provider's answer while they are received, and which frame belongs to which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field

from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.core.surrogates import join_surrogates, join_surrogates_so_far
from toolrelay.wires.responses.resource import ReasoningKind


class TextBuffer(Struct, eq=False):
    """A text that is being received. `half` is a high surrogate that waits for the low one."""

    pieces: list[str] = []
    half: str = ""

    def add(self, delta: str) -> str:
        """Add a delta. Return what can be emitted."""
        text, self.half = join_surrogates_so_far(self.half + delta)
        if text:
            self.pieces.append(text)
        return text

    def complete(self, whole: str) -> str:
        """Take the whole text. Return what the deltas had left out; nothing if the two disagree."""
        whole = join_surrogates(whole)
        so_far = "".join(self.pieces)
        if not whole.startswith(so_far):
            return self.flush()
        self.pieces = [whole] if whole else []
        self.half = ""
        return whole[len(so_far) :]

    def flush(self) -> str:
        """Replace a high surrogate whose low one will not come. Return the replacement, if any."""
        if not self.half:
            return ""
        self.half = ""
        self.pieces.append("\ufffd")
        return "\ufffd"


class PartBuffer(TextBuffer, kw_only=True):
    """A part of a message. `annotations` and `logprobs` count those that were emitted."""

    is_refusal: bool
    annotations: int = 0
    logprobs: int = 0


class _Slot(Struct, eq=False):
    """One item. `limit` counts the parts of all items of the answer. `is_done`: its last frame was received."""

    output_index: int | None
    id: str | None
    limit: IndexLimit
    is_done: bool = False


class MessageSlot(_Slot):
    phase: str | None = None
    parts: dict[int, PartBuffer] = {}

    def part(self, index: int, *, is_refusal: bool) -> PartBuffer:
        part = self.parts.get(index)
        if part is None:
            self.limit.add(index)
            part = self.parts[index] = PartBuffer(is_refusal=is_refusal)
        return part

    @property
    def is_empty(self) -> bool:
        return not any(part.pieces or part.annotations for part in self.parts.values())


class ReasoningSlot(_Slot):
    """`is_started`: emitted once, with its id. `positions` are those of its parts since it was last started."""

    is_started: bool = False
    buffers: dict[tuple[ReasoningKind, int], TextBuffer] = {}
    positions: dict[ReasoningKind, dict[int, int]] = {}

    def buffer(self, kind: ReasoningKind, index: int) -> TextBuffer:
        buffer = self.buffers.get((kind, index))
        if buffer is None:
            self.limit.add(index)
            buffer = self.buffers[kind, index] = TextBuffer()
        return buffer

    def position(self, kind: ReasoningKind, index: int) -> int:
        """Return the part's number among those of its kind, in order of appearance. Providers start at 1 or skip numbers."""
        positions = self.positions.setdefault(kind, {})
        return positions.setdefault(index, len(positions))


class CallSlot(_Slot):
    """A call, emitted when its name is known. `number` is its index in the answer, `first` its arguments when it was added."""

    kind: CallKind = "function"
    name: str = ""
    call_id: str | None = None
    namespace: str | None = None
    extra: JsonObject | None = None
    number: int | None = None
    buffer: TextBuffer = field(default_factory=TextBuffer)
    first: Any = None
    is_finished: bool = False


class OpaqueSlot(_Slot):
    pass


Slot: TypeAlias = MessageSlot | ReasoningSlot | CallSlot | OpaqueSlot

S = TypeVar("S", bound=Slot)

_SLOT_TYPES: dict[object, type[Slot]] = {
    "message": MessageSlot,
    "reasoning": ReasoningSlot,
    "function_call": CallSlot,
    "custom_tool_call": CallSlot,
}


def slot_type(item: JsonObject) -> type[Slot]:
    kind = item.get("type")
    return _SLOT_TYPES.get(kind, OpaqueSlot) if isinstance(kind, str) else OpaqueSlot


class Slots:
    """The items of one answer.

    Providers change ids between frames, leave the output_index out, or use one for all. So a frame belongs to the item with its
    id and output_index; else to the one with its output_index, with its id, or, without an output_index, to the last open one.
    """

    def __init__(self) -> None:
        self.all: list[Slot] = []
        self._item_limit = IndexLimit("output items")
        self._part_limit = IndexLimit("content parts")
        self._by_id: dict[str, Slot] = {}
        self._by_index: dict[int, Slot] = {}

    def find(self, kind: type[S], index: int | None, item_id: str | None) -> S | None:
        named = self._by_id.get(item_id) if item_id else None
        if isinstance(named, kind) and (index is None or named.output_index == index):
            return named
        if index is not None:
            indexed = self._by_index.get(index)
            if isinstance(indexed, kind):
                return indexed
        if isinstance(named, kind):
            return named
        if index is None:
            for slot in reversed(self.all):
                if isinstance(slot, kind) and not slot.is_done:
                    return slot
        return None

    def find_added(self, kind: type[S], index: int | None, item_id: str | None) -> S | None:
        """Return the slot of an item that is added a second time, or whose deltas came before it was."""
        slot = self.find(kind, index, item_id) if index is not None or item_id else None
        if slot is None or slot.is_done or (item_id and slot.id and slot.id != item_id):
            return None
        return slot

    def open(self, kind: type[S], index: int | None, item_id: str | None) -> S:
        self._item_limit.add(index)
        slot = kind(index, item_id, self._part_limit)
        self.all.append(slot)
        if item_id:
            self._by_id[item_id] = slot
        if index is not None:
            self._by_index[index] = slot
        return slot

    def pair(self, output: list[JsonObject]) -> list[Slot | None]:
        """Return the slot of each item of the final output, if it has one. See _KEYS for how they are matched."""
        pairs: list[Slot | None] = [None] * len(output)
        indexes = streamed_indexes([slot.output_index for slot in self.all if slot.output_index is not None], len(output))
        unpaired = dict.fromkeys(self.all)
        for slot_key, item_key in _KEYS:
            by_key: dict[tuple[type[Slot], object], list[Slot]] = {}
            for slot in reversed(unpaired):
                key = slot_key(slot)
                if key is not None:
                    by_key.setdefault((slot.__class__, key), []).append(slot)
            for number, item in enumerate(output):
                found = by_key.get((slot_type(item), item_key(item, indexes[number]))) if pairs[number] is None else None
                if found:
                    pairs[number] = slot = found.pop()
                    del unpaired[slot]
        return pairs


def streamed_indexes(seen: Iterable[int], count: int) -> Sequence[int]:
    """Return the indexes under which the `count` parts of a whole were streamed. Providers may start at 1, or skip numbers."""
    known = sorted(seen)
    if not known or known[-1] < count:
        return range(count)
    return [*known, *range(known[-1] + 1, known[-1] + 1 + count)][:count]


def _string(item: JsonObject, name: str) -> str | None:
    value = item.get(name)
    return value if isinstance(value, str) and value else None


def _slot_content(slot: Slot) -> tuple[str, ...] | None:
    match slot:
        case MessageSlot(parts=parts):
            return tuple("".join(parts[index].pieces) for index in sorted(parts))
        case CallSlot(kind=kind, name=name, buffer=buffer):
            return kind, name, "".join(buffer.pieces)
        case _:
            return None


def _item_content(item: JsonObject, _index: int) -> tuple[object, ...] | None:
    content: tuple[object, ...]
    match item:
        case {"type": "message", "content": list(parts)}:
            objects = [part for part in parts if isinstance(part, dict)]
            content = tuple([part.get("refusal" if part.get("type") == "refusal" else "text") for part in objects])
        case {"type": "function_call", "name": name, "arguments": arguments}:
            content = "function", name, arguments
        case {"type": "custom_tool_call", "name": name, "input": given}:
            content = "custom", name, given
        case _:
            return None
    return content if content and all(isinstance(each, str) for each in content) else None


# What a slot and an item of the final output have in common: id, call_id, content or index, the surest first; or no index at all.
_KEYS: tuple[tuple[Callable[[Slot], object], Callable[[JsonObject, int], object]], ...] = (
    (lambda slot: slot.id or None, lambda item, _index: _string(item, "id")),
    (lambda slot: slot.call_id or None if isinstance(slot, CallSlot) else None, lambda item, _index: _string(item, "call_id")),
    (_slot_content, _item_content),
    (lambda slot: slot.output_index, lambda _item, index: index),
    (lambda slot: "none" if slot.output_index is None else None, lambda _item, _index: "none"),
)
