"""Chat Completions, a provider's answer: chunks, or one object, into stream events.

Providers differ in how they number calls. The rules, in order:

    the chunk has            it belongs to
    ----------------------   ------------------------------------------------------------------
    an id not seen before    a new call, whatever its index (some always say 0)
    an id seen before        that call
    an index seen before     the newest call of that index, unless it has a name, and that call another one or whole arguments
    an index not seen        a new call
    neither                  the newest call; a new one if it has a name and there is none open

A name is taken once and never again, so that providers which repeat it with every chunk do no harm.
"""

from __future__ import annotations

from typing import Any

import msgspec
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
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.errors import BackendError
from toolrelay.wires._errors import decode_error
from toolrelay.wires._json import decode, encode, mended
from toolrelay.wires._sse import FrameTooLargeError, Splitter

FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "content_filter",
    # what others say
    "eos": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "calls",
    "safety": "content_filter",
}


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class _Custom(Struct):
    name: str | None = None
    input: str | None = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: _Function | None = None
    custom: _Custom | None = None
    extra_content: dict[str, Any] | None = None


class _Delta(Struct):
    content: str | list[Any] | None = None
    tool_calls: list[_ToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | dict[str, Any] | None = None
    refusal: str | None = None
    function_call: _Function | None = None
    annotations: list[Any] | None = None


class _Logprobs(Struct):
    content: list[Any] | None = None


class _Choice(Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class _OpenCall:
    """A call that is being received. It starts when its name is known; what comes before waits in `early`."""

    __slots__ = ("early", "id", "index", "kind", "name", "pieces")

    def __init__(self, index: int, identifier: str | None) -> None:
        self.index = index
        self.id = identifier
        self.kind: CallKind = "function"
        self.name: str | None = None
        self.early: list[str] = []
        self.pieces: list[str] = []

    def is_other(self, name: str | None) -> bool:
        """Whether that name, come without an id of its own, begins another call."""
        return bool(name and self.name) and (name != self.name or self.is_whole())

    def is_whole(self) -> bool:
        if self.kind == "custom":
            return False
        try:
            return isinstance(decode("".join(self.pieces)), dict)
        except ValueError:
            return False


class _ChoiceState:
    """What is open in one choice. `halves` are first halves of surrogate pairs, by the text they end."""

    __slots__ = ("by_id", "by_index", "calls", "finish", "halves")

    def __init__(self) -> None:
        self.calls: list[_OpenCall] = []
        self.by_id: dict[str, _OpenCall] = {}
        self.by_index: dict[int, _OpenCall] = {}
        self.finish: Finish | None = None
        self.halves: dict[object, str] = {}

    def whole(self, stream: object, text: str) -> str:
        """The text without the first half of a surrogate pair at its end, which waits for the second."""
        text = self.halves.pop(stream, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.halves[stream] = text[-1]
            text = text[:-1]
        return mended(text)

    def call_for(self, part: _ToolCall) -> _OpenCall:
        function = part.function or part.custom
        name = function.name if function else None
        if part.id:
            call = self.by_id.get(part.id)
            if call is None and part.index is not None:
                known = self.by_index.get(part.index)
                call = known if known is not None and known.id is None and not known.is_other(name) else None
            return call or self._new(part)
        if part.index is not None:
            call = self.by_index.get(part.index)
            return self._new(part) if call is None or call.is_other(name) else call
        if self.calls and not (name and self.calls[-1].name):
            return self.calls[-1]
        return self._new(part)

    def _new(self, part: _ToolCall) -> _OpenCall:
        call = _OpenCall(len(self.calls), part.id)
        self.calls.append(call)
        if part.id:
            self.by_id[part.id] = call
        if part.index is not None:
            self.by_index[part.index] = call
        return call


class ChatDecoder:
    """See wires.base.Decoder."""

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._choices: dict[int, _ChoiceState] = {}
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
            self._fail("The provider sent a frame that is too large to be relayed.", out)
        return out

    def flush(self) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if not self._over:
            for frame in self._splitter.flush():
                self._read(frame, out)
        if not self._over:
            first = self._choices.get(0)
            if first is None or first.finish is None:
                self._fail("The provider closed the stream before the answer's end.", out)
            else:
                self._end(out)
        return out

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        if frame.startswith(b"[DONE]"):
            first = self._choices.get(0)
            if first is None or first.finish is None:
                self._fail("The provider ended the stream without a finish_reason.", out)
            else:
                self._end(out)
            return
        try:
            chunk = _decode_chunk(frame)
        except msgspec.MsgspecError:
            slow = _decode_slowly(frame)
            if slow is None:
                self._fail("The provider sent a frame that is not a chat completion chunk.", out)
                return
            self.take(slow, out, torn=True)
        else:
            self.take(chunk, out)

    def take(self, chunk: _Chunk, out: list[StreamEvent], *, torn: bool = False) -> None:
        """`torn`: its text may hold lone surrogates."""
        if chunk.error is not None and not chunk.choices:
            self._over = True
            out.append(AnswerFailed(decode_error(_status(chunk.error), encode({"error": chunk.error}))))
            return
        if not self._began:
            self._began = True
            out.append(AnswerStarted(model=chunk.model, fingerprint=chunk.system_fingerprint, service_tier=chunk.service_tier))
        for choice in chunk.choices or ():
            state = self._choices.get(choice.index)
            if state is None:
                state = self._choices[choice.index] = _ChoiceState()
            delta = choice.delta or choice.message
            if delta is not None:
                _take_delta(state, choice, delta, out, torn=torn)
            if choice.finish_reason:
                state.finish = FINISH.get(choice.finish_reason.lower(), "stop")
        if chunk.usage is not None:
            self._usage = _decode_usage(chunk.usage)
        if chunk.service_tier is not None:
            self._tier = chunk.service_tier

    def _end(self, out: list[StreamEvent]) -> None:
        self._over = True
        for number in sorted(self._choices):
            state = self._choices[number]
            _give_up_halves(state, number, out)
            _finish_calls(state, number, out)
            if number:
                out.append(ChoiceFinished(number, _finish(state)))
        first = self._choices.get(0)
        out.append(AnswerFinished(finish=_finish(first), usage=self._usage, service_tier=self._tier))

    def end(self, out: list[StreamEvent]) -> None:
        """The end of an answer that came as one object."""
        if not self._over:
            self._end(out)

    def _fail(self, message: str, out: list[StreamEvent]) -> None:
        if self._over:
            return
        self._over = True
        out.append(AnswerFailed(BackendError(message, code="upstream_cut")))


def decode_answer(body: bytes) -> list[StreamEvent]:
    decoder = ChatDecoder()
    out: list[StreamEvent] = []
    completion = _decode_slowly(body)
    if completion is None:
        return [AnswerFailed(BackendError("The provider's answer is not a chat completion.", code="upstream_invalid"))]
    if not completion.choices and completion.error is None:
        return [AnswerFailed(BackendError("The provider's answer has no choices.", code="upstream_invalid"))]
    decoder.take(completion, out, torn=True)
    decoder.end(out)
    return out


def _take_delta(state: _ChoiceState, choice: _Choice, delta: _Delta, out: list[StreamEvent], *, torn: bool) -> None:
    number = choice.index
    content = delta.content
    if content:
        if isinstance(content, str) and choice.logprobs is None and not torn and not state.halves:
            out.append(TextDelta(content, number))
        else:
            _take_content(state, choice, content, out)
    thought = delta.reasoning_content or (delta.reasoning if isinstance(delta.reasoning, str) else None)
    if thought:
        out.append(ReasoningDelta(state.whole("reasoning", thought), "text", 0, number))
    if delta.refusal:
        out.append(RefusalDelta(state.whole("refusal", delta.refusal), number))
    if delta.tool_calls:
        for part in delta.tool_calls:
            _take_call(state, number, part, out)
    if delta.function_call is not None:
        _take_call(state, number, _ToolCall(index=0, function=delta.function_call), out)
    for annotation in delta.annotations or ():
        flat = _flat_annotation(annotation)
        if flat is not None:
            out.append(AnnotationAdded(flat, number))


def _take_content(state: _ChoiceState, choice: _Choice, content: str | list[Any], out: list[StreamEvent]) -> None:
    number = choice.index
    logprobs = choice.logprobs.content if isinstance(choice.logprobs, _Logprobs) else None
    if isinstance(content, str):
        text = state.whole("content", content)
        if text or logprobs:
            out.append(TextDelta(text, number, logprobs))
        return
    for part in content:  # Mistral's parts
        match part:
            case {"type": "text", "text": str(text)}:
                out.append(TextDelta(state.whole("content", text), number, logprobs))
            case {"type": "thinking", "thinking": list(thoughts)}:
                pieces = [
                    thought["text"] for thought in thoughts if isinstance(thought, dict) and isinstance(thought.get("text"), str)
                ]
                out.append(ReasoningDelta(state.whole("reasoning", "".join(pieces)), "text", 0, number))
            case _:
                pass


def _take_call(state: _ChoiceState, number: int, part: _ToolCall, out: list[StreamEvent]) -> None:
    call = state.call_for(part)
    if part.custom is not None:
        call.kind = "custom"
        name, grown = part.custom.name, part.custom.input
    elif part.function is not None:
        name, grown = part.function.name, _arguments(part.function.arguments)
    else:
        name, grown = None, None
    if part.id and call.id is None:
        call.id = part.id
        state.by_id[part.id] = call
    if name and call.name is None:
        call.name = name
        extra: JsonObject | None = {"extra_content": part.extra_content} if part.extra_content else None
        out.append(CallStarted(call.index, name, "", call.kind, number, None, extra))
        grown = "".join(call.early) + (grown or "")
        call.early.clear()
    if grown:
        if call.name is None:
            call.early.append(grown)
            return
        grown = state.whole(call, grown)
        if grown:
            call.pieces.append(grown)
            out.append(ArgumentsDelta(call.index, grown, number))


def _give_up_halves(state: _ChoiceState, number: int, out: list[StreamEvent]) -> None:
    """A half whose other half never came."""
    for stream in state.halves:
        match stream:
            case "content":
                out.append(TextDelta("\ufffd", number))
            case "reasoning":
                out.append(ReasoningDelta("\ufffd", "text", 0, number))
            case "refusal":
                out.append(RefusalDelta("\ufffd", number))
            case _OpenCall(index=index):
                out.append(ArgumentsDelta(index, "\ufffd", number))
            case _:
                pass


def _finish_calls(state: _ChoiceState, number: int, out: list[StreamEvent]) -> None:
    """An answer that was cut finishes only the calls whose arguments are whole."""
    cut = state.finish in ("length", "content_filter")
    for call in state.calls:
        if call.name is None:
            continue
        if cut and not call.is_whole():
            continue
        if not call.pieces and call.kind == "function":
            out.append(ArgumentsDelta(call.index, "{}", number))
        out.append(CallFinished(call.index, number))


def _finish(state: _ChoiceState | None) -> Finish:
    if state is None or state.finish is None:
        return "stop"
    called = any(call.name is not None for call in state.calls)
    return "calls" if called and state.finish == "stop" else state.finish


def _arguments(arguments: str | dict[str, Any] | list[Any] | None) -> str | None:
    """Some providers send the arguments as an object."""
    return arguments if arguments is None or isinstance(arguments, str) else encode(arguments).decode()


def _decode_slowly(frame: bytes) -> _Chunk | None:
    """Frames with lone surrogate escapes, which the fast decoder refuses."""
    try:
        return msgspec.convert(decode(frame), _Chunk)
    except (ValueError, msgspec.ValidationError):
        return None


def _decode_usage(usage: _Usage) -> Usage:
    prompt = usage.prompt_tokens_details or _PromptDetails()
    completion = usage.completion_tokens_details or _CompletionDetails()
    return Usage(
        input=usage.prompt_tokens or 0,
        output=usage.completion_tokens or 0,
        total=usage.total_tokens,
        cached=prompt.cached_tokens,
        cache_written=prompt.cache_write_tokens,
        audio_in=prompt.audio_tokens,
        reasoning=completion.reasoning_tokens,
        audio_out=completion.audio_tokens,
        accepted_prediction=completion.accepted_prediction_tokens,
        rejected_prediction=completion.rejected_prediction_tokens,
    )


def _flat_annotation(raw: Json) -> JsonObject | None:
    match raw:
        case {"type": "url_citation", "url_citation": dict(members)}:
            return {"type": "url_citation", **members}
        case dict():
            return raw
        case _:
            return None


def _status(error: object) -> int:
    """The status that an error in a stream speaks of, where it names one."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code <= 599 else 502
