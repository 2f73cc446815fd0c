"""The preview of a note in a search result."""

from __future__ import annotations

from itertools import islice

from toolrelay.toolsets.vault.folding import find_place
from toolrelay.toolsets.vault.query import Query

LENGTH = 200  # characters, without the dots
DOTS = "..."

_PLACES = 20  # of each term that are compared


def cut_excerpt(text: str, folded: str, query: Query) -> str:
    """Return the characters around the best match, or the first ones if the query does not occur in the text."""
    place = _best_place(folded, query)
    if place is None:
        return _cut(text, 0)
    if len(text) != len(folded):
        place = find_place(text, place)
    return _cut(text, place - LENGTH // 2)


def _best_place(folded: str, query: Query) -> int | None:
    """Return the first match with the most different terms near it; of these, one that begins a word."""
    found = sorted((place, number) for number, term in enumerate(query.terms) for place in islice(term.places(folded), _PLACES))
    best: tuple[int, bool, int] | None = None
    for index, (place, _) in enumerate(found):
        near = {number for other, number in found[index : index + _PLACES] if other - place < LENGTH // 2}
        begins_word = place == 0 or not folded[place - 1].isalnum()
        score = (len(near), begins_word, -place)
        if best is None or score > best:
            best = score
    return None if best is None else -best[2]


def _cut(text: str, start: int) -> str:
    start = max(0, min(start, len(text) - LENGTH))
    end = start + LENGTH
    return f"{DOTS if start else ''}{text[start:end]}{DOTS if end < len(text) else ''}"
