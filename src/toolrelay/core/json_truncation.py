"""Truncation of JSON values: their longest strings are cut, so that they stay valid JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate

import msgspec

from toolrelay.core.json import Json

MAX_TRIES = 8


def fit_json(value: Json, limit: int) -> bytes | None:
    """Encode the value in at most `limit` bytes, with its longest strings cut and marked. None: it cannot be done."""
    encoded = msgspec.json.encode(value)
    if len(encoded) <= limit:
        return encoded
    sizes = sorted(_size(text) for text in _strings(value))
    budget = limit - (len(encoded) - sum(sizes))
    for _ in range(MAX_TRIES):
        cap = _find_cap(sizes, budget)
        if cap <= 0:
            return None
        encoded = msgspec.json.encode(_map_strings(value, partial(_cut, cap)))
        if len(encoded) <= limit:
            return encoded
        budget -= len(encoded) - limit
    return None


def _size(text: str) -> int:
    return len(msgspec.json.encode(text)) - 2  # without the quotes


def _find_cap(sizes: list[int], budget: int) -> int:
    """Return the greatest size to which strings of these sizes, in order, can be cut so that they fit into the budget."""
    before = 0
    for number, total in enumerate(accumulate(sizes)):
        left = len(sizes) - number
        if before + sizes[number] * left > budget:
            return (budget - before) // left
        before = total
    return budget


def _cut(cap: int, text: str) -> str:
    size = _size(text)
    if size <= cap:
        return text
    note = f" [cut here by the gateway: {len(text)} characters]"
    kept = max(0, int(len(text) * (cap - len(note)) / size))
    return text[:kept] + note


def _strings(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _strings(each)
        case dict():
            for each in value.values():
                yield from _strings(each)
        case _:
            pass


def _map_strings(value: Json, change: Callable[[str], str]) -> Json:
    match value:
        case str():
            return change(value)
        case list():
            return [_map_strings(each, change) for each in value]
        case dict():
            return {name: _map_strings(each, change) for name, each in value.items()}
        case _:
            return value
