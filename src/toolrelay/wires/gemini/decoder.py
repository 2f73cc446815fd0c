"""Gemini, a provider's answer: frames, or one object, into stream events."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolrelay.core.events import (
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    ItemReceived,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.errors import BackendError
from toolrelay.wires.decoder import FrameDecoder, provider_error
from toolrelay.wires.errors import MAX_MESSAGE
from toolrelay.wires.gemini import frames
from toolrelay.wires.gemini.errors import decode_stream_error
from toolrelay.wires.gemini.frames import AnswerPart, Candidate, ContentFrame, FunctionCall, UsageMetadata
from toolrelay.wires.gemini.thinking import NAME, SignedPart, seal_signature, signed_extra
from toolrelay.wires.json import decode, may_be_deep

_FILTERED = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}
)
# The model made a call that the API could not read. Nothing of it is in the answer.
_FAILED = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"})
_NOT_A_FRAME = "sent something that is not an answer of generateContent"


class GeminiDecoder(FrameDecoder):
    """Frames hold whole parts: pieces of text, or calls. Only the first candidate is read; the gateway asks for one.

    The answer ends with the connection: there is no end mark, and some servers give a finish reason in every frame.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = IndexLimit("calls and signatures")
        self._call_count = 0
        self._is_thinking = False
        self._is_started = False
        self._has_content = False
        self._signatures: list[str] = []  # of the text so far
        self._usage = UsageMetadata()
        self._finish_reason: str | None = None
        self._finish_message = ""
        self._is_blocked = False

    # Frames

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        try:
            decoded = frames.decode_frames(frame)
            if may_be_deep(frame):
                decode(frame)  # raises if it is nested too deeply
        except (ValueError, RecursionError):
            raise provider_error(_NOT_A_FRAME) from None
        for each in decoded:
            self._take(each, out)

    def _read_last(self, frame: bytes, out: list[StreamEvent]) -> None:
        try:
            decode(frame)
        except ValueError:
            return
        self._read(frame, out)

    def _read_whole(self, body: bytes, out: list[StreamEvent]) -> None:
        self._read(body, out)
        if self._finish_reason is None and not self._is_blocked and not self._has_content:
            raise provider_error(_NOT_A_FRAME)
        self._finish(out)

    def _close(self, out: list[StreamEvent]) -> None:
        if self._finish_reason is None and not self._is_blocked:
            raise provider_error("closed the stream before the answer's end", "upstream_cut")
        self._finish(out)

    def _take(self, frame: ContentFrame, out: list[StreamEvent]) -> None:
        if frame.error is not None:
            raise decode_stream_error(frame.error)
        if frame.says_nothing:
            raise provider_error(_NOT_A_FRAME)
        if not self._is_started:
            self._is_started = True
            out.append(AnswerStarted(model=frame.model_version))
        self._usage.add(frame.usage_metadata)
        if frame.prompt_feedback is not None and frame.prompt_feedback.block_reason is not None:
            self._is_blocked = True
        if frame.candidates:
            self._take_candidate(frame.candidates[0], out)

    def _take_candidate(self, candidate: Candidate, out: list[StreamEvent]) -> None:
        for raw in (candidate.content.parts if candidate.content is not None else None) or ():
            self._take_part(raw, out)
        self._finish_reason = candidate.finish_reason or self._finish_reason
        self._finish_message = candidate.finish_message or self._finish_message

    # Parts

    def _take_part(self, raw: Raw, out: list[StreamEvent]) -> None:
        try:
            part, other = frames.decode_part(raw)
        except ValueError:
            raise provider_error("sent a part that is neither text nor a call") from None
        if part.function_call is not None:
            self._take_call(part.function_call, part.thought_signature, out)
        elif other is not None:
            self._end_run(out)
            self._limit.add(None)
            self._has_content = True
            out.append(ItemReceived(wire=NAME, raw=other))
        elif part.thought:
            self._take_thought(part, out)
        else:
            self._take_text(part, out)

    def _take_text(self, part: AnswerPart, out: list[StreamEvent]) -> None:
        if part.text:
            self._end_thought(out)
            self._has_content = True
            out.append(TextDelta(part.text))
        if part.thought_signature:
            self._limit.add(None)
            self._signatures.append(part.thought_signature)

    def _take_thought(self, part: AnswerPart, out: list[StreamEvent]) -> None:
        if not self._is_thinking:
            self._end_run(out)
            self._is_thinking = True
            self._limit.add(None)
            out.append(ReasoningStarted())
        if part.text:
            self._has_content = True
            out.append(ReasoningDelta(part.text, kind="summary"))
        if part.thought_signature:
            self._end_thought(out, "thought", part.thought_signature)

    def _take_call(self, call: FunctionCall, signature: str | None, out: list[StreamEvent]) -> None:
        if not call.name:
            raise provider_error("sent a call without a name")
        self._end_text(out)
        if signature and not self._is_thinking:
            out.append(ReasoningStarted())
            self._is_thinking = True
        self._end_thought(out, "call", signature or "")
        self._limit.add(None)
        index, self._call_count = self._call_count, self._call_count + 1
        self._has_content = True
        out.append(CallStarted(index, call.name, extra=signed_extra(signature) if signature else None))
        out.append(ArgumentsDelta(index, _arguments(call.args)))
        out.append(CallFinished(index))

    def _end_run(self, out: list[StreamEvent]) -> None:
        self._end_text(out)
        self._end_thought(out)

    def _end_text(self, out: list[StreamEvent]) -> None:
        """Add the signatures of the text, which must not divide it."""
        for signature in self._signatures:
            self._end_thought(out)
            out.extend((ReasoningStarted(), ReasoningFinished(encrypted=seal_signature("text", signature))))
        self._signatures.clear()

    def _end_thought(self, out: list[StreamEvent], kind: SignedPart = "thought", signature: str = "") -> None:
        if self._is_thinking:
            self._is_thinking = False
            out.append(ReasoningFinished(encrypted=seal_signature(kind, signature) if signature else None))

    # The end

    def _finish(self, out: list[StreamEvent]) -> None:
        self._end_run(out)
        reason = self._finish_reason or ""
        if reason in _FAILED and not self._call_count:
            raise _failure(reason, self._finish_message)
        if self._finish_reason is None and self._is_blocked:
            reason = "SAFETY"
        if reason not in ("STOP", "MAX_TOKENS", "") and reason not in _FILTERED and not self._has_content:
            raise _failure(reason, self._finish_message)
        finish: Finish = "calls" if self._call_count else "stop"
        if reason == "MAX_TOKENS":
            finish = "length"
        elif reason in _FILTERED:
            finish = "content_filter"
        self._is_over = True
        out.append(AnswerFinished(finish=finish, usage=self._usage.total()))


def decode_answer(body: bytes) -> list[StreamEvent]:
    return GeminiDecoder().decode_whole(body)


def _failure(reason: str, message: str) -> BackendError:
    said = f": {' '.join(message.split())[:MAX_MESSAGE]}" if message else ""
    return BackendError(f"The model ended its answer with {reason[:MAX_MESSAGE]}{said}.", code="upstream_invalid")


def _arguments(raw: Raw) -> str:
    """Return the arguments without the API's spaces and line ends, which differ between streams and whole answers.

    None at all are an empty object; a string holds the arguments.
    """
    data = bytes(raw)
    if data == b"null":
        return "{}"
    if data.startswith(b'"'):
        return str(msgspec.json.decode(data))
    return msgspec.json.format(data, indent=-1).decode()
