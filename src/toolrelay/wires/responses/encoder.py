"""Responses, an answer as a stream: stream events into numbered frames.

    created in_progress item* (completed | incomplete | error failed) [DONE]

Each item has an output_index of its own, in the order in which items begin. Only one message or reasoning is open at a time,
until the next item begins; calls may be open side by side, until each is finished. What is still open at the end of a truncated
answer is closed as `incomplete`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolrelay.core.assembly import (
    ApprovalRequestEntry,
    Assembly,
    CallEntry,
    Entry,
    GatewayCallEntry,
    MessageEntry,
    OpaqueEntry,
    PartEntry,
    ReasoningEntry,
)
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    ApprovalRequested,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    GatewayCallFinished,
    GatewayCallStarted,
    ItemReceived,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import OutputItem
from toolrelay.errors import ToolrelayError
from toolrelay.wires.base import KEEP_ALIVE, Envelope
from toolrelay.wires.json import encode, encode_repaired
from toolrelay.wires.responses.resource import (
    RAW_PARTS,
    ItemStatus,
    ReasoningKind,
    Resource,
    ResponseStatus,
    is_output,
    item_members,
    output_id,
    part_members,
    reasoning_part,
    shows_encrypted,
    wants_summaries,
)
from toolrelay.wires.sse import DONE


class _OpenItem(Struct, eq=False):
    """An item that is announced and not done. `prefix` is what the frames of its deltas begin with."""

    index: int
    id: str
    prefix: bytes = b""

    def address(self, **within: int) -> JsonObject:
        return {"item_id": self.id, "output_index": self.index, **within}


class _OpenCall(_OpenItem, kw_only=True):
    entry: CallEntry


class _OpenGatewayCall(_OpenItem, kw_only=True):
    entry: GatewayCallEntry


class _OpenMessage(_OpenItem, kw_only=True):
    """`part` is the one that is open, `content_index` its index."""

    entry: MessageEntry
    part: PartEntry | None = None
    content_index: int = -1

    def part_address(self) -> JsonObject:
        return self.address(content_index=self.content_index)


class _OpenReasoning(_OpenItem, kw_only=True):
    """`kind` and `part` are those of the open part; `counts` has the parts of each kind that were opened."""

    entry: ReasoningEntry
    kind: ReasoningKind | None = None
    part: int = 0
    counts: dict[ReasoningKind, int] = {}

    def parts(self, kind: ReasoningKind) -> dict[int, list[str]]:
        return self.entry.text if kind == "text" else self.entry.summary

    def part_address(self, kind: ReasoningKind) -> JsonObject:
        return self.address(**{_REASONING_FRAMES[kind][0]: self.counts[kind] - 1})


# Of each kind of reasoning: the name of the index, the frames of its parts, the frames of their texts.
_REASONING_FRAMES: dict[ReasoningKind, tuple[str, str, str]] = {
    "text": ("content_index", "response.content_part", "response.reasoning_text"),
    "summary": ("summary_index", "response.reasoning_summary_part", "response.reasoning_summary_text"),
}


class ResponsesEncoder:
    """See wires.base.Encoder."""

    def __init__(self, envelope: Envelope) -> None:
        self._token = envelope.token
        self._stored = envelope.request.store is True
        self._shows_encrypted = shows_encrypted(envelope.request)
        self._wants_summaries = wants_summaries(envelope.request)
        self._resource = Resource(envelope)
        self._assembly = Assembly()
        self._out: list[bytes] = []
        self.sequence = 0
        self._output: list[JsonObject] = []
        self._current: _OpenMessage | _OpenReasoning | None = None
        self._calls: dict[Entry, _OpenCall] = {}
        self._gateway_calls: dict[Entry, _OpenGatewayCall] = {}
        self._text: list[str] | None = None  # the pieces of the open text, so that a delta needs no search
        self._text_prefix = b""
        self._is_started = False
        self._is_over = False

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        out = self._out = []
        add = self._assembly.add
        for event in events:
            if self._is_over:
                break
            if type(event) is TextDelta and self._text is not None and event.text and not event.choice and not event.logprobs:
                self._text.append(event.text)
                self._delta(self._text_prefix, event.text)
                continue
            if self._wants_summaries and type(event) is ReasoningDelta and event.kind == "text":
                event = ReasoningDelta(event.text, "summary", RAW_PARTS + event.part, event.choice)  # noqa: PLW2901 -- the same delta
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

    def keep_alive(self) -> bytes:
        """Return a comment, and the state of the response once more: some clients (Codex) count only events.

        The event is one that every client knows. OpenAI's servers send `keepalive`, at which several clients stumble.
        """
        if self._is_over:
            return KEEP_ALIVE
        started = self.start()
        if not started:
            self._frame("response.in_progress", {"response": self._resource.started()})
        return KEEP_ALIVE + (started or b"".join(self._out))

    def start(self) -> bytes:
        """Return the first frames, unless they were written before."""
        out = self._out = []
        if not self._is_started:
            self._start()
        return b"".join(out)

    def settle(self) -> bytes:
        """End the message or reasoning that is open, as the next item would."""
        out = self._out = []
        self._text = None
        self._close_current("completed")
        return b"".join(out)

    def append_output(self, item: JsonObject) -> None:
        """Take an item into the output whose frames were written before."""
        self._output.append(item)

    def _encode_event(self, event: StreamEvent, entry: Entry | None) -> None:
        if not self._is_started:
            self._start()
        match event, entry:
            case ReasoningDelta(), ReasoningEntry():
                self._reasoning_delta(event, entry)
            case TextDelta(), MessageEntry():
                self._text_delta(event, entry)
            case RefusalDelta(), MessageEntry():
                self._delta(self._open_message(entry).prefix, event.text)
            case AnnotationAdded(), MessageEntry():
                address = self._open_message(entry).part_address()
                number = len(entry.parts[-1].annotations) - 1
                members: JsonObject = {**address, "annotation_index": number, "annotation": event.annotation}
                self._frame("response.output_text.annotation.added", members)
            case ReasoningStarted(), ReasoningEntry():
                self._open_reasoning(entry)
            case ReasoningFinished(), ReasoningEntry():
                self._open_reasoning(entry)
                self._close_current("completed")
            case CallStarted(), CallEntry():
                self._start_call(entry)
            case CallFinished(), CallEntry():
                self._finish_call(entry)
            case ItemReceived(), OpaqueEntry():
                self._relay(entry)
            case ApprovalRequested(), ApprovalRequestEntry():
                self._relay(entry)
            case GatewayCallStarted(), GatewayCallEntry():
                self._start_gateway_call(entry)
            case GatewayCallFinished(), GatewayCallEntry():
                self._finish_gateway_call(entry)
            case AnswerFinished(), _:
                is_truncated = event.finish in ("length", "content_filter") or bool(self._calls)
                self._end("incomplete" if is_truncated else "completed")
            case AnswerFailed(), _:
                self._fail(event.error)

    # Frames

    def _frame(self, kind: str, members: JsonObject) -> None:
        self._out.append(self.number({"type": kind, **members}))

    def number(self, members: JsonObject) -> bytes:
        """Return a frame with the next sequence number."""
        body = encode_repaired({**members, "sequence_number": self.sequence})
        self.sequence += 1
        return b"event: %b\ndata: %b\n\n" % (str(members["type"]).encode(), body)

    def _prefix(self, kind: str, members: JsonObject) -> bytes:
        """Return the beginning of a delta's frame, up to the delta."""
        return b"event: %b\ndata: %b" % (kind.encode(), encode_repaired({"type": kind, **members})[:-1] + b',"delta":')

    def _delta(self, prefix: bytes, text: str) -> None:
        try:
            body = encode(text)
        except UnicodeEncodeError:
            body = encode_repaired(text)
        self._out.append(b'%b%b,"sequence_number":%d}\n\n' % (prefix, body, self.sequence))
        self.sequence += 1

    def _start(self) -> None:
        self._is_started = True
        resource = self._resource.started()
        self._frame("response.created", {"response": resource})
        self._frame("response.in_progress", {"response": resource})

    def _fail(self, error: ToolrelayError) -> None:
        """Send `error` and `response.failed`: some clients ignore the one, others know nothing else."""
        self._close_all("incomplete")
        if error.code == "cancelled":
            self._end("failed", "cancelled")
            return
        self._frame("error", {"code": error.code, "message": error.message, "param": error.param})
        self._end("failed")

    def _end(self, event: ResponseStatus, status: ResponseStatus | None = None) -> None:
        """Send the last frame. `status` is the resource's, if there is no event of that name."""
        self._close_all("completed" if event == "completed" else "incomplete")
        self._frame(f"response.{event}", {"response": self._resource.finished(self._assembly, self._output, status or event)})
        self._out.append(DONE)
        self._is_over = True

    # Items

    def _announce(self, item: OutputItem) -> tuple[int, str]:
        """Send an item that begins, and close the message or reasoning before it. Return its index and id."""
        self._close_current("completed")
        index = len(self._output)
        identifier = output_id(item, self._token, index, stored=self._stored)
        members = item_members(item, identifier, "in_progress")
        self._output.append(members)
        self._frame("response.output_item.added", {"output_index": index, "item": members})
        return index, identifier

    def _close(self, opened: _OpenMessage | _OpenReasoning | _OpenCall | _OpenGatewayCall, status: ItemStatus) -> None:
        item = item_members(opened.entry.item(), opened.id, status, encrypted=self._shows_encrypted)
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
            self._close_reasoning_part(current)
        self._close(current, status)

    def _close_all(self, status: ItemStatus) -> None:
        self._close_current(status)
        for call in self._calls.values():
            self._close(call, "incomplete")
        for gateway_call in self._gateway_calls.values():
            self._close(gateway_call, "incomplete")
        self._calls.clear()
        self._gateway_calls.clear()

    def _relay(self, entry: OpaqueEntry | ApprovalRequestEntry) -> None:
        """Announce an item that has no deltas, and end it."""
        item = entry.item()
        if is_output(item):
            index, own_id = self._announce(item)
            self._frame("response.output_item.done", {"output_index": index, "item": item_members(item, own_id, "completed")})

    # Messages

    def _open_message(self, entry: MessageEntry) -> _OpenMessage:
        """Return the message, open, and in it the entry's last part."""
        current = self._current
        if not isinstance(current, _OpenMessage) or current.entry is not entry:
            self._current = current = _OpenMessage(*self._announce(MessageEntry(entry.phase).item()), entry=entry)
        if current.part is not entry.parts[-1]:
            self._close_part(current)
            self._open_part(current, entry.parts[-1])
        return current

    def _open_part(self, message: _OpenMessage, part: PartEntry) -> None:
        message.part = part
        message.content_index += 1
        address = message.part_address()
        empty = part_members(PartEntry(refusal=part.refusal).part())
        self._frame("response.content_part.added", {**address, "part": empty})
        if part.refusal:
            message.prefix = self._prefix("response.refusal.delta", address)
        else:
            message.prefix = self._prefix("response.output_text.delta", {**address, "logprobs": []})

    def _close_part(self, message: _OpenMessage) -> None:
        if message.part is None:
            return
        address = message.part_address()
        part = part_members(message.part.part())
        if message.part.refusal:
            self._frame("response.refusal.done", {**address, "refusal": part["refusal"]})
        else:
            self._frame("response.output_text.done", {**address, "text": part["text"], "logprobs": part["logprobs"]})
        self._frame("response.content_part.done", {**address, "part": part})
        message.part = None

    def _text_delta(self, event: TextDelta, entry: MessageEntry) -> None:
        if not event.text and not event.logprobs:
            return
        message = self._open_message(entry)
        self._text, self._text_prefix = entry.parts[-1].pieces, message.prefix
        if event.logprobs:
            members: JsonObject = {**message.part_address(), "logprobs": event.logprobs, "delta": event.text}
            self._frame("response.output_text.delta", members)
        else:
            self._delta(message.prefix, event.text)

    # Reasoning

    def _open_reasoning(self, entry: ReasoningEntry) -> _OpenReasoning:
        current = self._current
        if not isinstance(current, _OpenReasoning) or current.entry is not entry:
            self._current = current = _OpenReasoning(*self._announce(ReasoningEntry(entry.id).item()), entry=entry)
        return current

    def _reasoning_delta(self, event: ReasoningDelta, entry: ReasoningEntry) -> None:
        """Send a delta. Parts are opened in order; what comes late, for an earlier part, is only in the finished item."""
        reasoning, kind = self._open_reasoning(entry), event.kind
        if reasoning.kind != kind or reasoning.part != event.part:
            count = reasoning.counts.get(kind, 0)
            if len(reasoning.parts(kind)) <= count:
                return
            self._close_reasoning_part(reasoning)
            reasoning.kind, reasoning.part, reasoning.counts[kind] = kind, event.part, count + 1
            address, (_, part_frame, text_frame) = reasoning.part_address(kind), _REASONING_FRAMES[kind]
            self._frame(f"{part_frame}.added", {**address, "part": reasoning_part(kind, "")})
            reasoning.prefix = self._prefix(f"{text_frame}.delta", address)
        self._delta(reasoning.prefix, event.text)

    def _close_reasoning_part(self, reasoning: _OpenReasoning) -> None:
        kind = reasoning.kind
        if kind is None:
            return
        address, (_, part_frame, text_frame) = reasoning.part_address(kind), _REASONING_FRAMES[kind]
        text = "".join(reasoning.parts(kind)[reasoning.part])
        self._frame(f"{text_frame}.done", {**address, "text": text})
        self._frame(f"{part_frame}.done", {**address, "part": reasoning_part(kind, text)})
        reasoning.kind = None

    # Calls

    def _start_call(self, entry: CallEntry) -> None:
        call = self._calls[entry] = _OpenCall(*self._announce(entry.item()), entry=entry)
        is_function = entry.started.kind == "function"
        kind = "response.function_call_arguments.delta" if is_function else "response.custom_tool_call_input.delta"
        call.prefix = self._prefix(kind, call.address())

    def _finish_call(self, entry: CallEntry) -> None:
        call = self._calls.pop(entry, None)
        if call is None:
            return
        started = entry.started
        if started.kind == "function":
            members: JsonObject = {**call.address(), "name": started.name, "arguments": entry.arguments}
            self._frame("response.function_call_arguments.done", members)
        else:
            self._frame("response.custom_tool_call_input.done", {**call.address(), "input": entry.arguments})
        self._close(call, "completed")

    # Gateway calls: items of type mcp_call, with their arguments as one delta

    def _start_gateway_call(self, entry: GatewayCallEntry) -> None:
        call = _OpenGatewayCall(*self._announce(entry.item()), entry=entry)
        self._gateway_calls[entry] = call
        arguments = entry.started.arguments
        self._frame("response.mcp_call.in_progress", call.address())
        self._delta(self._prefix("response.mcp_call_arguments.delta", call.address()), arguments)
        self._frame("response.mcp_call_arguments.done", {**call.address(), "arguments": arguments})

    def _finish_gateway_call(self, entry: GatewayCallEntry) -> None:
        call = self._gateway_calls.pop(entry, None)
        if call is None:
            return
        failed = entry.finished is not None and entry.finished.failed
        self._frame("response.mcp_call.failed" if failed else "response.mcp_call.completed", call.address())
        self._close(call, "completed")
