"""Anthropic Messages, an answer to a client as one object, and what its stream has in common with it."""

from __future__ import annotations

from typing import Any

from toolrelay.core.assembly import Answer
from toolrelay.core.events import Finish, Usage
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Message, OpaqueItem, OutputItem, Reasoning, Refusal, Text
from toolrelay.wires.anthropic.content import citation_of
from toolrelay.wires.anthropic.thinking import NAME, thinking_block
from toolrelay.wires.base import Envelope
from toolrelay.wires.json import arguments_object, encode_repaired

# Ours for each of theirs, and theirs for each of ours.
FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
STOP_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def encode_answer(answer: Answer, envelope: Envelope) -> bytes:
    """Encode a whole answer: what its stream amounts to."""
    content = [block for item in answer.items for block in _blocks(item)]
    ending = stop_members(answer.finish, answer.extra)
    return encode_repaired({**message_head(envelope), "content": content, **ending, "usage": usage_members(answer)})


def message_head(envelope: Envelope) -> dict[str, Any]:
    return {"id": f"msg_{envelope.token}", "type": "message", "role": "assistant", "model": envelope.model}


def _blocks(item: OutputItem) -> list[Any]:
    match item:
        case Message(content=tuple(parts)):
            return [_text_block(part) for part in parts if isinstance(part, Text | Refusal)]
        case Reasoning():
            block = thinking_block(item)
            return [] if block is None else [block]
        case Call():
            return [{**call_head(item.id, item.name, item.extra), "input": arguments_object(item.arguments)}]
        case OpaqueItem(wire=wire, raw=raw) if wire == NAME:
            return [raw]
        case _:  # gateway calls and other wires' items, which this API has no blocks for
            return []


def _text_block(part: Text | Refusal) -> JsonObject:
    block: JsonObject = {"type": "text", "text": part.text}
    citations: list[Json] = [
        citation
        for annotation in (part.annotations if isinstance(part, Text) else ())
        if (citation := citation_of(annotation)) is not None
    ]
    return {**block, "citations": citations} if citations else block


def call_head(identifier: str, name: str, extra: JsonObject | None) -> JsonObject:
    """Return the block of a call without its arguments. `extra` may have who may call it, and the toolset."""
    known = {key: value for key, value in (extra or {}).items() if key in ("caller", "toolset_name")}
    return {"type": "tool_use", "id": identifier, "name": name, **known}


def stop_members(finish: Finish, extra: JsonObject | None) -> JsonObject:
    """Return why the answer ended. `extra` is what a provider with this API said, or the stop sequence that was found."""
    said = extra or {}
    reason, sequence = said.get("stop_reason"), said.get("stop_sequence")
    if finish == "stop" and isinstance(sequence, str):
        reason = "stop_sequence"
    if not isinstance(reason, str) or FINISHES.get(reason) != finish:
        reason = STOP_REASONS[finish]
    members: JsonObject = {"stop_reason": reason, "stop_sequence": sequence if reason == "stop_sequence" else None}
    details = said.get("stop_details")
    return {**members, "stop_details": details} if isinstance(details, dict) else members


def usage_members(answer: Answer) -> JsonObject:
    return encode_usage(answer.usage, answer.extra)


def encode_usage(usage: Usage | None, extra: JsonObject | None) -> JsonObject:
    """Encode the usage, which the API requires. Its input tokens are those that the cache did not save or take."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cached, written = usage.cached or 0, usage.cache_written or 0
    members: JsonObject = {"input_tokens": max(usage.input - cached - written, 0)}
    if usage.cache_written is not None:
        members["cache_creation_input_tokens"] = written
    if usage.cached is not None:
        members["cache_read_input_tokens"] = cached
    members["output_tokens"] = usage.output
    if usage.reasoning is not None:
        members["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    more = (extra or {}).get("usage")
    return {**more, **members} if isinstance(more, dict) else members
