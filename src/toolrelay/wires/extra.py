"""Members that only the client's own wire knows: collected when a request is decoded, merged back when it is encoded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from toolrelay.core.json import JsonObject

_NOTHING: Mapping[str, Collection[str]] = {}


def unknown_members(
    raw: dict[str, Any], known: Collection[str], nested: Mapping[str, Collection[str]] = _NOTHING
) -> JsonObject | None:
    """Return the unknown members of an object. Those of the objects named in `nested` stay at their own level."""
    found: JsonObject = {key: value for key, value in raw.items() if key not in known}
    for name, known_inside in nested.items():
        inner = raw.get(name)
        if isinstance(inner, dict):
            unknown: JsonObject = {key: value for key, value in inner.items() if key not in known_inside}
            if unknown:
                found[name] = unknown
    return found or None


def merge_extra(members: JsonObject, extra: JsonObject) -> JsonObject:
    """Return the members with the unknown ones back at their level."""
    if not extra:
        return members
    merged = members | extra
    for key, value in extra.items():
        own = members.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            merged[key] = merge_extra(own, value)
    return merged


def unknown_names(extra: JsonObject) -> list[str]:
    """Return the names to report as dropped: not nulls, nor what only describes an item to its own server."""
    return [name for name, value in extra.items() if value is not None and name not in ("id", "status", "object")]
