"""Responses, a provider's answer: frames, or one resource, into stream events."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolrelay.core.events import ArgumentsDelta, StreamEvent, TextDelta
from toolrelay.core.json import JsonObject
from toolrelay.errors import BackendError
from toolrelay.wires.decoder import FrameDecoder, provider_error
from toolrelay.wires.errors import decode_error
from toolrelay.wires.json import arguments_text, decode, decode_repaired, encode_repaired, repair_surrogates
from toolrelay.wires.responses.answer_tracker import AnswerTracker
from toolrelay.wires.responses.resource import FAILURE_CODES
from toolrelay.wires.responses.slots import CallSlot, MessageSlot, PartBuffer, ReasoningSlot, TextBuffer


class _DeltaFrame(Struct, gc=False):
    """The members of a delta that are read. Nearly every frame is a delta."""

    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    logprobs: list[Any] | None = None


class _AnyFrame(_DeltaFrame, gc=False):
    """The members of other frames that are read."""

    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    name: Any = None
    annotation: Any = None
    part: Any = None
    item: Any = None
    response: Any = None
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


_decode_delta = msgspec.json.Decoder(_DeltaFrame).decode
_decode_frame = msgspec.json.Decoder(_AnyFrame).decode
_TYPES = {"type": str, "output_index": int, "item_id": str, "content_index": int, "summary_index": int, "logprobs": list}
_TRUNCATED = "closed the stream before its end"
_CLIENT_ERRORS = FAILURE_CODES - {"server_error", "vector_store_timeout"} | {"context_length_exceeded"}
_ARGUMENT_KINDS: dict[str, Literal["function", "custom"]] = {
    "response.function_call_arguments.delta": "function",
    "response.custom_tool_call_input.delta": "custom",
}


class _LastDelta(Struct):
    """The buffer of the last delta and its address, so that a delta with the same address needs no search."""

    type: str
    item_id: str | None
    output_index: int | None
    content_index: int | None
    buffer: TextBuffer
    slot: MessageSlot | CallSlot
    call_number: int | None = None


class ResponsesDecoder(FrameDecoder):
    def __init__(self) -> None:
        super().__init__()
        self._tracker = AnswerTracker()
        self._last: _LastDelta | None = None

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        self._tracker.out = out
        try:
            delta = _decode_delta(frame)
            if delta.delta is not None:
                if not self._continue_last(delta, out):
                    self._take_delta(delta)
                return
            other = _decode_frame(frame)
        except (ValueError, RecursionError):
            self._read_tolerantly(frame.strip())
        else:
            self._take(other)

    def _close(self, out: list[StreamEvent]) -> None:  # noqa: ARG002 -- the base passes it
        raise provider_error(_TRUNCATED, "upstream_cut")

    def _read_whole(self, body: bytes, out: list[StreamEvent]) -> None:
        self._tracker.out = out
        try:
            value = decode_repaired(body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise BackendError("The provider's answer is not a JSON object.", code="upstream_invalid")
        status = value.get("status")
        if status in ("failed", "cancelled") or (value.get("error") is not None and not value.get("output")):
            raise _failure(value.get("error"))
        if status in ("queued", "in_progress") or not isinstance(value.get("output"), list):
            raise BackendError("The provider's answer is not a finished response.", code="upstream_invalid")
        self._tracker.end(value, "incomplete" if status == "incomplete" else "completed")

    def _continue_last(self, frame: _DeltaFrame, out: list[StreamEvent]) -> bool:
        """Emit a delta of what the last delta belonged to, as nearly every one. Return whether it was one."""
        last, delta = self._last, frame.delta
        if (
            last is None
            or frame.item_id != last.item_id
            or frame.output_index != last.output_index
            or frame.content_index != last.content_index
            or frame.type != last.type
            or delta.__class__ is not str
            or not delta
            or last.buffer.half
            or frame.logprobs
        ):
            return False
        if last.call_number is not None:
            last.buffer.pieces.append(delta)
            out.append(ArgumentsDelta(last.call_number, delta))
        elif self._tracker.current is last.slot:
            last.buffer.pieces.append(delta)
            out.append(TextDelta(delta))
        else:
            return False
        return True

    def _read_tolerantly(self, frame: bytes) -> None:
        """Read what the typed decoders refuse: lone surrogates, members of the wrong type, the end mark, what is no frame."""
        if not frame:
            return
        if frame.startswith(b"[DONE]"):
            raise provider_error(_TRUNCATED, "upstream_cut")
        try:
            value = decode(frame)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise provider_error("sent a frame that is not JSON")
        members = {
            key: member if key == "delta" else repair_surrogates(member)  # a delta's surrogates may be joined with the next one
            for key, member in value.items()
            if key in _AnyFrame.__struct_fields__ and (key not in _TYPES or isinstance(member, _TYPES[key]))
        }
        known = _AnyFrame(**members)
        if known.delta is not None:
            self._take_delta(known)
        else:
            self._take(known)

    def _part(self, frame: _DeltaFrame, *, is_refusal: bool = False) -> tuple[MessageSlot, PartBuffer]:
        slot = self._tracker.message(frame.output_index, frame.item_id)
        return slot, slot.part(frame.content_index or 0, is_refusal=is_refusal)

    def _reasoning(self, frame: _DeltaFrame) -> ReasoningSlot:
        return self._tracker.reasoning(frame.output_index, frame.item_id)

    def _take_delta(self, frame: _DeltaFrame) -> None:
        delta, tracker = frame.delta, self._tracker
        if not isinstance(delta, str):
            delta = arguments_text(delta) if frame.type in _ARGUMENT_KINDS else ""
        address = frame.type, frame.item_id, frame.output_index, frame.content_index
        match frame.type:
            case "response.output_text.delta":
                slot, part = self._part(frame)
                tracker.add_text(slot, part, part.add(delta), frame.logprobs)
                self._last = None if part.is_refusal else _LastDelta(*address, part, slot)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                call = tracker.call(frame.output_index, frame.item_id, _ARGUMENT_KINDS[frame.type])
                tracker.emit_arguments(call, call.buffer.add(delta))
                is_open = call.number is not None and not call.is_finished
                self._last = _LastDelta(*address, call.buffer, call, call.number) if is_open else None
            case "response.reasoning_text.delta":
                tracker.add_reasoning(self._reasoning(frame), "text", frame.content_index or 0, delta)
            case "response.reasoning_summary_text.delta":
                tracker.add_reasoning(self._reasoning(frame), "summary", frame.summary_index or 0, delta)
            case "response.refusal.delta":
                slot, part = self._part(frame, is_refusal=True)
                tracker.add_text(slot, part, part.add(delta))

    def _take(self, frame: _AnyFrame) -> None:
        tracker, index, item_id = self._tracker, frame.output_index, frame.item_id
        self._last = None
        match frame.type:
            case "response.created" | "response.in_progress" | "response.queued":
                tracker.start(_object(frame.response))
            case "response.output_item.added" if isinstance(frame.item, dict):
                tracker.add_item(index, frame.item)
            case "response.output_item.done" if isinstance(frame.item, dict):
                tracker.finish_item(index, frame.item)
            case "response.output_text.done":
                tracker.complete_text(*self._part(frame), frame.text, frame.logprobs)
            case "response.content_part.done":
                self._finish_part(frame, _object(frame.part))
            case "response.refusal.done":
                tracker.complete_text(*self._part(frame, is_refusal=True), frame.refusal)
            case "response.output_text.annotation.added":
                tracker.annotate(*self._part(frame), frame.annotation)
            case "response.function_call_arguments.done":
                tracker.complete_call(tracker.call(index, item_id, "function"), frame.arguments, frame.name)
            case "response.custom_tool_call_input.done":
                tracker.complete_call(tracker.call(index, item_id, "custom"), frame.input, frame.name)
            case "response.reasoning_text.done":
                tracker.complete_reasoning(self._reasoning(frame), "text", frame.content_index or 0, frame.text)
            case "response.reasoning_summary_text.done" | "response.reasoning_summary_part.done":
                text = frame.text if frame.part is None else _object(frame.part).get("text")
                tracker.complete_reasoning(self._reasoning(frame), "summary", frame.summary_index or 0, text)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._end(_object(frame.response), frame.type.removeprefix("response."))
            case "error":
                members = {"code": frame.code, "message": frame.message, "param": frame.param}
                raise _failure(members if frame.error is None else frame.error)
            case "" if frame.error is not None:
                raise _failure(frame.error)

    def _finish_part(self, frame: _AnyFrame, part: JsonObject) -> None:
        if part.get("type") == "reasoning_text":
            self._tracker.complete_reasoning(self._reasoning(frame), "text", frame.content_index or 0, part.get("text"))
        elif part.get("type") in ("output_text", "refusal"):
            slot = self._tracker.message(frame.output_index, frame.item_id)
            self._tracker.finish_part(slot, frame.content_index or 0, part)

    def _end(self, response: JsonObject, outcome: str) -> None:
        outcomes = outcome, response.get("status")
        if "failed" in outcomes or "cancelled" in outcomes:
            raise _failure(response.get("error"))
        self._tracker.end(response, "incomplete" if "incomplete" in outcomes else "completed")
        self._is_over = True


def decode_answer(body: bytes) -> list[StreamEvent]:
    return ResponsesDecoder().decode_whole(body)


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _failure(value: object) -> BackendError:
    """Decode a failure in the middle of an answer, which has a code but no status."""
    error = value if isinstance(value, dict) else {"message": value}
    code = error.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        status = code
    elif code in ("rate_limit_exceeded", "insufficient_quota"):
        status = 429
    elif (isinstance(code, str) and code in _CLIENT_ERRORS) or error.get("type") == "invalid_request_error":
        status = 400
    else:
        status = 502
    message = error.get("message") or "The provider reported a failure without saying which."
    return decode_error(status, encode_repaired({"error": {**error, "message": message}}))
