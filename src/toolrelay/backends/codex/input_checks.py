"""Checks of images and schemas that Codex would drop, refuse or never answer."""

from __future__ import annotations

import binascii
import re

from toolrelay.core.json import Json
from toolrelay.core.request import OutputFormat

# Codex parses JSON of 127 levels, including its own around the schema. It never answers a line with more.
MAX_JSON_DEPTH = 110

_INLINE_IMAGE = re.compile(r"data:image/[^,]{0,80};base64,")
_IMAGE_SIGNATURE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP", re.DOTALL)
_NON_STANDARD_BASE64 = ("-", "_", "\n", "\r", " ", "%")


def is_inline_image(url: str) -> bool:
    return _INLINE_IMAGE.match(url) is not None


def is_readable_image(url: str) -> bool:
    """Check the base64 and the signature of an inline image, without decoding all of it.

    Codex ignores the declared media type. It replaces an image that it cannot read by a sentence, and the model answers as if
    none had been sent.
    """
    start = url.index(",") + 1
    if (len(url) - start) % 4 or url.endswith("===") or any(url.find(mark, start) >= 0 for mark in _NON_STANDARD_BASE64):
        return False
    try:
        head = binascii.a2b_base64(url[start : start + 16], strict_mode=True)
    except ValueError:
        return False
    return _IMAGE_SIGNATURE.match(head) is not None


def is_strict(output: OutputFormat) -> bool:
    """Codex marks every schema as strict. OpenAI refuses that unless all properties are required and no others allowed."""
    return output.schema is not None and (output.strict is True or is_closed(output.schema))


def is_closed(schema: Json) -> bool:
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) or schema.get("type") == "object":
        names = set(properties) if isinstance(properties, dict) else set()
        required = schema.get("required", [])
        if schema.get("additionalProperties") is not False or not isinstance(required, list) or set(map(str, required)) != names:
            return False
    return all(map(is_closed, schema.values()))


def is_too_deep(value: Json, levels: int = MAX_JSON_DEPTH) -> bool:
    if not isinstance(value, dict | list):
        return False
    elements = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_too_deep(element, levels - 1) for element in elements)
