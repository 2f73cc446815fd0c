"""Pages of lists: with OpenAI's parameters limit, order and after, or by time, with `before`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolrelay.core.json import JsonObject
from toolrelay.errors import invalid

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
_WHOLE_NUMBER = re.compile("-?[0-9]{1,20}")
_CURSOR = re.compile(r"([0-9.e+-]{1,30})_([\w-]{1,100})")


class ListOptions(Struct, frozen=True, kw_only=True):
    limit: int
    descending: bool
    after: str | None


class Page(Struct, frozen=True, kw_only=True):
    items: Sequence[JsonObject]
    has_more: bool

    def members(self) -> JsonObject:
        ids = [item.get("id") for item in self.items]
        return {
            "object": "list",
            "data": list(self.items),
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": self.has_more,
        }


def list_options(query: Mapping[str, str]) -> ListOptions:
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("'order' must be 'asc' or 'desc'.", "order")
    limit = whole_number(query, "limit", default=DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
    return ListOptions(limit=limit, descending=order == "desc", after=query.get("after") or None)


def page_of(items: Sequence[JsonObject], query: Mapping[str, str]) -> Page:
    """Return the page of a whole list."""
    options = list_options(query)
    ordered = list(reversed(items)) if options.descending else list(items)
    start = 0
    if options.after is not None:
        ids = [item.get("id") for item in ordered]
        if options.after not in ids:
            raise invalid(f"There is no item {options.after!r} in this list.", "after")
        start = ids.index(options.after) + 1
    return Page(items=ordered[start : start + options.limit], has_more=len(ordered) > start + options.limit)


def whole_number(query: Mapping[str, str], name: str, *, default: int, least: int, most: int) -> int:
    given = query.get(name)
    if given is None or given == "":
        return default
    number = int(given) if _WHOLE_NUMBER.fullmatch(given) else most + 1
    if not least <= number <= most:
        raise invalid(f"'{name}' must be a whole number from {least} to {most}.", name)
    return number


def decode_cursor(query: Mapping[str, str]) -> tuple[float, str] | None:
    """Return the time and the id after which a page begins. None: it is the first one."""
    given = query.get("before")
    if not given:
        return None
    match = _CURSOR.fullmatch(given)
    try:
        at = float(match[1]) if match else math.nan
    except ValueError:
        at = math.nan
    if match is None or not math.isfinite(at):
        raise invalid("'before' must be the 'next' of an earlier page.", "before")
    return at, match[2]


def encode_cursor(after: tuple[float, str] | None) -> str | None:
    return None if after is None else f"{after[0]!r}_{after[1]}"
