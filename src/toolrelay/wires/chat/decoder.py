"""Chat Completions, a provider's answer: chunks, or one object, into stream events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import JsonObject
from toolrelay.core.surrogates import join_surrogates_so_far
from toolrelay.errors import BackendError
from toolrelay.wires.chat import chunk as chunks
from toolrelay.wires.chat.call_tracker import CallTracker, PartialCall
from toolrelay.wires.chat.chunk import CallDelta, ChatChunk, ChoiceDelta, ChunkChoice, decode_chunk, decode_tolerantly
from toolrelay.wires.chat.reasoning_details import DetailCollector
from toolrelay.wires.decoder import FrameDecoder, provider_error
from toolrelay.wires.json import arguments_text, decode, is_deep, is_object, may_be_deep


class _ChoiceState(Struct, eq=False):
    """A choice that is being received. `halves` are high surrogates that wait for the low ones, by the text that they end.

    `details` are those of the reasoning so far, until text or a call follows. `is_reasoning`: its last event is reasoning.
    `has_reasoning`: reasoning came outside of details, whose text is the same.
    """

    number: int
    calls: CallTracker
    finish: Finish | None = None
    halves: dict[object, str] = {}
    details: DetailCollector | None = None
    is_reasoning: bool = False
    has_reasoning: bool = False

    def join(self, stream: object, text: str) -> str:
        """Return the text without a high surrogate at its end, which waits for the next delta of the same stream."""
        if self.halves:
            text = self.halves.pop(stream, "") + text
        text, half = join_surrogates_so_far(text)
        if half:
            self.halves[stream] = half
        return text

    def actual_finish(self) -> Finish:
        """Return the finish by what was received: providers say "stop" after calls, and "tool_calls" without any."""
        if self.finish in ("length", "content_filter"):
            return self.finish
        return "calls" if self.calls.started else "stop"


class ChatDecoder(FrameDecoder):
    """Choices are numbered as they appear: some servers start at 1, and an index that comes from outside is only a key."""

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, _ChoiceState] = {}  # by the provider's index
        self._choice_limit = IndexLimit("choices")
        self._call_limit = IndexLimit("tool calls")
        self._usage: Usage | None = None
        self._tier: str | None = None
        self._is_started = False

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        try:
            chunk = decode_chunk(frame)
        except (ValueError, RecursionError):
            if frame.startswith(b"[DONE]"):
                self._finish("ended the stream without a finish_reason", out)
                return
            tolerated = decode_tolerantly(frame)
            if tolerated is None:
                raise provider_error("sent a frame that is not a chat completion chunk") from None
            self._take(frame, tolerated, out)
            return
        if not self._take_plain(chunk, out):
            self._take(frame, chunk, out)

    def _read_last(self, frame: bytes, out: list[StreamEvent]) -> None:
        try:
            decode(frame)
        except ValueError:
            if not frame.startswith(b"[DONE]"):
                return
        self._read(frame, out)

    def _close(self, out: list[StreamEvent]) -> None:
        self._finish("closed the stream before the answer's end", out)

    def _read_whole(self, body: bytes, out: list[StreamEvent]) -> None:
        completion: ChatChunk | None
        try:
            completion = decode_chunk(body)
        except (ValueError, RecursionError):
            completion = decode_tolerantly(body)
        if completion is not None:
            self._take(body, completion, out)
        for state in self._choices.values():
            state.finish = state.finish or "stop"
        self._finish("answered with something that is not a chat completion", out, code="upstream_invalid")

    def _take_plain(self, chunk: ChatChunk, out: list[StreamEvent]) -> bool:
        """Take a chunk that only continues a text or the arguments of a call, as nearly every one does. Return whether it did."""
        choices = chunk.choices
        if not choices or len(choices) != 1 or chunk.usage is not None or chunk.error is not None:
            return False
        choice = choices[0]
        delta = choice.delta
        state = self._choices.get(choice.index)  # type: ignore[arg-type]  # None is simply not found
        if (
            state is None
            or delta is None
            or choice.finish_reason is not None
            or choice.logprobs is not None
            or delta.reasoning_content is not None
            or delta.reasoning is not None
            or delta.refusal is not None
            or delta.function_call is not None
            or delta.annotations is not None
            or delta.reasoning_details
            or state.details is not None
            or state.is_reasoning
            or state.halves
        ):
            return False
        text = delta.content
        if delta.tool_calls is not None:
            return not text and _take_plain_arguments(state, delta.tool_calls, out)
        if not text or text.__class__ is not str:
            return False
        out.append(TextDelta(text, state.number))
        return True

    def _take(self, frame: bytes, chunk: ChatChunk, out: list[StreamEvent]) -> None:
        if may_be_deep(frame) and is_deep(frame, to_builtins(chunk)):
            raise provider_error("sent something that is nested too deeply")
        error = chunks.unusual_error(frame) if chunk.choices is None and chunk.error is None else chunk.error
        if error:
            raise chunks.stream_error(error)
        if chunk.choices and not self._is_started:
            self._is_started = True
            out.append(AnswerStarted(model=chunk.model, fingerprint=chunk.system_fingerprint, service_tier=chunk.service_tier))
        for position, choice in enumerate(chunk.choices or ()):
            self._take_choice(position, choice, out)
        if chunk.usage is not None:
            self._usage = chunks.decode_usage(chunk.usage)
        if chunk.service_tier is not None:
            self._tier = chunk.service_tier

    def _take_choice(self, position: int, choice: ChunkChoice, out: list[StreamEvent]) -> None:
        index = position if choice.index is None else choice.index
        state = self._choices.get(index)
        delta = choice.delta
        if state is None:
            self._choice_limit.add(index)
            state = self._choices[index] = _ChoiceState(len(self._choices), CallTracker(self._call_limit))
            if delta is None:  # later, a message only repeats what was streamed
                delta = choice.message
        if delta is not None:
            _take_delta(state, choice, delta, out)
        if choice.finish_reason:
            finish = choice.finish_reason.lower()
            if finish in chunks.FAILURES:
                raise BackendError(f"The provider gave up in the middle of the answer (finish_reason {finish!r}).")
            state.finish = chunks.FINISHES.get(finish, "stop")

    def _finish(self, problem: str, out: list[StreamEvent], *, code: str = "upstream_cut") -> None:
        """Finish the answer, or raise the problem if a choice is not finished."""
        if not self._choices or any(state.finish is None for state in self._choices.values()):
            raise provider_error(problem, code)
        self._is_over = True
        first, *others = self._choices.values()
        _finish_choice(first, out)
        for state in others:
            _finish_choice(state, out)
            out.append(ChoiceFinished(state.number, state.actual_finish()))
        out.append(AnswerFinished(finish=first.actual_finish(), usage=self._usage, service_tier=self._tier))


def decode_answer(body: bytes) -> list[StreamEvent]:
    return ChatDecoder().decode_whole(body)


def _take_plain_arguments(state: _ChoiceState, deltas: list[CallDelta], out: list[StreamEvent]) -> bool:
    """See ChatDecoder._take_plain."""
    if len(deltas) != 1:
        return False
    delta = deltas[0]
    function = delta.function
    if delta.id is not None or function is None or function.name is not None or function.arguments.__class__ is not str:
        return False
    call = state.calls.by_index.get(delta.index)  # type: ignore[arg-type]  # None is simply not found
    if call is None or call.name is None:
        return False
    if function.arguments:
        call.pieces.append(function.arguments)
        out.append(ArgumentsDelta(call.index, function.arguments, state.number))
    return True


def _take_delta(state: _ChoiceState, choice: ChunkChoice, delta: ChoiceDelta, out: list[StreamEvent]) -> None:
    reasoning = delta.reasoning_content or delta.reasoning
    if delta.reasoning_details and isinstance(delta.reasoning_details, list):
        state.details = state.details or DetailCollector()
        text = state.details.add(delta.reasoning_details)
        reasoning = reasoning or ("" if state.has_reasoning else text)
    state.has_reasoning = state.has_reasoning or bool(delta.reasoning_content or delta.reasoning)
    if isinstance(reasoning, str):
        _take_reasoning(state, reasoning, out)
    if delta.content or delta.refusal or delta.tool_calls or delta.function_call is not None:
        _finish_reasoning(state, delta.tool_calls or (), out)
    if delta.content or choice.logprobs is not None:
        _take_content(state, choice, delta.content or "", out)
    if delta.refusal:
        text = state.join("refusal", delta.refusal)
        if text:
            out.append(RefusalDelta(text, state.number))
    if delta.annotations:
        flat = (chunks.flatten_annotation(annotation) for annotation in delta.annotations)
        out.extend(AnnotationAdded(annotation, state.number) for annotation in flat if annotation is not None)
    if delta.tool_calls or delta.function_call is not None:
        seen: set[PartialCall] = set()
        for call in delta.tool_calls or ():
            _take_call(state, call, seen, out)
        if delta.function_call is not None:
            _take_call(state, CallDelta(index=0, function=delta.function_call), seen, out)


def _take_reasoning(state: _ChoiceState, reasoning: str, out: list[StreamEvent]) -> None:
    text = state.join("reasoning", reasoning) if reasoning else ""
    if text:
        state.is_reasoning = True
        out.append(ReasoningDelta(text, "text", 0, state.number))


def _finish_reasoning(state: _ChoiceState, coming: Sequence[CallDelta], out: list[StreamEvent]) -> None:
    """End the reasoning before text or calls, with its details. Those of other choices than the first are dropped."""
    if state.details is not None and not state.number:
        numbers = {call.id: call.index for call in state.calls.all if call.id and call.name}
        for call in coming:
            if call.id and call.id not in numbers:
                numbers[call.id] = max(numbers.values(), default=-1) + 1
        sealed = state.details.seal(numbers)
        if sealed is not None:
            if not state.is_reasoning:
                out.append(ReasoningStarted())
            out.append(ReasoningFinished(encrypted=sealed))
    state.details = None
    state.is_reasoning = False


def _take_content(state: _ChoiceState, choice: ChunkChoice, content: str | list[Any], out: list[StreamEvent]) -> None:
    logprobs = chunks.token_logprobs(choice.logprobs)
    for part in [content] if isinstance(content, str) else content:
        match part:
            case str() | {"type": "text", "text": str()}:
                text = state.join("content", part if isinstance(part, str) else part["text"])
                if text or logprobs:
                    out.append(TextDelta(text, state.number, logprobs))
                    logprobs = None
            case {"type": "thinking", "thinking": list(parts)}:  # Mistral's
                texts = [each["text"] for each in parts if isinstance(each, dict) and isinstance(each.get("text"), str)]
                _take_reasoning(state, "".join(texts), out)


def _take_call(state: _ChoiceState, delta: CallDelta, seen: set[PartialCall], out: list[StreamEvent]) -> None:
    name, arguments = None, ""
    if delta.custom is not None:
        name, arguments = delta.custom.name, delta.custom.input or ""
    elif delta.function is not None:
        name, arguments = delta.function.name, arguments_text(delta.function.arguments)
    call = state.calls.find(delta, name, seen)
    if name and call.name is None:
        call.name = name
        call.kind = "function" if delta.custom is None else "custom"
        call.index = state.calls.started
        state.calls.started += 1
        extra: JsonObject | None = {"extra_content": delta.extra_content} if delta.extra_content else None
        out.append(CallStarted(call.index, name, "", call.kind, state.number, None, extra))
        arguments = "".join(call.early) + arguments
        call.early.clear()
    if call.name is None:
        call.early.append(arguments)
    elif arguments:
        arguments = state.join(call, arguments)
        if arguments:
            call.pieces.append(arguments)
            out.append(ArgumentsDelta(call.index, arguments, state.number))


def _flush_halves(state: _ChoiceState, out: list[StreamEvent]) -> None:
    """Replace the high surrogates whose low ones never came."""
    for stream in state.halves:
        match stream:
            case "content":
                out.append(TextDelta("\ufffd", state.number))
            case "reasoning":
                out.append(ReasoningDelta("\ufffd", "text", 0, state.number))
            case "refusal":
                out.append(RefusalDelta("\ufffd", state.number))
            case PartialCall(index=index, pieces=pieces):
                pieces.append("\ufffd")
                out.append(ArgumentsDelta(index, "\ufffd", state.number))


def _finish_choice(state: _ChoiceState, out: list[StreamEvent]) -> None:
    _flush_halves(state, out)
    _finish_calls(state, out)
    _finish_reasoning(state, (), out)


def _finish_calls(state: _ChoiceState, out: list[StreamEvent]) -> None:
    """Finish the calls. In a truncated answer only functions with complete arguments, and every custom call but the last."""
    calls = state.calls.all
    if state.finish in ("length", "content_filter"):
        last = calls[-1] if calls else None
        calls = [call for call in calls if (call is not last if call.kind == "custom" else is_object("".join(call.pieces)))]
    for call in calls:
        if call.name is not None:
            if not call.pieces and call.kind == "function":
                out.append(ArgumentsDelta(call.index, "{}", state.number))
            out.append(CallFinished(call.index, state.number))
