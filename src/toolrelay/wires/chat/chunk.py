"""What a provider's chunk or completion holds, as far as it is read: every member may be null, or not there at all."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from toolrelay.core.events import Finish, Usage
from toolrelay.core.json import Json, JsonObject
from toolrelay.errors import BackendError
from toolrelay.wires.errors import decode_error
from toolrelay.wires.json import decode, encode, is_deep, may_be_deep, mended_value

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
    "sensitive": "content_filter",
}
FAILURES = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class ToolCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: dict[str, Any] | None = None


class Delta(Struct, gc=False):
    content: str | list[Any] | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | dict[str, Any] | None = None
    refusal: str | None = None
    function_call: Function | None = None
    annotations: list[Any] | None = None


class Choice(Struct, gc=False):
    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
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


_NO_PROMPT_DETAILS = _PromptDetails()
_NO_COMPLETION_DETAILS = _CompletionDetails()


class UsageMembers(Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    total_tokens: int | float | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: UsageMembers | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
# Members beside the answer itself. Where one of them is not what it should be, the answer is worth more.
_ASIDE: tuple[tuple[str, Any], ...] = (
    ("usage", UsageMembers | None),
    ("model", str | None),
    ("system_fingerprint", str | None),
    ("service_tier", str | None),
)


def decode_slowly(frame: bytes) -> Chunk | None:
    """For frames that `decode_chunk` refuses: with lone surrogates, bytes that are no UTF-8, or odd members beside the answer.

    Its texts may hold lone surrogates: those that grow, whose other half may come with the next chunk.
    """
    try:
        value = decode(frame.decode(errors="replace"))
        chunk = _convert(value) if isinstance(value, dict) else None
    except ValueError:  # msgspec's own errors are ValueErrors as well
        return None
    if chunk is not None:
        _mend(chunk)
    return chunk


def is_too_deep(frame: bytes, chunk: Chunk) -> bool:
    """Whether it holds something that could not be written again."""
    return may_be_deep(frame) and is_deep(frame, _untyped(chunk))


def _untyped(chunk: Chunk) -> list[Any]:
    """Everything in it that may hold anything."""
    found = [chunk.error]
    for choice in chunk.choices or ():
        found.append(choice.logprobs)
        for delta in (choice.delta, choice.message):
            if delta is not None:
                found += [delta.content, delta.annotations, delta.reasoning, *_arguments(delta)]
                found += [call.extra_content for call in delta.tool_calls or ()]
    return found


def _arguments(delta: Delta) -> list[Any]:
    functions = [delta.function_call, *(call.function for call in delta.tool_calls or ())]
    return [function.arguments for function in functions if function is not None]


def _convert(value: dict[str, Any]) -> Chunk:
    for name, kind in _ASIDE:
        try:
            msgspec.convert(value.get(name), kind)
        except msgspec.ValidationError:
            del value[name]
    return msgspec.convert(value, Chunk)


def _mend(chunk: Chunk) -> None:
    """Puts together, or replaces, the halves of characters in everything but the texts that grow."""
    chunk.error = mended_value(chunk.error)
    chunk.model = mended_value(chunk.model)
    chunk.system_fingerprint = mended_value(chunk.system_fingerprint)
    chunk.service_tier = mended_value(chunk.service_tier)
    for choice in chunk.choices or ():
        choice.logprobs = mended_value(choice.logprobs)
        choice.finish_reason = mended_value(choice.finish_reason)
        for delta in (choice.delta, choice.message):
            if delta is not None:
                delta.annotations = mended_value(delta.annotations)
                _mend_calls(delta)


def _mend_calls(delta: Delta) -> None:
    functions: list[Function | Custom | None] = [delta.function_call]
    for call in delta.tool_calls or ():
        call.id = mended_value(call.id)
        call.extra_content = mended_value(call.extra_content)
        functions += [call.function, call.custom]
    for function in functions:
        if function is None:
            continue
        function.name = mended_value(function.name)
        if isinstance(function, Function) and not isinstance(function.arguments, str):
            function.arguments = mended_value(function.arguments)


def arguments_text(arguments: str | dict[str, Any] | list[Any] | None) -> str | None:
    """Some providers send the arguments as an object."""
    return arguments if arguments is None or isinstance(arguments, str) else encode(arguments).decode()


def token_logprobs(logprobs: Json) -> list[Json] | None:
    """Those of the text, if there are any."""
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    return entries if isinstance(entries, list) and entries else None


def flat_annotation(raw: Json) -> JsonObject | None:
    """As Responses writes it, and the core keeps it."""
    match raw:
        case {"type": "url_citation", "url_citation": dict(members)}:
            return {"type": "url_citation", **members}
        case dict():
            return raw
        case _:
            return None


def decode_usage(usage: UsageMembers) -> Usage:
    prompt = usage.prompt_tokens_details or _NO_PROMPT_DETAILS
    completion = usage.completion_tokens_details or _NO_COMPLETION_DETAILS
    return Usage(
        input=int(usage.prompt_tokens or 0),
        output=int(usage.completion_tokens or 0),
        total=_whole(usage.total_tokens),
        cached=_whole(prompt.cached_tokens),
        cache_written=_whole(prompt.cache_write_tokens),
        audio_in=_whole(prompt.audio_tokens),
        reasoning=_whole(completion.reasoning_tokens),
        audio_out=_whole(completion.audio_tokens),
        accepted_prediction=_whole(completion.accepted_prediction_tokens),
        rejected_prediction=_whole(completion.rejected_prediction_tokens),
    )


def _whole(tokens: float | None) -> int | None:
    return None if tokens is None else int(tokens)


def unusual_error(frame: bytes) -> JsonObject | None:
    """An error that does not stand under `error`, such as vLLM's {"object": "error", …}."""
    try:
        value = mended_value(decode(frame.decode(errors="replace")))
    except ValueError:
        return None
    match value:
        case {"object": "error"} | {"type": "error"} | {"message": str()} | {"detail": str()}:
            return {"message": value.get("detail"), **value}
        case _:
            return None


def error_in(error: Json) -> BackendError:
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code <= 599 else 502
    return decode_error(status, encode({"error": error}))
