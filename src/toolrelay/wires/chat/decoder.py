"""Chat Completions, a provider's answer: chunks, or one object, into stream events."""

from __future__ import annotations

from typing import Any

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
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import JsonObject
from toolrelay.core.surrogates import join_surrogates_so_far
from toolrelay.errors import BackendError
from toolrelay.wires.chat.calls import OpenCall, OpenCalls
from toolrelay.wires.chat.chunk import (
    FAILURES,
    FINISH,
    Choice,
    Chunk,
    Delta,
    ToolCall,
    arguments_text,
    decode_chunk,
    decode_slowly,
    decode_usage,
    error_in,
    flat_annotation,
    is_too_deep,
    token_logprobs,
    unusual_error,
)
from toolrelay.wires.json import decode
from toolrelay.wires.sse import FrameTooLargeError, Splitter


class _ChoiceState:
    """What is open in one choice. `halves` are first halves of surrogate pairs, by the text they end."""

    __slots__ = ("calls", "finish", "halves", "number")

    def __init__(self, number: int, calls: OpenCalls) -> None:
        self.number = number
        self.calls = calls
        self.finish: Finish | None = None
        self.halves: dict[object, str] = {}

    def whole(self, stream: object, text: str) -> str:
        """The text without the first half of a surrogate pair at its end, which waits for the second."""
        if self.halves:
            text = self.halves.pop(stream, "") + text
        text, half = join_surrogates_so_far(text)
        if half:
            self.halves[stream] = half
        return text


class ChatDecoder:
    """See wires.base.Decoder."""

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._choices: dict[int, _ChoiceState] = {}
        self._choice_limit = IndexLimit("choices")
        self._call_limit = IndexLimit("tool calls")
        self._usage: Usage | None = None
        self._tier: str | None = None
        self._began = False
        self._over = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        try:
            for frame in self._splitter.feed(data):
                if self._over:
                    break
                self._read(frame, out)
        except FrameTooLargeError:
            if not self._over:
                self._fail("sent a frame that is too large to be relayed", "upstream_invalid", out)
        return out

    def flush(self) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if not self._over:
            for frame in self._splitter.flush():
                if _is_all(frame):
                    self._read(frame, out)
        if not self._over:
            self._end("closed the stream before the answer's end", out)
        return out

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        try:
            chunk = decode_chunk(frame)
        except (ValueError, RecursionError):
            self._read_slowly(frame, out)
            return
        if not self._take_usual(chunk, out):
            self._take_any(frame, chunk, out)

    def _read_slowly(self, frame: bytes, out: list[StreamEvent]) -> None:
        if frame.startswith(b"[DONE]"):
            self._end("ended the stream without a finish_reason", out)
            return
        chunk = decode_slowly(frame)
        if chunk is None:
            self._fail("sent a frame that is not a chat completion chunk", "upstream_invalid", out)
        else:
            self._take(frame, chunk, out)

    def read_whole(self, body: bytes) -> list[StreamEvent]:
        """An answer that came as one object."""
        out: list[StreamEvent] = []
        try:
            completion = decode_chunk(body)
        except (ValueError, RecursionError):
            slow = decode_slowly(body)
            if slow is not None:
                self._take(body, slow, out)
        else:
            self._take_any(body, completion, out)
        if not self._over:
            for state in self._choices.values():
                state.finish = state.finish or "stop"
            self._end("answered with something that is not a chat completion", out, code="upstream_invalid")
        return out

    def _take_usual(self, chunk: Chunk, out: list[StreamEvent]) -> bool:
        """Nearly every chunk adds to a text, or to the arguments of a call, and does nothing else: whether this one did."""
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
            or state.halves
        ):
            return False
        text = delta.content
        if delta.tool_calls is not None:
            return not text and _take_arguments(state, delta.tool_calls, out)
        if not text or text.__class__ is not str:
            return False
        out.append(TextDelta(text, state.number))
        return True

    def _take_any(self, frame: bytes, chunk: Chunk, out: list[StreamEvent]) -> None:
        if is_too_deep(frame, chunk):
            self._fail("sent something that is nested too deeply", "upstream_invalid", out)
        else:
            self._take(frame, chunk, out)

    def _take(self, frame: bytes, chunk: Chunk, out: list[StreamEvent]) -> None:
        error = unusual_error(frame) if chunk.choices is None and chunk.error is None else chunk.error
        if error:
            self._give_up(error_in(error), out)
            return
        if chunk.choices:
            if not self._began:
                self._began = True
                out.append(
                    AnswerStarted(model=chunk.model, fingerprint=chunk.system_fingerprint, service_tier=chunk.service_tier)
                )
            try:
                for place, choice in enumerate(chunk.choices):
                    self._take_choice(place, choice, out)
            except BackendError as error:
                self._give_up(error, out)
                return
        if chunk.usage is not None:
            self._usage = decode_usage(chunk.usage)
        if chunk.service_tier is not None:
            self._tier = chunk.service_tier

    def _take_choice(self, place: int, choice: Choice, out: list[StreamEvent]) -> None:
        number = place if choice.index is None else choice.index
        state = self._choices.get(number)
        delta = choice.delta
        if state is None:
            self._choice_limit.add(number)
            state = self._choices[number] = _ChoiceState(number, OpenCalls(self._call_limit))
            if delta is None:  # later on, a message only sums up what was said
                delta = choice.message
        if delta is not None:
            _take_delta(state, choice, delta, out)
        if choice.finish_reason:
            finish = choice.finish_reason.lower()
            if finish in FAILURES:
                raise BackendError(f"The provider gave up in the middle of the answer (finish_reason {finish!r}).")
            state.finish = FINISH.get(finish, "stop")

    def _end(self, otherwise: str, out: list[StreamEvent], *, code: str = "upstream_cut") -> None:
        """The end of the answer, or, where a choice has not come to its own, the failure that is said otherwise."""
        if 0 not in self._choices or any(state.finish is None for state in self._choices.values()):
            self._fail(otherwise, code, out)
            return
        self._over = True
        for number in sorted(self._choices):
            state = self._choices[number]
            _give_up_halves(state, out)
            _finish_calls(state, out)
            if number:
                out.append(ChoiceFinished(number, _finish(state)))
        out.append(AnswerFinished(finish=_finish(self._choices[0]), usage=self._usage, service_tier=self._tier))

    def _fail(self, what: str, code: str, out: list[StreamEvent]) -> None:
        self._give_up(BackendError(f"The provider {what}.", code=code), out)

    def _give_up(self, error: BackendError, out: list[StreamEvent]) -> None:
        self._over = True
        out.append(AnswerFailed(error))


def _is_all(frame: bytes) -> bool:
    """Of a frame that the stream ended with, before the frame's own end."""
    try:
        decode(frame)
    except ValueError:
        return frame.startswith(b"[DONE]")
    return True


def decode_answer(body: bytes) -> list[StreamEvent]:
    return ChatDecoder().read_whole(body)


def _take_delta(state: _ChoiceState, choice: Choice, delta: Delta, out: list[StreamEvent]) -> None:
    number = state.number
    thought = delta.reasoning_content or delta.reasoning
    if thought and isinstance(thought, str):
        _take_thought(state, thought, out)
    content = delta.content
    if content or choice.logprobs is not None:
        _take_content(state, choice, content or "", out)
    if delta.refusal:
        text = state.whole("refusal", delta.refusal)
        if text:
            out.append(RefusalDelta(text, number))
    if delta.annotations:
        flat = (flat_annotation(annotation) for annotation in delta.annotations)
        out.extend(AnnotationAdded(annotation, number) for annotation in flat if annotation is not None)
    if delta.tool_calls or delta.function_call is not None:
        touched: set[OpenCall] = set()
        for piece in delta.tool_calls or ():
            _take_call(state, piece, touched, out)
        if delta.function_call is not None:
            _take_call(state, ToolCall(index=0, function=delta.function_call), touched, out)


def _take_arguments(state: _ChoiceState, pieces: list[ToolCall], out: list[StreamEvent]) -> bool:
    """See ChatDecoder._take_usual."""
    if len(pieces) != 1:
        return False
    piece = pieces[0]
    function = piece.function
    if piece.id is not None or function is None or function.name is not None or function.arguments.__class__ is not str:
        return False
    call = state.calls.by_place.get(piece.index)  # type: ignore[arg-type]  # None is simply not found
    if call is None or call.name is None:
        return False
    if function.arguments:
        call.pieces.append(function.arguments)
        out.append(ArgumentsDelta(call.index, function.arguments, state.number))
    return True


def _take_thought(state: _ChoiceState, thought: str, out: list[StreamEvent]) -> None:
    text = state.whole("reasoning", thought)
    if text:
        out.append(ReasoningDelta(text, "text", 0, state.number))


def _take_content(state: _ChoiceState, choice: Choice, content: str | list[Any], out: list[StreamEvent]) -> None:
    logprobs = token_logprobs(choice.logprobs)
    for part in [content] if isinstance(content, str) else content:
        match part:
            case str() | {"type": "text", "text": str()}:
                text = state.whole("content", part if isinstance(part, str) else part["text"])
                if text or logprobs:
                    out.append(TextDelta(text, state.number, logprobs))
                    logprobs = None
            case {"type": "thinking", "thinking": list(thoughts)}:  # Mistral's
                pieces = [
                    thought["text"] for thought in thoughts if isinstance(thought, dict) and isinstance(thought.get("text"), str)
                ]
                _take_thought(state, "".join(pieces), out)
            case _:
                pass


def _take_call(state: _ChoiceState, piece: ToolCall, touched: set[OpenCall], out: list[StreamEvent]) -> None:
    if piece.custom is not None:
        name, grown = piece.custom.name, piece.custom.input
    elif piece.function is not None:
        name, grown = piece.function.name, arguments_text(piece.function.arguments)
    else:
        name, grown = None, None
    call = state.calls.find(piece, name, touched)
    if name and call.name is None:
        call.name = name
        call.kind = "function" if piece.custom is None else "custom"
        call.index = state.calls.started
        state.calls.started += 1
        extra: JsonObject | None = {"extra_content": piece.extra_content} if piece.extra_content else None
        out.append(CallStarted(call.index, name, "", call.kind, state.number, None, extra))
        grown = "".join(call.early) + (grown or "")
        call.early.clear()
    if grown:
        if call.name is None:
            call.early.append(grown)
            return
        grown = state.whole(call, grown)
        if grown:
            call.pieces.append(grown)
            out.append(ArgumentsDelta(call.index, grown, state.number))


def _give_up_halves(state: _ChoiceState, out: list[StreamEvent]) -> None:
    """A half whose other half never came."""
    for stream in state.halves:
        match stream:
            case "content":
                out.append(TextDelta("\ufffd", state.number))
            case "reasoning":
                out.append(ReasoningDelta("\ufffd", "text", 0, state.number))
            case "refusal":
                out.append(RefusalDelta("\ufffd", state.number))
            case OpenCall(index=index, pieces=pieces):
                pieces.append("\ufffd")
                out.append(ArgumentsDelta(index, "\ufffd", state.number))
            case _:
                pass


def _finish_calls(state: _ChoiceState, out: list[StreamEvent]) -> None:
    """An answer that was cut finishes only calls whose arguments are whole; of custom tools' inputs only the last may not be."""
    cut = state.finish in ("length", "content_filter")
    for call in state.calls.all:
        whole = not cut or (call is not state.calls.all[-1] if call.kind == "custom" else call.is_whole())
        if call.name is None or not whole:
            continue
        if not call.pieces and call.kind == "function":
            out.append(ArgumentsDelta(call.index, "{}", state.number))
        out.append(CallFinished(call.index, state.number))


def _finish(state: _ChoiceState) -> Finish:
    """Providers say "stop" after calls, and "tool_calls" without any."""
    if state.finish in ("length", "content_filter"):
        return state.finish
    return "calls" if state.calls.started else "stop"
