"""The search query: words, "phrases", `tag:` and `path:`.

A note is found if each term occurs in its name or its content, and each filter applies. All is compared in folded form. A term
occurs wherever its characters do, also within a word; a blank in a phrase stands for any number of blanks and line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from toolrelay.errors import ToolError
from toolrelay.toolsets.vault.folding import fold_input

MAX_QUERY_LENGTH = 1000  # characters
MAX_TERMS = 32

_FILTERS = ("tag:", "path:")
_TOKEN = re.compile(r'(?P<filter>tag:|path:)?(?:"(?P<quoted>[^"]*)(?:"|$)|(?P<plain>[^\s"]+))', re.IGNORECASE)
_FINAL_MARKS = ",;.!?:"  # punctuation of a sentence, not part of its last word


class Term:
    """A word or a phrase, folded. `text` has single blanks only."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Term({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """None: the term has no blank, and str methods find it."""
        return re.compile(" +".join(map(re.escape, self.text.split(" ")))) if " " in self.text else None

    def count(self, folded: str) -> int:
        """Count occurrences that do not overlap, from left to right."""
        if self._pattern is None:
            return folded.count(self.text)
        return sum(1 for _ in self._pattern.finditer(folded))

    def places(self, folded: str) -> Iterator[int]:
        """Yield where the occurrences begin."""
        if self._pattern is not None:
            yield from (match.start() for match in self._pattern.finditer(folded))
            return
        place = folded.find(self.text)
        while place >= 0:
            yield place
            place = folded.find(self.text, place + len(self.text))


class Query:
    """`terms`, `tags` and `paths` are folded, without duplicates. A tag has no `#`."""

    def __init__(self, terms: tuple[Term, ...], tags: tuple[str, ...] = (), paths: tuple[str, ...] = ()) -> None:
        self.terms = terms
        self.tags = tags
        self.paths = paths

    def count(self, *folded: str) -> int:
        """Count the matches in these texts of a note. 0: a term is missing. A note found by filters alone is one match."""
        counts = [sum(term.count(text) for text in folded) for term in self.terms]
        return (sum(counts) or int(not counts)) if all(counts) else 0


def parse_query(text: str) -> Query:
    """Parse what the model wrote. Raise ToolError if nothing is left to search for."""
    if len(text) > MAX_QUERY_LENGTH:
        raise ToolError(f"the query has {len(text):,} characters; {MAX_QUERY_LENGTH:,} are allowed")
    terms: dict[Term, None] = {}
    filters: dict[str, dict[str, None]] = {name: {} for name in _FILTERS}
    for match in _TOKEN.finditer(text):
        quoted, plain, name = match["quoted"], match["plain"], (match["filter"] or "").lower()
        value = _clean(quoted if plain is None else _strip_final_marks(plain))
        if not value:
            continue
        if name == "tag:":
            value = value.lstrip("#").strip("/")
        if name and value:
            filters[name][value] = None
        elif not name:
            terms[Term(value)] = None
    if not (terms or any(filters.values())):
        raise ToolError("the query is empty: give at least one word, phrase, tag: or path:")
    if len(terms) + sum(map(len, filters.values())) > MAX_TERMS:
        raise ToolError(f"the query has more than {MAX_TERMS} words and filters")
    return Query(tuple(terms), tuple(filters["tag:"]), tuple(filters["path:"]))


def _clean(text: str) -> str:
    return " ".join(fold_input(text).split())


def _strip_final_marks(word: str) -> str:
    return word.rstrip(_FINAL_MARKS) or word
