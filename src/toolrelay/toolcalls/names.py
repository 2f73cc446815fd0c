"""A one-to-one mapping of tool names to names that models and servers accept."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from hashlib import sha256
from typing import TypeVar

from msgspec.structs import replace

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool

MAX_LENGTH = 64
_INVALID = re.compile(r"[^A-Za-z0-9_-]+")
_RESERVED = frozenset({"functions", "multi_tool_use", "python", "browser", "container", "assistant", "user", "system", "tool"})

_Named = TypeVar("_Named", Tool, Call)


class ToolNames:
    """The names of one request. Valid names stay as they are; the same request gives the same mapping."""

    def __init__(self, names: Iterable[str]) -> None:
        self._to_model: dict[str, str] = {}
        self._to_client: dict[str, str] = {}
        unique = list(dict.fromkeys(names))
        for name in sorted(unique, key=_is_valid, reverse=True):  # a name that stays must not be given to another
            self._to_model[name] = mapped = name if _is_valid(name) else self._make_valid(name)
            self._to_client[mapped] = name

    def _make_valid(self, name: str) -> str:
        return make_valid_name(name, self._to_client)

    @property
    def are_unchanged(self) -> bool:
        return all(name == mapped for name, mapped in self._to_model.items())

    def to_model(self, name: str) -> str:
        """Return the model's name for a tool, also for one that occurs in the history only."""
        return self._to_model.get(name) or (name if _is_valid(name) else self._make_valid(name))

    def to_client(self, name: str) -> str:
        return self._to_client.get(name, name)

    def rename(self, named: _Named) -> _Named:
        """Return the tool or call with the model's name for it."""
        return replace(named, name=self.to_model(named.name))


def make_valid_name(name: str, taken: Container[str], seed: str = "") -> str:
    """Return a valid name near the given one that is not taken. `seed` decides between equal names; by default it is the name."""
    cleaned = _INVALID.sub("_", name).strip("_") or "tool"
    if _is_valid(cleaned) and cleaned not in taken:
        return cleaned
    hashed = (seed or name).encode(errors="surrogatepass")
    while True:
        digest = sha256(hashed).hexdigest()[:8]
        unique = f"{cleaned[: MAX_LENGTH - len(digest) - 1]}_{digest}"
        if unique not in taken:
            return unique
        hashed += b"\0"


def _is_valid(name: str) -> bool:
    return 0 < len(name) <= MAX_LENGTH and _INVALID.search(name) is None and name not in _RESERVED
