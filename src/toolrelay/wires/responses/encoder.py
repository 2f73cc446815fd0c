"""Responses, an answer as a stream: stream events into numbered frames.

    created in_progress item* (completed | incomplete | error failed) [DONE]

Each item has an output_index of its own, in the order in which items begin. Messages and reasoning grow one at a time and are
done when the next item begins; calls may grow side by side and are done when they finish. What is still open at the end of an
answer that was cut is done as `incomplete`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from toolrelay.core.assembly import Answer, Assembly, CallEntry, Entry, MessageEntry, OpaqueEntry, PartEntry, ReasoningEntry
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    ItemReceived,
    MessageStarted,
    Noticed,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.surrogates import join_surrogates
from toolrelay.errors import ToolrelayError
from toolrelay.wires.base import Envelope
from toolrelay.wires.json import encode
from toolrelay.wires.responses.resource import (
    ItemStatus,
    Resource,
    ToolResult,
    identifier,
    is_shown,
    item_members,
    part_members,
    summary_members,
    thought_members,
)
from toolrelay.wires.responses.settings import written
from toolrelay.wires.sse import DONE


class _OpenMessage:
    """`part` is the one that grows; `content_index` its place."""

    __slots__ = ("content_index", "entry", "id", "index", "part", "prefix")

    def __init__(self, entry: MessageEntry) -> None:
        self.entry = entry
        self.index = 0
        self.id = ""
        self.content_index = -1
        self.part: PartEntry | None = None
        self.prefix = b""


class _OpenReasoning:
    """`texts` and `summaries` count the parts that were begun; `open` and `part` are the growing one's kind and number."""

    __slots__ = ("entry", "id", "index", "open", "part", "prefix", "summaries", "texts")

    def __init__(self, entry: ReasoningEntry) -> None:
        self.entry = entry
        self.index = 0
        self.id = ""
        self.texts = 0
        self.summaries = 0
        self.open: str | None = None
        self.part = 0
        self.prefix = b""


class _OpenCall:
    __slots__ = ("entry", "id", "index", "prefix")

    def __init__(self, entry: CallEntry) -> None:
        self.entry = entry
        self.index = 0
        self.id = ""
        self.prefix = b""


_Open: TypeAlias = _OpenMessage | _OpenReasoning | _OpenCall


class ResponsesEncoder:
    """See wires.base.Encoder."""

    def __init__(self, envelope: Envelope) -> None:
        self._token = envelope.token
        self._resource = Resource(envelope)
        self._assembly = Assembly()
        self._out: list[bytes] = []
        self._sequence = 0
        self._output: list[JsonObject] = []
        self._current: _OpenMessage | _OpenReasoning | None = None
        self._calls: dict[Entry, _OpenCall] = {}
        self._text: list[str] | None = None  # the text that grows now, so that a delta need not ask
        self._text_prefix = b""
        self._begun = False
        self._over = False

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        out = self._out = []
        add = self._assembly.add
        for event in events:
            if self._over:
                break
            if type(event) is TextDelta and self._text is not None and event.text and not event.choice and not event.logprobs:
                self._text.append(event.text)
                self._delta(self._text_prefix, event.text)
                continue
            entry = add(event)
            if type(event) is ArgumentsDelta:
                call = None if entry is None else self._calls.get(entry)
                if call is not None:
                    self._delta(call.prefix, event.text)
                continue
            self._text = None
            if not getattr(event, "choice", 0):
                self._encode_event(event, entry)
        return b"".join(out)

    def _encode_event(self, event: StreamEvent, entry: Entry | None) -> None:
        if not self._begun:
            self._begin()
        match event, entry:
            case ReasoningDelta(), ReasoningEntry():
                self._think(event, entry)
            case TextDelta(), MessageEntry():
                self._say(event, entry)
            case RefusalDelta(), MessageEntry():
                self._delta(self._message(entry).prefix, event.text)
            case AnnotationAdded(), MessageEntry():
                self._annotate(event, entry)
            case ReasoningStarted(), ReasoningEntry():
                self._reasoning(entry)
            case ReasoningFinished(), ReasoningEntry():
                self._reasoning(entry)
                self._close_current("completed")
            case CallStarted(), CallEntry():
                self._start_call(entry)
            case CallFinished(), CallEntry():
                self._finish_call(entry)
            case ItemReceived(), OpaqueEntry():
                self._relay(entry)
            case AnswerFinished(), _:
                cut = event.finish in ("length", "content_filter") or bool(self._calls)
                self._end("incomplete" if cut else "completed")
            case AnswerFailed(), _:
                self._fail(event.error)
            case ((AnswerStarted() | MessageStarted() | ChoiceFinished() | Noticed()), _):
                pass

    # Frames

    def _frame(self, kind: str, members: JsonObject) -> None:
        body = written({"type": kind, **members, "sequence_number": self._sequence})
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), body))
        self._sequence += 1

    def _delta(self, prefix: bytes, text: str) -> None:
        try:
            body = encode(text)
        except UnicodeEncodeError:
            body = encode(join_surrogates(text))
        self._out.append(b'%b%b,"sequence_number":%d}\n\n' % (prefix, body, self._sequence))
        self._sequence += 1

    def _begin(self) -> None:
        self._begun = True
        resource = self._resource.begun()
        self._frame("response.created", {"response": resource})
        self._frame("response.in_progress", {"response": resource})

    def _fail(self, error: ToolrelayError) -> None:
        """Some clients ignore `error`, others know nothing else: both are written."""
        self._close_all("incomplete")
        self._frame("error", {"code": error.code, "message": error.message, "param": error.param})
        self._end("failed")

    def _end(self, outcome: ToolResult) -> None:
        self._close_all("completed" if outcome == "completed" else "incomplete")
        said = self._assembly
        answer = Answer(
            finish=said.finish, usage=said.usage, started=said.started, service_tier=said.service_tier, error=said.error
        )
        resource = self._resource.ended(answer, self._output, outcome)
        self._frame(f"response.{outcome}", {"response": resource})
        self._out.append(DONE)
        self._over = True

    # Items

    def _open(self, opened: _Open) -> None:
        """Gives the item its place and announces it. Messages and reasoning give way to it."""
        self._close_current("completed")
        item = opened.entry.item()
        opened.index = len(self._output)
        opened.id = identifier(item, self._token, opened.index)
        announced = item_members(item, opened.id, "in_progress")
        self._output.append(announced)
        self._frame("response.output_item.added", {"output_index": opened.index, "item": announced})

    def _close(self, opened: _Open, status: ItemStatus) -> None:
        item = item_members(opened.entry.item(), opened.id, status)
        self._output[opened.index] = item
        self._frame("response.output_item.done", {"output_index": opened.index, "item": item})

    def _close_current(self, status: ItemStatus) -> None:
        current = self._current
        if current is None:
            return
        self._current = None
        if isinstance(current, _OpenMessage):
            self._close_part(current)
        else:
            self._close_thought(current)
        self._close(current, status)

    def _close_all(self, status: ItemStatus) -> None:
        self._close_current(status)
        for call in self._calls.values():
            self._close(call, "incomplete")
        self._calls.clear()

    def _relay(self, entry: OpaqueEntry) -> None:
        item = entry.item()
        if not is_shown(item):
            return
        self._close_current("completed")
        place: JsonObject = {"output_index": len(self._output), "item": item.raw}
        self._output.append(item.raw)
        self._frame("response.output_item.added", place)
        self._frame("response.output_item.done", place)

    # Messages

    def _message(self, entry: MessageEntry) -> _OpenMessage:
        """The message, open, and in it the part that grows now."""
        current = self._current
        if not isinstance(current, _OpenMessage) or current.entry is not entry:
            opened = _OpenMessage(MessageEntry(entry.phase))
            self._open(opened)
            opened.entry = entry
            self._current = current = opened
        if current.part is not entry.parts[-1]:
            self._close_part(current)
            self._open_part(current, entry.parts[-1])
        return current

    def _open_part(self, message: _OpenMessage, part: PartEntry) -> None:
        message.part = part
        message.content_index += 1
        place = self._place(message, content_index=message.content_index)
        empty = part_members(PartEntry(refusal=part.refusal).part())
        self._frame("response.content_part.added", {**place, "part": empty})
        if part.refusal:
            message.prefix = _prefix("response.refusal.delta", place)
        else:
            message.prefix = _prefix("response.output_text.delta", {**place, "logprobs": []})

    def _close_part(self, message: _OpenMessage) -> None:
        if message.part is None:
            return
        place = self._place(message, content_index=message.content_index)
        part = part_members(message.part.part())
        if message.part.refusal:
            self._frame("response.refusal.done", {**place, "refusal": part["refusal"]})
        else:
            self._frame("response.output_text.done", {**place, "text": part["text"], "logprobs": part["logprobs"]})
        self._frame("response.content_part.done", {**place, "part": part})
        message.part = None

    def _say(self, event: TextDelta, entry: MessageEntry) -> None:
        if not event.text and not event.logprobs:
            return
        message = self._message(entry)
        self._text, self._text_prefix = entry.parts[-1].pieces, message.prefix
        if event.logprobs:
            place = self._place(message, content_index=message.content_index)
            self._frame("response.output_text.delta", {**place, "logprobs": event.logprobs, "delta": event.text})
        else:
            self._delta(message.prefix, event.text)

    def _annotate(self, event: AnnotationAdded, entry: MessageEntry) -> None:
        message = self._message(entry)
        place = self._place(message, content_index=message.content_index)
        number = len(entry.parts[-1].annotations) - 1
        self._frame(
            "response.output_text.annotation.added",
            {**place, "annotation_index": number, "annotation": event.annotation},
        )

    # Reasoning

    def _reasoning(self, entry: ReasoningEntry) -> _OpenReasoning:
        current = self._current
        if isinstance(current, _OpenReasoning) and current.entry is entry:
            return current
        opened = _OpenReasoning(ReasoningEntry(entry.id))
        self._open(opened)
        opened.entry = entry
        self._current = opened
        return opened

    def _think(self, event: ReasoningDelta, entry: ReasoningEntry) -> None:
        """Parts begin in order. What comes late, for a part that another has followed, is in the item when it is done."""
        thought = self._reasoning(entry)
        if thought.open == event.kind and thought.part == event.part:
            self._delta(thought.prefix, event.text)
            return
        is_new = len(entry.text) > thought.texts if event.kind == "text" else len(entry.summary) > thought.summaries
        if is_new:
            self._close_thought(thought)
            self._open_thought(thought, event)
            self._delta(thought.prefix, event.text)

    def _open_thought(self, thought: _OpenReasoning, event: ReasoningDelta) -> None:
        thought.open, thought.part = event.kind, event.part
        if event.kind == "text":
            place = self._place(thought, content_index=thought.texts)
            thought.texts += 1
            self._frame("response.content_part.added", {**place, "part": thought_members("")})
            thought.prefix = _prefix("response.reasoning_text.delta", place)
        else:
            place = self._place(thought, summary_index=thought.summaries)
            thought.summaries += 1
            self._frame("response.reasoning_summary_part.added", {**place, "part": summary_members("")})
            thought.prefix = _prefix("response.reasoning_summary_text.delta", place)

    def _close_thought(self, thought: _OpenReasoning) -> None:
        if thought.open is None:
            return
        if thought.open == "text":
            place = self._place(thought, content_index=thought.texts - 1)
            text = "".join(thought.entry.text[thought.part])
            self._frame("response.reasoning_text.done", {**place, "text": text})
            self._frame("response.content_part.done", {**place, "part": thought_members(text)})
        else:
            place = self._place(thought, summary_index=thought.summaries - 1)
            text = "".join(thought.entry.summary[thought.part])
            self._frame("response.reasoning_summary_text.done", {**place, "text": text})
            self._frame("response.reasoning_summary_part.done", {**place, "part": summary_members(text)})
        thought.open = None

    # Calls

    def _start_call(self, entry: CallEntry) -> None:
        call = _OpenCall(entry)
        self._open(call)
        function = entry.started.kind == "function"
        kind = "response.function_call_arguments.delta" if function else "response.custom_tool_call_input.delta"
        call.prefix = _prefix(kind, self._place(call))
        self._calls[entry] = call

    def _finish_call(self, entry: CallEntry) -> None:
        call = self._calls.pop(entry, None)
        if call is None:
            return
        place, started = self._place(call), entry.started
        if started.kind == "function":
            members: JsonObject = {**place, "name": started.name, "arguments": entry.arguments}
            self._frame("response.function_call_arguments.done", members)
        else:
            self._frame("response.custom_tool_call_input.done", {**place, "input": entry.arguments})
        self._close(call, "completed")

    def _place(self, opened: _Open, **within: int) -> JsonObject:
        return {"item_id": opened.id, "output_index": opened.index, **within}


def _prefix(kind: str, members: JsonObject) -> bytes:
    """Everything of a delta's frame that stands before the delta."""
    return b"event: %b\ndata: %b" % (kind.encode(), written({"type": kind, **members})[:-1] + b',"delta":')
