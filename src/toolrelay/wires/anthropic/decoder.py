"""Anthropic Messages, a provider's answer: frames, or one object, into stream events."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

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
    StreamEvent,
    TextDelta,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import JsonObject
from toolrelay.core.surrogates import join_surrogates_so_far
from toolrelay.errors import BackendError
from toolrelay.wires.anthropic import frames
from toolrelay.wires.anthropic.answer import FINISHES
from toolrelay.wires.anthropic.content import annotation_of
from toolrelay.wires.anthropic.errors import decode_stream_error
from toolrelay.wires.anthropic.frames import BlockDelta, MessageFrame, UsageTotals, WholeBlock
from toolrelay.wires.anthropic.thinking import NAME, seal_block
from toolrelay.wires.decoder import FrameDecoder, provider_error
from toolrelay.wires.json import arguments_text, decode, is_deep, is_object, may_be_deep

_NOT_A_MESSAGE = "answered with something that is not a message"
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Block(Struct, eq=False):
    """A block that is being received. `half` is a high surrogate that waits for the low one.

    `call` is the call's number in the answer. `raw` is a block that only this API has, `first` the input that a call began with.
    """

    kind: str
    call: int = -1
    pieces: list[str] = []
    half: str = ""
    signature: str = ""
    raw: JsonObject = {}
    first: str = ""

    def join(self, text: str) -> str:
        text, self.half = join_surrogates_so_far(self.half + text) if text else ("", self.half)
        return text

    def flush(self) -> str:
        text = "\ufffd" if self.half else ""
        self.half = ""
        return text

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class AnthropicDecoder(FrameDecoder):
    """Blocks are known by their index while they are open. A call is finished when it is known that it was not truncated."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, _Block] = {}
        self._limit = IndexLimit("content blocks")
        self._call_count = 0
        self._incomplete: list[_Block] = []  # calls that ended without complete arguments
        self._last_kind = ""
        self._characters = 0  # of the text so far
        self._usage = UsageTotals()
        self._stop: JsonObject = {}
        self._is_started = False

    # Frames

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        decoded: MessageFrame | None
        try:
            decoded = frames.decode_frame(frame)
        except (ValueError, RecursionError):
            decoded = frames.decode_tolerantly(frame)
            if decoded is None:
                raise provider_error("sent a frame that is not an event of a message") from None
        delta = decoded.delta
        if delta is not None and decoded.type == "content_block_delta":
            block = self._open.get(decoded.index)  # type: ignore[arg-type]  # None is simply not found
            if block is not None and not block.half:
                if delta.text and block.kind == "text" and delta.text.isascii():  # nearly every one
                    self._characters += len(delta.text)
                    out.append(TextDelta(delta.text))
                    return
                if delta.partial_json and block.kind == "tool_use" and delta.partial_json.isascii():
                    block.pieces.append(delta.partial_json)
                    out.append(ArgumentsDelta(block.call, delta.partial_json))
                    return
        if may_be_deep(frame) and is_deep(frame, msgspec.to_builtins(decoded)):
            raise provider_error("sent something that is nested too deeply")
        self._take(decoded, out)

    def _read_last(self, frame: bytes, out: list[StreamEvent]) -> None:
        try:
            decode(frame)
        except ValueError:
            return
        self._read(frame, out)

    def _take(self, frame: MessageFrame, out: list[StreamEvent]) -> None:
        match frame.type:
            case "message_start":
                message = frame.message or frames.MessageMembers()
                self._start(message.model, out)
                self._usage.add(message.usage)
            case "content_block_start":
                self._finish_incomplete(out)
                self._start_block(self._index(frame), frame.content_block or {}, out)
            case "content_block_delta" if frame.delta is not None:
                self._take_delta(frame, frame.delta, out)
            case "content_block_stop":
                block = self._open.pop(self._index(frame), None)
                if block is not None:
                    self._stop_block(block, out)
            case "message_delta":
                self._usage.add(frame.usage)
                delta = frame.delta or BlockDelta()
                self._note_stop(delta.stop_reason, delta.stop_sequence, delta.stop_details)
            case "message_stop":
                self._finish(out)
            case "error":
                raise decode_stream_error(frame.error)
            case _:  # ping, and what later versions of the API add
                pass

    def _index(self, frame: MessageFrame) -> int:
        return 0 if frame.index is None else frame.index

    def _start(self, model: str | None, out: list[StreamEvent]) -> None:
        if not self._is_started:
            self._is_started = True
            out.append(AnswerStarted(model=model))

    def _note_stop(self, reason: str | None, sequence: str | None, details: JsonObject | None) -> None:
        said = {"stop_reason": reason, "stop_sequence": sequence, "stop_details": details}
        self._stop |= {key: value for key, value in said.items() if value is not None}

    # Blocks

    def _start_block(self, index: int, raw: JsonObject, out: list[StreamEvent]) -> None:
        self._limit.add(index)
        self._start(None, out)
        before = self._open.pop(index, None)
        if before is not None:  # its end was left out
            self._stop_block(before, out)
        kind, data = raw.get("type"), raw.get("data")
        block = self._open[index] = _Block(kind if isinstance(kind, str) else "")
        is_next_text = block.kind == self._last_kind == "text"
        self._last_kind = block.kind
        match block.kind:
            case "text":
                if is_next_text:
                    out.append(MessageStarted())
                self._add_text(block, raw.get("text"), out)
            case "thinking":
                out.append(ReasoningStarted())
                self._add_thinking(block, raw.get("thinking"), out)
                block.signature = _string(raw.get("signature"))
            case "redacted_thinking":
                sealed = seal_block("redacted_thinking", _string(data))
                out.extend((ReasoningStarted(), ReasoningFinished(encrypted=sealed)))
            case "tool_use":
                given = raw.get("input")
                self._start_call(block, raw, arguments_text(given) if given else "", out)
            case _:
                block.raw = raw

    def _start_call(self, block: _Block, raw: JsonObject, given: str, out: list[StreamEvent]) -> None:
        name = raw.get("name")
        if not isinstance(name, str) or not name:
            raise provider_error("sent a call without a name")
        block.call = self._call_count
        block.first = given
        self._call_count += 1
        extra: JsonObject = {key: raw[key] for key in ("caller", "toolset_name") if raw.get(key) is not None}
        out.append(CallStarted(block.call, name, extra=extra or None))

    def _take_delta(self, frame: MessageFrame, delta: BlockDelta, out: list[StreamEvent]) -> None:
        index = self._index(frame)
        block = self._open.get(index)
        if block is None:
            kind = "text" if delta.text is not None else "thinking" if delta.thinking is not None else None
            if kind is None:
                return
            self._start_block(index, {"type": kind}, out)  # its beginning was left out
            block = self._open[index]
        match block.kind:
            case "text":
                if delta.citation is not None:
                    out.append(AnnotationAdded(annotation_of(delta.citation, self._characters)))
                self._add_text(block, delta.text, out)
            case "thinking":
                self._add_thinking(block, delta.thinking, out)
                block.signature += delta.signature or ""
            case "tool_use":
                self._add_arguments(block, delta.partial_json or "", out)
            case _:
                block.pieces.append(delta.partial_json or "")

    def _add_text(self, block: _Block, text: object, out: list[StreamEvent]) -> None:
        joined = block.join(_string(text))
        if joined:
            self._characters += len(joined)
            out.append(TextDelta(joined))

    def _add_thinking(self, block: _Block, text: object, out: list[StreamEvent]) -> None:
        joined = block.join(_string(text))
        if joined:
            out.append(ReasoningDelta(joined))

    def _add_arguments(self, block: _Block, text: str, out: list[StreamEvent]) -> None:
        joined = block.join(text)
        if joined:
            block.pieces.append(joined)
            out.append(ArgumentsDelta(block.call, joined))

    def _stop_block(self, block: _Block, out: list[StreamEvent]) -> None:
        rest = block.flush()
        match block.kind:
            case "text":
                self._add_text(block, rest, out)
            case "thinking":
                self._add_thinking(block, rest, out)
                sealed = seal_block("thinking", block.signature) if block.signature else None
                out.append(ReasoningFinished(encrypted=sealed))
            case "tool_use":
                self._add_arguments(block, rest if block.pieces else block.first, out)
                if is_object(block.arguments):
                    out.append(CallFinished(block.call))
                else:
                    self._incomplete.append(block)
            case "redacted_thinking":
                pass
            case _:
                out.append(ItemReceived(wire=NAME, raw=_opaque(block)))

    def _finish_incomplete(self, out: list[StreamEvent]) -> None:
        """Finish calls without complete arguments, which turned out not to be truncated."""
        for block in self._incomplete:
            if not block.arguments:
                out.append(ArgumentsDelta(block.call, "{}"))
            out.append(CallFinished(block.call))
        self._incomplete.clear()

    # The end

    def _close(self, out: list[StreamEvent]) -> None:
        if "stop_reason" not in self._stop:
            raise provider_error("closed the stream before the answer's end", "upstream_cut")
        self._finish(out)

    def _finish(self, out: list[StreamEvent]) -> None:
        self._start(None, out)
        for index in sorted(self._open):
            self._stop_block(self._open[index], out)
        self._open.clear()
        said = FINISHES.get(str(self._stop.get("stop_reason")), "stop")
        finish: Finish = said if said in ("length", "content_filter") else "calls" if self._call_count else "stop"
        if finish == "calls":  # otherwise they were truncated
            self._finish_incomplete(out)
        self._is_over = True
        out.append(AnswerFinished(finish=finish, usage=self._usage.total(), extra=self._extra()))

    def _extra(self) -> JsonObject | None:
        """Return what only this API says about the end."""
        extra = dict(self._stop)
        if extra.get("stop_reason") in ("end_turn", "tool_use", "max_tokens", "refusal"):
            del extra["stop_reason"]
        usage = self._usage.rest()
        if usage:
            extra["usage"] = usage
        return extra or None

    # Whole answers

    def _read_whole(self, body: bytes, out: list[StreamEvent]) -> None:
        try:
            if may_be_deep(body):
                decode(body)  # raises if it is nested too deeply
            try:
                message = frames.decode_message(body)
            except UnicodeDecodeError:
                raise
            except ValueError:
                body = frames.repair(body)
                message = frames.decode_message(body)
            blocks = [(frames.decode_block(raw), _members(raw)) for raw in message.content]
        except (ValueError, RecursionError):
            raise _whole_error(body) from None
        self._start(message.model, out)
        self._usage.add(message.usage)
        for index, (block, members) in enumerate(blocks):
            self._take_whole(index, block, members, out)
        self._note_stop(message.stop_reason, message.stop_sequence, message.stop_details)
        self._finish(out)

    def _take_whole(self, index: int, block: WholeBlock, members: JsonObject, out: list[StreamEvent]) -> None:
        self._start_block(index, members, out)
        opened = self._open.pop(index)
        if block.type == "tool_use":
            given = bytes(block.input).decode()
            opened.first = "" if given == "null" else given
        out.extend(AnnotationAdded(annotation_of(citation, self._characters)) for citation in block.citations or ())
        self._stop_block(opened, out)


def decode_answer(body: bytes) -> list[StreamEvent]:
    return AnthropicDecoder().decode_whole(body)


def _members(raw: msgspec.Raw) -> JsonObject:
    """Return the members of a block. A call's input stays as the model wrote it: its numbers may be too large for others."""
    members = _decode_members(raw)
    if bytes(members.get("type", b"")) == b'"tool_use"':
        members.pop("input", None)
    return {name: decode(bytes(value)) for name, value in members.items()}


def _whole_error(body: bytes) -> BackendError:
    """Return the error that a body with status 200 is or says."""
    try:
        value = decode(body)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("error"):
        return decode_stream_error(value["error"])
    return provider_error(_NOT_A_MESSAGE)


def _opaque(block: _Block) -> JsonObject:
    """Return a block that only this API has, with the input that came in deltas."""
    if not block.arguments:
        return block.raw
    try:
        given: Any = decode(block.arguments)
    except ValueError:
        given = {}
    return {**block.raw, "input": given}


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
