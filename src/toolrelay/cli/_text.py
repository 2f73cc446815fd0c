"""Text of others made safe for a terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji need them
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Write control characters, also those that reorder or hide text, as JSON escapes: \u001b.

    In JSON that was encoded they occur only in strings, so that it stays the same JSON. `keep` are left as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join([character if _is_plain(character) or character in keep else _escape(character) for character in text])


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def replace_undecodable(text: str) -> str:
    """Replace what the system could not decode when it was typed or passed as an argument."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def compact_json(value: Any) -> str:  # noqa: ANN401 -- JSON
    """Return JSON in one line."""
    return escape_controls(json.dumps(value, ensure_ascii=False))


def pretty_json(value: Any) -> str:  # noqa: ANN401 -- JSON
    return escape_controls(json.dumps(value, ensure_ascii=False, indent=2), keep="\n")


def _is_plain(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in _HIDDEN


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
