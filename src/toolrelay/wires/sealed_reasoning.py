"""Reasoning that only its provider can read, carried as opaque text through the other wires.

OpenAI's encrypted content is carried as it is. What belongs to another wire is marked with that wire's name, so that no provider
gets what it cannot read.

A call may have such text, too: Chat clients have no reasoning items, but send calls back as they got them. The member is the one
that Google's Chat Completions have for it, extra_content.google.thought_signature, of which servers of other models know nothing.
"""

from __future__ import annotations

import re

from toolrelay.core.json import JsonObject

EXTRA_CONTENT = "extra_content"
_MARKED = re.compile(r"toolrelay:([a-z_]+):(.*)", re.DOTALL)


def seal(wire: str, data: str) -> str:
    """Mark data of a wire."""
    return f"toolrelay:{wire}:{data}"


def unseal(sealed: str) -> tuple[str, str] | None:
    """Return the wire and its data, or None for text without a mark."""
    found = _MARKED.fullmatch(sealed)
    return None if found is None else (found[1], found[2])


def sealed_extra(sealed: str) -> JsonObject:
    """Return the member of a call that carries text."""
    return {EXTRA_CONTENT: {"google": {"thought_signature": sealed}}}


def carried_text(extra: JsonObject | None) -> str | None:
    """Return the text that a call carries, sealed or as Google's server gave it."""
    match (extra or {}).get(EXTRA_CONTENT):
        case {"google": {"thought_signature": str(text)}}:
            return text
        case _:
            return None
