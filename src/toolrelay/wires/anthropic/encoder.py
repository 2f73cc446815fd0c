"""Anthropic Messages, an answer to a client as a stream: stream events into frames.

    message_start (content_block_start content_block_delta* content_block_stop)* (message_delta message_stop | error)

Text and thinking are open until the next block begins. A call is open until it is finished, or until another block begins after
its arguments are complete: most clients expect one block after the other. Calls whose deltas are mixed are open side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    GatewayCallStarted,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Reasoning
from toolrelay.wires.anthropic.answer import call_head, encode_usage, message_head, stop_members
from toolrelay.wires.anthropic.content import citation_of
from toolrelay.wires.anthropic.errors import encode_error
from toolrelay.wires.anthropic.thinking import NAME, thinking_block
from toolrelay.wires.base import KEEP_ALIVE, Envelope
from toolrelay.wires.json import encode, encode_repaired, is_object

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_PARAGRAPH = "\n\n"
_TAIL = b"}}\n\n"


class _ToolUseBlock(Struct, eq=False):
    """`prefix` is what the frames of its deltas begin with."""

    block: int
    prefix: bytes
    pieces: list[str] = []


class AnthropicEncoder:
    """See wires.base.Encoder."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._out: list[bytes] = []
        self._blocks = 0
        self._current = 0  # the index of the open text or thinking
        self._text: bytes | None = None  # what the frames of the open text begin with
        self._thinking: bytes | None = None
        self._thinking_part = ("", 0)
        self._reasoning_id: str | None = None
        self._calls: dict[int, _ToolUseBlock] = {}
        self._is_started = False
        self._is_over = False

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        out = self._out = []
        for event in events:
            if self._is_over:
                break
            if event.__class__ is TextDelta:  # nearly every event
                if self._text is not None and event.text and not event.choice:
                    out.append(self._text + encode(event.text) + _TAIL)
                    continue
            elif event.__class__ is ArgumentsDelta:  # nearly every other
                call = self._calls.get(event.index)
                if call is not None and event.text and not event.choice:
                    call.pieces.append(event.text)
                    out.append(call.prefix + encode(event.text) + _TAIL)
                continue
            if not getattr(event, "choice", 0):
                self._encode_event(event)
        return b"".join(out)

    def keep_alive(self) -> bytes:
        """Return a comment, and the API's own event for this, which some clients count."""
        if self._is_over:
            return KEEP_ALIVE
        out = self._out = [KEEP_ALIVE]
        self._start()
        return b"".join(out) + PING

    def _encode_event(self, event: StreamEvent) -> None:
        match event:
            case TextDelta(text=text) | RefusalDelta(text=text):
                if text:
                    self._open_text()
                    self._out.append((self._text or b"") + encode(text) + _TAIL)
            case ReasoningDelta():
                self._reasoning_delta(event)
            case ReasoningStarted():
                self._close_current()
                self._reasoning_id = event.id
            case ReasoningFinished():
                self._finish_reasoning(event)
            case CallStarted():
                self._start_call(event)
            case CallFinished():
                self._close_call(event.index)
            case AnnotationAdded():
                citation = citation_of(event.annotation)
                if citation is not None:
                    index = self._open_text()
                    delta: JsonObject = {"type": "citations_delta", "citation": citation}
                    self._frame("content_block_delta", {"index": index, "delta": delta})
            case MessageStarted() | GatewayCallStarted():
                self._close_current()
            case ItemReceived(wire=wire) if wire == NAME:
                self._relay(event.raw)
            case AnswerStarted():
                self._start()
            case AnswerFinished():
                self._finish(event)
            case AnswerFailed():
                self._out.append(b"event: error\ndata: %b\n\n" % encode_error(event.error))
                self._is_over = True
            case _:  # gateway calls and other wires' items: this API has no blocks for them
                pass

    # Frames

    def _frame(self, kind: str, members: JsonObject) -> None:
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_repaired({"type": kind, **members})))

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        nothing: JsonObject = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": encode_usage(None, None)}
        self._frame("message_start", {"message": {**message_head(self._envelope), **nothing}})

    def _finish(self, event: AnswerFinished) -> None:
        self._start()
        self._close_current()
        for index in [*self._calls]:
            self._close_call(index)
        usage = encode_usage(event.usage, event.extra)
        self._frame("message_delta", {"delta": stop_members(event.finish, event.extra), "usage": usage})
        self._frame("message_stop", {})
        self._is_over = True

    # Blocks

    def _open_block(self, block: JsonObject) -> int:
        """Begin a block after the one before it, and return its index."""
        self._start()
        self._close_current()
        for index in [index for index, call in self._calls.items() if is_object("".join(call.pieces))]:
            self._close_call(index)
        index = self._blocks
        self._blocks += 1
        self._frame("content_block_start", {"index": index, "content_block": block})
        return index

    def _close_current(self) -> None:
        """End the text or the thinking that is open."""
        if self._text is not None or self._thinking is not None:
            self._frame("content_block_stop", {"index": self._current})
            self._text = self._thinking = None

    def _open_text(self) -> int:
        if self._text is None:
            self._current = self._open_block({"type": "text", "text": ""})
            self._text = _prefix(self._current, "text_delta", "text")
        return self._current

    def _start_call(self, event: CallStarted) -> None:
        index = self._open_block({**call_head(event.id, event.name, event.extra), "input": {}})
        self._calls[event.index] = _ToolUseBlock(index, _prefix(index, "input_json_delta", "partial_json"))

    def _close_call(self, index: int) -> None:
        call = self._calls.pop(index, None)
        if call is not None:
            self._frame("content_block_stop", {"index": call.block})

    def _relay(self, block: JsonObject) -> None:
        """Send a block that only this API has. The input of a provider's own tool is a delta."""
        given = block.get("input")
        index = self._open_block({**block, "input": {}} if given else block)
        if given:
            delta: JsonObject = {"type": "input_json_delta", "partial_json": encode_repaired(given).decode()}
            self._frame("content_block_delta", {"index": index, "delta": delta})
        self._frame("content_block_stop", {"index": index})

    # Thinking

    def _open_thinking(self) -> bytes:
        if self._thinking is None:
            self._current = self._open_block({"type": "thinking", "thinking": "", "signature": ""})
            self._thinking = _prefix(self._current, "thinking_delta", "thinking")
            self._thinking_part = ("", 0)
        return self._thinking

    def _reasoning_delta(self, event: ReasoningDelta) -> None:
        """Send reasoning, each part a paragraph."""
        if not event.text:
            return
        prefix, part = self._open_thinking(), (event.kind, event.part)
        is_new_paragraph = self._thinking_part[0] and self._thinking_part != part
        self._thinking_part = part
        self._out.append(prefix + encode(_PARAGRAPH + event.text if is_new_paragraph else event.text) + _TAIL)

    def _finish_reasoning(self, event: ReasoningFinished) -> None:
        block = thinking_block(Reasoning(id=self._reasoning_id, encrypted=event.encrypted))
        self._reasoning_id = None
        if block is not None and block["type"] == "redacted_thinking":
            self._frame("content_block_stop", {"index": self._open_block(block)})
            return
        if block is not None:
            self._open_thinking()
            delta: JsonObject = {"type": "signature_delta", "signature": block["signature"]}
            self._frame("content_block_delta", {"index": self._current, "delta": delta})
        self._close_current()


def _prefix(index: int, kind: str, member: str) -> bytes:
    """Return the beginning of a delta's frame, up to its text."""
    head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
    return head % (index, kind.encode(), member.encode())
