"""Chat Completions, a provider's chunk or completion, as far as it is read. Every member may be null or missing."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from toolrelay.core.events import Finish, Usage, limit_tokens
from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import BackendError
from toolrelay.wires.errors import decode_error
from toolrelay.wires.json import decode, decode_repaired, encode, repair_surrogates

FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "content_filter",
    # other providers' names
    "eos": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "calls",
    "safety": "content_filter",
    "sensitive": "content_filter",
}
FAILURES = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


class FunctionDelta(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class CustomDelta(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: FunctionDelta | None = None
    custom: CustomDelta | None = None
    extra_content: dict[str, Any] | None = None


class ChoiceDelta(Struct, gc=False):
    content: str | list[Any] | None = None
    tool_calls: list[CallDelta] | None = None
    reasoning_content: str | None = None
    reasoning: str | dict[str, Any] | None = None
    reasoning_details: Any = None
    refusal: str | None = None
    function_call: FunctionDelta | None = None
    annotations: list[Any] | None = None


class ChunkChoice(Struct, gc=False):
    index: int | None = None
    delta: ChoiceDelta | None = None
    message: ChoiceDelta | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None
    audio_tokens: int | float | None = None


class _CompletionDetails(Struct, gc=False):
    reasoning_tokens: int | float | None = None
    audio_tokens: int | float | None = None
    accepted_prediction_tokens: int | float | None = None
    rejected_prediction_tokens: int | float | None = None


class ChatUsage(Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    total_tokens: int | float | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class ChatChunk(Struct, gc=False):
    choices: list[ChunkChoice] | None = None
    usage: ChatUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(ChatChunk).decode
_BESIDE: dict[str, Any] = {"usage": ChatUsage | None} | dict.fromkeys(("model", "system_fingerprint", "service_tier"), str | None)
# The members that hold streamed texts, which the next chunk may continue, and those texts.
_CONTAINERS = frozenset({"choices", "delta", "message", "tool_calls", "function", "custom", "function_call"})
_STREAMED = frozenset({"content", "reasoning_content", "reasoning", "refusal", "arguments", "input"})


def decode_tolerantly(frame: bytes) -> ChatChunk | None:
    """Decode a frame that `decode_chunk` refuses: with lone surrogates, invalid UTF-8, or bad members beside the choices.

    Streamed texts keep their lone surrogates, whose other half may come with the next chunk.
    """
    try:
        value = decode(frame.decode(errors="replace"))
        if not isinstance(value, dict):
            return None
        for name, kind in _BESIDE.items():
            try:
                msgspec.convert(value.get(name), kind)
            except msgspec.ValidationError:
                del value[name]
        return msgspec.convert(_repair(value), ChatChunk)
    except ValueError:  # msgspec's own errors are ValueErrors as well
        return None


def _repair(value: Any, name: str = "choices") -> Any:  # noqa: ANN401 -- any JSON
    """Join or replace the surrogates in everything but streamed texts. `name` is the member's."""
    if name in _CONTAINERS:
        match value:
            case dict():
                return {key: _repair(member, key) for key, member in value.items()}
            case list():
                return [_repair(element, name) for element in value]
    if name in _STREAMED and (name != "arguments" or isinstance(value, str)):
        return value
    return repair_surrogates(value)


def token_logprobs(logprobs: Json) -> list[Json] | None:
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    return entries if isinstance(entries, list) and entries else None


def flatten_annotation(raw: Json) -> JsonObject | None:
    """Return the annotation as Responses writes it and the core keeps it."""
    match raw:
        case {"type": "url_citation", "url_citation": dict(members)}:
            return {"type": "url_citation", **members}
        case dict():
            return raw
        case _:
            return None


def decode_usage(usage: ChatUsage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input=limit_tokens(usage.prompt_tokens or 0),
        output=limit_tokens(usage.completion_tokens or 0),
        total=_count(usage.total_tokens),
        cached=None if prompt is None else _count(prompt.cached_tokens),
        cache_written=None if prompt is None else _count(prompt.cache_write_tokens),
        audio_in=None if prompt is None else _count(prompt.audio_tokens),
        reasoning=None if completion is None else _count(completion.reasoning_tokens),
        audio_out=None if completion is None else _count(completion.audio_tokens),
        accepted_prediction=None if completion is None else _count(completion.accepted_prediction_tokens),
        rejected_prediction=None if completion is None else _count(completion.rejected_prediction_tokens),
    )


def _count(tokens: float | None) -> int | None:
    return None if tokens is None else limit_tokens(tokens)


def unusual_error(frame: bytes) -> JsonObject | None:
    """Return an error that is not under `error`, such as vLLM's {"object": "error", …}."""
    try:
        value = decode_repaired(frame.decode(errors="replace"))
    except ValueError:
        return None
    match value:
        case {"object": "error"} | {"type": "error"} | {"message": str()} | {"detail": str()}:
            return {"message": value.get("detail"), **value}
        case _:
            return None


def stream_error(error: Json) -> BackendError:
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code <= 599 else 502
    return decode_error(status, encode({"error": error}))
