"""Ollama's chat, the answer: lines of JSON, or one object, into stream events.

Calls come whole, each in one line. The last line has `done` and the counts of tokens.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from toolrelay.core.events import (
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Finish,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
    limit_tokens,
)
from toolrelay.core.indexes import IndexLimit
from toolrelay.core.json import Json
from toolrelay.errors import BackendError
from toolrelay.wires.decoder import FrameDecoder, provider_error
from toolrelay.wires.errors import error_members
from toolrelay.wires.json import decode, decode_repaired, encode, encode_repaired, may_be_deep
from toolrelay.wires.lines import LineSplitter

_INVALID = "sent a line that is not a part of a chat"
_CUT = "closed the stream before the answer's end"
_NULL = msgspec.Raw(b"null")


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: msgspec.Raw = _NULL


class _ToolCall(Struct, gc=False):
    function: _Function | None = None


class _ChatMessage(Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _ChatLine(Struct, gc=False):
    """A line of the stream, or the whole answer. Every member may be null or missing."""

    model: str | None = None
    message: _ChatMessage | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | float | None = None
    eval_count: int | float | None = None
    logprobs: list[Any] | None = None
    error: Any = None


_decode_line = msgspec.json.Decoder(_ChatLine).decode


class OllamaDecoder(FrameDecoder):
    splitter = LineSplitter

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._limit = IndexLimit("tool calls")
        self._is_started = False

    def _read(self, frame: bytes, out: list[StreamEvent]) -> None:
        line = _decode(frame)
        if line is None:
            raise provider_error(_INVALID)
        self._take(line, out)

    def _read_last(self, frame: bytes, out: list[StreamEvent]) -> None:
        line = _decode(frame)
        if line is not None:
            self._take(line, out)

    def _read_whole(self, body: bytes, out: list[StreamEvent]) -> None:
        line = _decode(body)
        if line is None or (line.message is None and not line.error):
            raise provider_error("answered with something that is not a chat")
        self._take(line, out)
        if not self._is_over:
            self._finish(line, out)

    def _close(self, out: list[StreamEvent]) -> None:  # noqa: ARG002 -- the base class has it
        raise provider_error(_CUT, "upstream_cut")

    def _take(self, line: _ChatLine, out: list[StreamEvent]) -> None:
        if line.error:
            raise _stream_error(line.error)
        if line.message is None and not line.done:
            return
        if not self._is_started:
            self._is_started = True
            out.append(AnswerStarted(model=line.model))
        if line.message is not None:
            self._take_message(line.message, line.logprobs, out)
        if line.done:
            self._finish(line, out)

    def _take_message(self, message: _ChatMessage, logprobs: list[Json] | None, out: list[StreamEvent]) -> None:
        if message.thinking:
            out.append(ReasoningDelta(message.thinking))
        if message.content or logprobs:
            out.append(TextDelta(message.content or "", 0, logprobs or None))
        for call in message.tool_calls or ():
            if call.function is None or not call.function.name:
                raise provider_error("sent a call without a name")
            self._limit.add(self._calls)
            arguments = _arguments(call.function.arguments)
            out.append(CallStarted(self._calls, call.function.name))
            out.append(ArgumentsDelta(self._calls, arguments))
            out.append(CallFinished(self._calls))
            self._calls += 1

    def _finish(self, line: _ChatLine, out: list[StreamEvent]) -> None:
        finish: Finish = "length" if line.done_reason == "length" else "calls" if self._calls else "stop"
        self._is_over = True
        out.append(AnswerFinished(finish=finish, usage=_usage(line)))


def decode_answer(body: bytes) -> list[StreamEvent]:
    return OllamaDecoder().decode_whole(body)


def _decode(frame: bytes) -> _ChatLine | None:
    try:
        line = _decode_line(frame)
    except (ValueError, RecursionError):
        return _decode_tolerantly(frame)
    if may_be_deep(frame):
        try:
            decode(frame)
        except ValueError:
            raise provider_error("sent something that is nested too deeply") from None
    return line


def _decode_tolerantly(frame: bytes) -> _ChatLine | None:
    """Decode a line with lone surrogates or invalid UTF-8."""
    try:
        return _decode_line(encode_repaired(decode_repaired(frame.decode(errors="replace"))))
    except (ValueError, RecursionError):
        return None


def _arguments(raw: msgspec.Raw) -> str:
    """Return the model's own text. Some servers send a string with it."""
    text = bytes(raw).decode(errors="replace").strip()
    if text.startswith('"'):
        text = msgspec.json.decode(text, type=str)
    return "{}" if text in ("", "null") else text


def _usage(line: _ChatLine) -> Usage | None:
    if line.prompt_eval_count is None and line.eval_count is None:
        return None
    return Usage(input=limit_tokens(line.prompt_eval_count or 0), output=limit_tokens(line.eval_count or 0))


def _stream_error(error: Json) -> BackendError:
    message = error_members(encode({"error": error})).get("message")
    return BackendError(message if isinstance(message, str) and message else "The provider failed in the middle of the answer.")
