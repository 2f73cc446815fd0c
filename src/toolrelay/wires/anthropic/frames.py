"""Anthropic Messages, the frames of a provider's stream and its whole answers, as far as they are read."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolrelay.core.events import Usage, limit_tokens
from toolrelay.core.json import JsonObject
from toolrelay.wires.json import decode, encode_repaired, repair_surrogates


class BlockDelta(Struct):
    """The delta of a block, or of the message."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None


class MessageMembers(Struct):
    model: str | None = None
    usage: dict[str, Any] | None = None


class MessageFrame(Struct):
    type: str
    index: int | None = None
    delta: BlockDelta | None = None
    content_block: dict[str, Any] | None = None
    message: MessageMembers | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class WholeBlock(Struct):
    """A block of a whole answer. `input` stays as the model wrote it."""

    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    citations: list[dict[str, Any]] | None = None


class WholeMessage(Struct):
    type: str
    content: list[Raw]
    model: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


decode_frame = msgspec.json.Decoder(MessageFrame).decode
decode_block = msgspec.json.Decoder(WholeBlock).decode
decode_message = msgspec.json.Decoder(WholeMessage).decode

_KNOWN = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)


def decode_tolerantly(frame: bytes) -> MessageFrame | None:
    """Decode a frame with lone surrogates, or of an unknown type, which is ignored. None: it is invalid."""
    try:
        value = decode(frame)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if isinstance(kind, str) and kind not in _KNOWN:
        return MessageFrame(type=kind)
    if kind is None and "error" in value:
        return MessageFrame(type="error", error=value["error"])
    try:
        return msgspec.convert(value, MessageFrame)
    except ValueError:  # of the wrong type, also one of a lone surrogate
        return None


def repair(body: bytes) -> bytes:
    """Return a body without lone surrogates. Raise ValueError if it is not JSON."""
    return encode_repaired(repair_surrogates(decode(body)))


class UsageTotals:
    """The usage of an answer. Its last figures count."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: JsonObject = {}

    def add(self, members: JsonObject | None) -> None:
        self._members |= {key: value for key, value in (members or {}).items() if value is not None}

    def total(self) -> Usage | None:
        if not self._members:
            return None
        cached, written = self._tokens("cache_read_input_tokens"), self._tokens("cache_creation_input_tokens")
        details = self._members.get("output_tokens_details")
        thinking = details.get("thinking_tokens") if isinstance(details, dict) else None
        return Usage(
            input=(self._tokens("input_tokens") or 0) + (cached or 0) + (written or 0),
            output=self._tokens("output_tokens") or 0,
            cached=cached,
            cache_written=written,
            reasoning=_tokens(thinking),
        )

    def rest(self) -> JsonObject:
        """Return the members that only this API has."""
        return {key: value for key, value in self._members.items() if key not in _COUNTED}

    def _tokens(self, name: str) -> int | None:
        return _tokens(self._members.get(name))


_COUNTED = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens_details")


def _tokens(value: object) -> int | None:
    return limit_tokens(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
