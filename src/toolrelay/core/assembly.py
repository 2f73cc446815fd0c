"""Folds stream events into the answer that they spell.

An Assembly keeps its entries in the order in which they began, so that an encoder which writes as it goes (Responses) and one
that waits for the end (Chat without streaming, the ledger) read the same record.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from msgspec import Struct

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ItemReceived,
    MessageStarted,
    Noticed,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import Json
from toolrelay.core.messages import Call, Item, Message, OpaqueItem, Part, Reasoning, Refusal, Text
from toolrelay.errors import ToolrelayError


class Answer(Struct, frozen=True, kw_only=True):
    """A whole answer. `others` are the further choices of a client that asked for n > 1."""

    items: tuple[Item, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    started: AnswerStarted = AnswerStarted()
    service_tier: str | None = None
    error: ToolrelayError | None = None
    others: tuple[Answer, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple([item for item in self.items if type(item) is Call])


class PartEntry:
    """Text or a refusal, growing."""

    __slots__ = ("annotations", "logprobs", "pieces", "refusal")

    def __init__(self, *, refusal: bool) -> None:
        self.refusal = refusal
        self.pieces: list[str] = []
        self.annotations: list[Json] = []
        self.logprobs: list[Json] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def part(self) -> Part:
        if self.refusal:
            return Refusal(text=self.text)
        return Text(text=self.text, annotations=tuple(self.annotations), logprobs=tuple(self.logprobs))


class MessageEntry:
    __slots__ = ("parts", "phase")

    def __init__(self, phase: str | None = None) -> None:
        self.phase = phase
        self.parts: list[PartEntry] = []

    def part(self, *, refusal: bool) -> PartEntry:
        """The part that grows now; a new one where the kind changes."""
        if not self.parts or self.parts[-1].refusal is not refusal:
            self.parts.append(PartEntry(refusal=refusal))
        return self.parts[-1]

    def item(self) -> Message:
        return Message(role="assistant", content=tuple([part.part() for part in self.parts]), phase=self.phase)


class ReasoningEntry:
    """Reasoning, growing. Its parts stand in the order in which they began, whatever their numbers."""

    __slots__ = ("encrypted", "finished", "id", "summary", "text")

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 -- the wire's word
        self.id = id
        self.text: dict[int, list[str]] = {}
        self.summary: dict[int, list[str]] = {}
        self.encrypted: str | None = None
        self.finished = False

    def add(self, event: ReasoningDelta) -> None:
        parts = self.text if event.kind == "text" else self.summary
        pieces = parts.get(event.part)
        if pieces is None:
            pieces = parts[event.part] = []
        pieces.append(event.text)

    def item(self) -> Reasoning:
        return Reasoning(
            id=self.id,
            text=tuple("".join(pieces) for pieces in self.text.values()),
            summary=tuple("".join(pieces) for pieces in self.summary.values()),
            encrypted=self.encrypted,
        )


class CallEntry:
    __slots__ = ("finished", "pieces", "started")

    def __init__(self, started: CallStarted) -> None:
        self.started = started
        self.pieces: list[str] = []
        self.finished = False

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def item(self) -> Call:
        start = self.started
        return Call(
            id=start.id,
            name=start.name,
            arguments=self.arguments,
            kind=start.kind,
            namespace=start.namespace,
            extra=start.extra,
        )


class OpaqueEntry:
    __slots__ = ("received",)

    def __init__(self, received: ItemReceived) -> None:
        self.received = received

    def item(self) -> OpaqueItem:
        return OpaqueItem(wire=self.received.wire, raw=self.received.raw)


Entry: TypeAlias = MessageEntry | ReasoningEntry | CallEntry | OpaqueEntry


class Assembly:
    """One choice's record. Events of other choices are kept in `others`, each an Assembly of its own.

    `_tail` is where plain text goes while it only grows, which is nearly always.
    """

    __slots__ = ("_calls", "_current", "_tail", "entries", "error", "finish", "others", "service_tier", "started", "usage")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.others: dict[int, Assembly] = {}
        self.started = AnswerStarted()
        self.finish: Finish = "stop"
        self.usage: Usage | None = None
        self.service_tier: str | None = None
        self.error: ToolrelayError | None = None
        self._calls: dict[int, CallEntry] = {}
        self._current: Entry | None = None
        self._tail: list[str] | None = None

    def add(self, event: StreamEvent) -> Entry | None:
        """Takes the event in; returns the entry it belongs to."""
        if type(event) is TextDelta:
            tail = self._tail
            if tail is not None and not event.choice and not event.logprobs:
                tail.append(event.text)
                return self._current
        elif type(event) is ArgumentsDelta and not event.choice:
            return self._grow_call(event)
        # A test that fails costs far more than one that holds (0.2 µs against 0.05): the frequent come first.
        if isinstance(event, AnswerStarted):
            self.started = event
            return None
        if isinstance(event, AnswerFinished):
            self.finish = event.finish
            self.usage = event.usage
            self.service_tier = event.service_tier
            return None
        if isinstance(event, _OF_A_CHOICE) and event.choice:
            return self._other(event.choice).add(_first_choice(event))
        match event:
            case TextDelta() | RefusalDelta() | AnnotationAdded() | MessageStarted():
                return self._add_to_message(event)
            case ReasoningDelta() | ReasoningStarted() | ReasoningFinished():
                return self._add_to_reasoning(event)
            case CallStarted():
                self._calls[event.index] = call = CallEntry(event)
                return self._open(call)
            case ArgumentsDelta():
                return self._grow_call(event)
            case CallFinished():
                finished = self._calls.get(event.index)
                if finished is not None:
                    finished.finished = True
                return finished
            case ItemReceived():
                return self._open(OpaqueEntry(event))
            case ChoiceFinished():
                self._other(event.choice).finish = event.finish
            case AnswerFailed():
                self.error = event.error
            case Noticed():
                pass
            case _:
                assert_never(event)
        return None

    def _add_to_message(self, event: TextDelta | RefusalDelta | AnnotationAdded | MessageStarted) -> Entry | None:
        if type(event) is MessageStarted:
            return self._open(MessageEntry(event.phase))
        if isinstance(event, TextDelta | RefusalDelta) and not _says_something(event):
            return None
        entry = self._current
        if type(entry) is not MessageEntry:
            entry = MessageEntry()
            self._open(entry)
        part = entry.part(refusal=type(event) is RefusalDelta)
        self._tail = None if part.refusal else part.pieces
        if isinstance(event, TextDelta):
            part.pieces.append(event.text)
            if event.logprobs:
                part.logprobs.extend(event.logprobs)
        elif isinstance(event, RefusalDelta):
            part.pieces.append(event.text)
        elif isinstance(event, AnnotationAdded):
            part.annotations.append(event.annotation)
        return entry

    def _add_to_reasoning(self, event: ReasoningDelta | ReasoningStarted | ReasoningFinished) -> Entry:
        entry = self._current
        if isinstance(event, ReasoningStarted):
            return self._open(ReasoningEntry(event.id))
        if not isinstance(entry, ReasoningEntry) or entry.finished:
            entry = ReasoningEntry()
            self._open(entry)
        if isinstance(event, ReasoningDelta):
            entry.add(event)
        else:
            entry.encrypted = event.encrypted
            entry.finished = True
        return entry

    def _grow_call(self, event: ArgumentsDelta) -> CallEntry | None:
        entry = self._calls.get(event.index)
        if entry is not None:
            entry.pieces.append(event.text)
        return entry

    def _open(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        self._current = entry
        self._tail = None
        return entry

    def _other(self, choice: int) -> Assembly:
        other = self.others.get(choice)
        if other is None:
            other = self.others[choice] = Assembly()
        return other

    def answer(self) -> Answer:
        """The answer so far. A call that was not finished is not part of it; nor is an empty message."""
        return Answer(
            items=tuple([entry.item() for entry in self.entries if _is_whole(entry)]),
            finish=self.finish,
            usage=self.usage,
            started=self.started,
            service_tier=self.service_tier,
            error=self.error,
            others=tuple([self.others[choice].answer() for choice in sorted(self.others)]) if self.others else (),
        )


def _is_whole(entry: Entry) -> bool:
    if isinstance(entry, MessageEntry):
        return bool(entry.parts)
    return entry.finished if isinstance(entry, CallEntry) else True


def _says_something(event: TextDelta | RefusalDelta) -> bool:
    """Some providers send deltas without text. They must not begin a message, or it would matter how an answer was cut."""
    return bool(event.text or (isinstance(event, TextDelta) and event.logprobs))


_OfAChoice: TypeAlias = TextDelta | RefusalDelta | AnnotationAdded | ReasoningDelta | CallStarted | ArgumentsDelta | CallFinished
_OF_A_CHOICE = (TextDelta, ReasoningDelta, ArgumentsDelta, CallStarted, CallFinished, RefusalDelta, AnnotationAdded)


def _first_choice(event: _OfAChoice) -> StreamEvent:
    """The same event as its own choice sees it."""
    match event:
        case TextDelta():
            return TextDelta(event.text, 0, event.logprobs)
        case RefusalDelta():
            return RefusalDelta(event.text)
        case AnnotationAdded():
            return AnnotationAdded(event.annotation)
        case ReasoningDelta():
            return ReasoningDelta(event.text, event.kind, event.part)
        case CallStarted():
            return CallStarted(event.index, event.name, event.id, event.kind, 0, event.namespace, event.extra)
        case ArgumentsDelta():
            return ArgumentsDelta(event.index, event.text)
        case CallFinished():
            return CallFinished(event.index)
