"""Gemini, the frames of a provider's stream and its whole answers, as far as they are read. Both have the same shape."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolrelay.core.events import Usage, limit_tokens
from toolrelay.core.json import JsonObject
from toolrelay.wires.json import decode, encode_repaired, repair_surrogates


class FunctionCall(Struct, rename="camel"):
    """A call. `args` stay as the provider wrote them."""

    name: str = ""
    args: Raw = Raw(b"{}")


class AnswerPart(Struct, rename="camel"):
    """A part of an answer. `text` is null and `function_call` is none in parts of other kinds."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class AnswerContent(Struct):
    parts: list[Raw] | None = None


class Candidate(Struct, rename="camel"):
    content: AnswerContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class PromptFeedback(Struct, rename="camel"):
    block_reason: str | None = None


class ContentFrame(Struct, rename="camel"):
    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: dict[str, Any] | None = None
    model_version: str | None = None
    error: Any = None

    @property
    def says_nothing(self) -> bool:
        return all(getattr(self, name) is None for name in self.__struct_fields__)


_decode_frame = msgspec.json.Decoder(ContentFrame).decode
_decode_part = msgspec.json.Decoder(AnswerPart).decode
_NOT_OPAQUE = frozenset({"text", "thought", "thoughtSignature", "functionCall", "partMetadata"})


def decode_frames(data: bytes) -> list[ContentFrame]:
    """Decode a frame, also one with lone surrogates, or a list of frames, which is the API's stream without `alt=sse`.

    Raise ValueError if it is neither.
    """
    try:
        return [_decode_frame(data)]
    except (ValueError, RecursionError):
        value = decode(data)
    return [_decode_tolerantly(each) for each in (value if isinstance(value, list) and value else [value])]


def _decode_tolerantly(value: object) -> ContentFrame:
    if isinstance(value, dict) and value.get("error"):
        return ContentFrame(error=value["error"])
    return _decode_frame(encode_repaired(repair_surrogates(value)))


def decode_part(raw: Raw) -> tuple[AnswerPart, JsonObject | None]:
    """Decode a part, and return it as it came if it is of another kind than text and calls. Raise ValueError."""
    part = _decode_part(raw)
    if part.text is not None or part.function_call is not None:
        return part, None
    members: JsonObject = decode(bytes(raw))
    return part, members if members.keys() - _NOT_OPAQUE else None


class UsageMetadata:
    """The usage of an answer. Each frame has the figures so far, and the last ones count."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: JsonObject = {}

    def add(self, members: JsonObject | None) -> None:
        self._members |= {key: value for key, value in (members or {}).items() if value is not None}

    def total(self) -> Usage | None:
        if not self._members:
            return None
        thoughts = self._tokens("thoughtsTokenCount")
        return Usage(
            input=(self._tokens("promptTokenCount") or 0) + (self._tokens("toolUsePromptTokenCount") or 0),
            output=(self._tokens("candidatesTokenCount") or 0) + (thoughts or 0),
            total=self._tokens("totalTokenCount"),
            cached=self._tokens("cachedContentTokenCount"),
            reasoning=thoughts,
        )

    def _tokens(self, name: str) -> int | None:
        value = self._members.get(name)
        return limit_tokens(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
