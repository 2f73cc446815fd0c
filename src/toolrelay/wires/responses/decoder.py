"""Responses, a provider's answer: frames, or one resource, into stream events."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolrelay.core.events import AnswerFailed, ArgumentsDelta, StreamEvent, TextDelta
from toolrelay.core.json import JsonObject
from toolrelay.errors import BackendError
from toolrelay.wires.errors import decode_error
from toolrelay.wires.json import decode, mended_value
from toolrelay.wires.responses.record import Record
from toolrelay.wires.responses.resource import FAILURE_CODES
from toolrelay.wires.responses.settings import written
from toolrelay.wires.responses.slots import CallSlot, MessageSlot, Run
from toolrelay.wires.sse import FrameTooLargeError, Splitter


class _Delta(Struct, gc=False):
    """What is needed of a delta, which nearly every frame is."""

    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    logprobs: list[Any] | None = None


class _Frame(_Delta, gc=False):
    """What is needed of any other frame."""

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


_decode_delta = msgspec.json.Decoder(_Delta).decode
_decode_any = msgspec.json.Decoder().decode
_decode_frame = msgspec.json.Decoder(_Frame).decode
_TYPES = {"type": str, "output_index": int, "item_id": str, "content_index": int, "summary_index": int, "logprobs": list}
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_NEITHER = "The provider sent a frame that is not JSON."
_CUT = "The provider closed the stream before its end."


class _Lately:
    """What grew last, and what its frames say of their place: a delta of the same need not be looked up."""

    __slots__ = ("id", "index", "number", "place", "run", "slot", "type")

    def __init__(self, frame: _Delta, run: Run, slot: MessageSlot | CallSlot) -> None:
        self.type = frame.type
        self.id = frame.item_id
        self.place = frame.output_index
        self.index = frame.content_index
        self.run = run
        self.slot = slot
        self.number = slot.number if isinstance(slot, CallSlot) else None


class ResponsesDecoder:
    """See wires.base.Decoder."""

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._record = Record()
        self._over = False
        self._lately: _Lately | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        out = self._record.out = []
        try:
            for frame in self._splitter.feed(data):
                self._read(frame)
        except FrameTooLargeError:
            self._fail(BackendError("The provider sent a frame that is too large to be relayed.", code="upstream_invalid"))
        except BackendError as error:
            self._fail(error)
        return out

    def flush(self) -> list[StreamEvent]:
        out = self._record.out = []
        try:
            for frame in self._splitter.flush():
                self._read(frame)
        except BackendError as error:
            self._fail(error)
        self._fail(BackendError(_CUT, code="upstream_cut"))
        return out

    def _read(self, data: bytes) -> None:
        if self._over:
            return
        try:
            delta = _decode_delta(data)
            if delta.delta is not None:
                if not self._continues(delta):
                    self._grow(delta)
                return
            frame = _decode_frame(data)
        except _UNREADABLE:
            self._read_slowly(data)
        else:
            self._take(frame)

    def _continues(self, frame: _Delta) -> bool:
        """Hands on a delta of what grew last, which nearly every one is."""
        lately, delta = self._lately, frame.delta
        if (
            lately is None
            or frame.item_id != lately.id
            or frame.output_index != lately.place
            or frame.content_index != lately.index
            or frame.type != lately.type
            or delta.__class__ is not str
            or not delta
            or lately.run.half
            or frame.logprobs
        ):
            return False
        if lately.number is not None:
            lately.run.pieces.append(delta)
            self._record.out.append(ArgumentsDelta(lately.number, delta))
        elif self._record.current is lately.slot:
            lately.run.pieces.append(delta)
            self._record.out.append(TextDelta(delta))
        else:
            return False
        return True

    def _read_slowly(self, data: bytes) -> None:
        """What the fast decoders refuse: lone surrogate escapes, members of the wrong type, the end mark, what is no frame."""
        data = data.strip()
        if not data:
            return
        if data.startswith(b"[DONE]"):
            self._fail(BackendError(_CUT, code="upstream_cut"))
            return
        try:
            value = decode(data)
        except _UNREADABLE:
            value = None
        if not isinstance(value, dict):
            self._fail(BackendError(_NEITHER, code="upstream_invalid"))
            return
        # A delta may end in half a surrogate pair: it is mended with what follows it.
        members = {key: each if key == "delta" else mended_value(each) for key, each in value.items()}
        known = {
            key: each
            for key, each in members.items()
            if key in _Frame.__struct_fields__ and (key not in _TYPES or isinstance(each, _TYPES[key]))
        }
        frame = _Frame(**known)
        if frame.delta is not None:
            self._grow(frame)
        else:
            self._take(frame)

    # Deltas

    def _grow(self, frame: _Delta) -> None:
        delta, record = frame.delta, self._record
        if not isinstance(delta, str):
            delta = written(delta).decode() if frame.type in _ARGUMENTS else ""
        match frame.type:
            case "response.output_text.delta":
                slot = record.message(frame.output_index, frame.item_id)
                part = slot.part(frame.content_index or 0, refusal=False)
                record.say(slot, part, part.grow(delta), frame.logprobs)
                self._lately = None if part.refusal else _Lately(frame, part, slot)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                call = record.call(frame.output_index, frame.item_id, _ARGUMENTS[frame.type])
                record.argue(call, call.run.grow(delta))
                self._lately = None if call.number is None or call.finished else _Lately(frame, call.run, call)
            case "response.reasoning_text.delta":
                thought = record.reasoning(frame.output_index, frame.item_id)
                record.think(thought, "text", frame.content_index or 0, delta)
            case "response.reasoning_summary_text.delta":
                thought = record.reasoning(frame.output_index, frame.item_id)
                record.think(thought, "summary", frame.summary_index or 0, delta)
            case "response.refusal.delta":
                slot = record.message(frame.output_index, frame.item_id)
                part = slot.part(frame.content_index or 0, refusal=True)
                record.say(slot, part, part.grow(delta))

    # Everything else

    def _take(self, frame: _Frame) -> None:
        record, place, identifier = self._record, frame.output_index, frame.item_id
        self._lately = None
        match frame.type:
            case "response.created" | "response.in_progress" | "response.queued":
                record.start(_object(frame.response))
            case "response.output_item.added" if isinstance(frame.item, dict):
                record.add_item(place, frame.item)
            case "response.output_item.done" if isinstance(frame.item, dict):
                record.finish_item(place, frame.item)
            case "response.output_text.done":
                slot = record.message(place, identifier)
                record.complete(slot, slot.part(frame.content_index or 0, refusal=False), frame.text, frame.logprobs)
            case "response.content_part.done":
                self._finish_part(frame)
            case "response.refusal.done":
                slot = record.message(place, identifier)
                record.complete(slot, slot.part(frame.content_index or 0, refusal=True), frame.refusal)
            case "response.output_text.annotation.added":
                slot = record.message(place, identifier)
                record.annotate(slot, slot.part(frame.content_index or 0, refusal=False), frame.annotation)
            case "response.function_call_arguments.done":
                record.complete_call(record.call(place, identifier, "function"), frame.arguments, frame.name)
            case "response.custom_tool_call_input.done":
                record.complete_call(record.call(place, identifier, "custom"), frame.input, frame.name)
            case "response.reasoning_text.done":
                thought = record.reasoning(place, identifier)
                record.complete_thought(thought, "text", frame.content_index or 0, frame.text)
            case "response.reasoning_summary_text.done" | "response.reasoning_summary_part.done":
                thought = record.reasoning(place, identifier)
                whole = frame.text if frame.part is None else _object(frame.part).get("text")
                record.complete_thought(thought, "summary", frame.summary_index or 0, whole)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._end(_object(frame.response), frame.type.removeprefix("response."))
            case "error":
                members = {"code": frame.code, "message": frame.message, "param": frame.param}
                self._fail(_failure(members if frame.error is None else frame.error))
            case "" if frame.error is not None:
                self._fail(_failure(frame.error))

    def _finish_part(self, frame: _Frame) -> None:
        part = _object(frame.part)
        if part.get("type") == "reasoning_text":
            thought = self._record.reasoning(frame.output_index, frame.item_id)
            self._record.complete_thought(thought, "text", frame.content_index or 0, part.get("text"))
        elif part.get("type") in ("output_text", "refusal"):
            slot = self._record.message(frame.output_index, frame.item_id)
            self._record.finish_part(slot, frame.content_index or 0, part)

    def _end(self, response: JsonObject, said: str) -> None:
        status = response.get("status")
        if said in ("failed", "cancelled") or status in ("failed", "cancelled"):
            self._fail(_failure(response.get("error")))
        else:
            cut = "incomplete" in (said, status)
            self._record.end(response, "incomplete" if cut else "completed")
            self._over = True

    def _fail(self, error: BackendError) -> None:
        """Unless the answer has come to its end."""
        if not self._over:
            self._over = True
            self._record.out.append(AnswerFailed(error))


_ARGUMENTS: dict[str, Literal["function", "custom"]] = {
    "response.function_call_arguments.delta": "function",
    "response.custom_tool_call_input.delta": "custom",
}


def decode_answer(body: bytes) -> list[StreamEvent]:
    """A whole resource: what the last frame of a stream carries, taken by the same code."""
    value = _load(body)
    if value is None:
        return [AnswerFailed(BackendError("The provider's answer is not a JSON object.", code="upstream_invalid"))]
    status = value.get("status")
    if status in ("failed", "cancelled") or (value.get("error") is not None and not value.get("output")):
        return [AnswerFailed(_failure(value.get("error")))]
    if status in ("queued", "in_progress") or not isinstance(value.get("output"), list):
        return [AnswerFailed(BackendError("The provider's answer is not a finished response.", code="upstream_invalid"))]
    record = Record()
    try:
        record.end(value, "incomplete" if status == "incomplete" else "completed")
    except BackendError as error:
        record.out.append(AnswerFailed(error))
    return record.out


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _load(data: bytes) -> JsonObject | None:
    """A JSON object without lone surrogates."""
    try:
        value = _decode_any(data)
    except _UNREADABLE:
        try:
            value = mended_value(decode(data))
        except _UNREADABLE:
            return None
    return value if isinstance(value, dict) else None


def _failure(said: object) -> BackendError:
    """A provider's failure in the midst of an answer, which has a code but no status."""
    error = said if isinstance(said, dict) else {"message": said}
    code = error.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        status = code
    elif code in ("rate_limit_exceeded", "insufficient_quota"):
        status = 429
    elif (isinstance(code, str) and code in _CLIENTS_FAULT) or error.get("type") == "invalid_request_error":
        status = 400
    else:
        status = 502
    message = error.get("message") or "The provider reported a failure without saying which."
    return decode_error(status, written({"error": {**error, "message": message}}))


_CLIENTS_FAULT = FAILURE_CODES - {"server_error", "vector_store_timeout"} | {"context_length_exceeded"}
