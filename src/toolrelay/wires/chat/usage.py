"""Chat Completions, token usage in both directions."""

from __future__ import annotations

from typing import Any

from toolrelay.core.events import Usage
from toolrelay.core.json import JsonObject

# Chat's names of the fields of `Usage`.
_COUNTS = {"prompt_tokens": "input", "completion_tokens": "output", "total_tokens": "total"}
_PROMPT_DETAILS = {"cached_tokens": "cached", "cache_write_tokens": "cache_written", "audio_tokens": "audio_in"}
_COMPLETION_DETAILS = {
    "reasoning_tokens": "reasoning",
    "audio_tokens": "audio_out",
    "accepted_prediction_tokens": "accepted_prediction",
    "rejected_prediction_tokens": "rejected_prediction",
}


def decode_usage(raw: JsonObject) -> Usage | None:
    """Decode a provider's usage. Return None if any count is not a number."""
    counts: dict[str, Any] = {}
    prompt, completion = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    for members, fields in ((raw, _COUNTS), (prompt, _PROMPT_DETAILS), (completion, _COMPLETION_DETAILS)):
        if members is None:
            continue
        if not isinstance(members, dict):
            return None
        for name, count in members.items():
            if name in fields and count is not None:
                if type(count) is not int and type(count) is not float:
                    return None
                counts[fields[name]] = int(count)
    return Usage(**counts)


def encode_usage(usage: Usage) -> JsonObject:
    total = usage.input + usage.output if usage.total is None else usage.total
    members: JsonObject = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total}
    for name, fields in (("prompt_tokens_details", _PROMPT_DETAILS), ("completion_tokens_details", _COMPLETION_DETAILS)):
        details: JsonObject = {own: count for own, field in fields.items() if (count := getattr(usage, field)) is not None}
        if details:
            members[name] = details
    return members
