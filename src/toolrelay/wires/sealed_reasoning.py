"""Reasoning that only its provider can read, carried as opaque text through the other wires.

OpenAI's encrypted content is carried as it is. What belongs to another wire is marked with that wire's name, so that no provider
gets what it cannot read.
"""

from __future__ import annotations

import re

_MARKED = re.compile(r"toolrelay:([a-z_]+):(.*)", re.DOTALL)


def seal(wire: str, data: str) -> str:
    """Mark data of a wire."""
    return f"toolrelay:{wire}:{data}"


def unseal(sealed: str) -> tuple[str, str] | None:
    """Return the wire and its data, or None for text without a mark."""
    found = _MARKED.fullmatch(sealed)
    return None if found is None else (found[1], found[2])
