"""Codex's JSON read without trust, and what it is told."""

from __future__ import annotations

import msgspec

from toolrelay.core.json import Json, JsonObject

_encode = msgspec.json.Encoder().encode


def failed_call(text: str) -> JsonObject:
    """A tool's result, for Codex. It would not show the model the words of an error."""
    return {"contentItems": [{"type": "inputText", "text": text}], "success": False}


def text_of(members: JsonObject, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def number_of(members: JsonObject, name: str) -> int:
    value = members.get(name)
    return value if isinstance(value, int) else 0


def object_of(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def json_of(value: Json) -> str:
    return _encode(value).decode()
