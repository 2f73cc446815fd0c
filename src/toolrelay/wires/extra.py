"""Members that only the client's own wire knows: taken from where they stood, and put back there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from toolrelay.core.json import JsonObject

_FLAT: Mapping[str, Collection[str]] = {}


def rest(raw: dict[str, Any], known: Collection[str], inner: Mapping[str, Collection[str]] = _FLAT) -> JsonObject | None:
    """The unknown members of an object; those of the objects that `inner` names stay in their place within it."""
    found: JsonObject = {key: value for key, value in raw.items() if key not in known}
    for name, names in inner.items():
        nested = raw.get(name)
        if isinstance(nested, dict):
            unknown: JsonObject = {key: value for key, value in nested.items() if key not in names}
            if unknown:
                found[name] = unknown
    return found or None


def merged(members: JsonObject, extra: JsonObject) -> JsonObject:
    """The members with the unknown ones back in their places."""
    if not extra:
        return members
    out = members | extra
    for key, value in extra.items():
        own = members.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            out[key] = merged(own, value)
    return out


def unknown_names(extra: JsonObject) -> list[str]:
    """The names of what is lost with it. What says nothing, and what only describes an item to its own server, is no loss."""
    return [name for name, value in extra.items() if value is not None and name not in ("id", "status", "object")]
