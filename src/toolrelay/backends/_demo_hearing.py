"""Which tools a user's words ask for, as the demo model hears them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolrelay.backends._demo_clues import WORD, excerpt, name_words, stem, stems, telling, windows
from toolrelay.core.request import Tool

_BEFORE_ARGUMENTS = re.compile(r"(?:[\s`\"'*:=(]|with\b|using\b|the\b|arguments?\b|args\b|parameters?\b|input\b|tool\b)*")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_JSON = json.JSONDecoder(parse_constant=_refuse)  # NaN is Python's, not JSON's


class Wish(Struct, frozen=True, kw_only=True):
    """A call that the words ask for.

    `clause` are the words that belong to it, without its name; `after` those behind its name, where it was named in full;
    `arguments` what the user wrote as such.
    """

    tool: Tool
    clause: str
    after: str = ""
    arguments: str | None = None


class _Claim(Struct, frozen=True, kw_only=True):
    """`words` are the places of the words that speak of the tool; `start` and `end` the full name's, with its arguments."""

    tool: Tool
    words: frozenset[int] = frozenset()
    start: int
    end: int = 0
    arguments: str | None = None


def wishes(text: str, tools: Sequence[Tool]) -> list[Wish]:
    """The calls that the text asks for, in its own order."""
    named = _named(text, tools)
    bare = _without_arguments(text, named)
    places = [(stem(match[0]), match.start()) for window in windows(bare) for match in WORD.finditer(bare, *window)]
    claims = []
    for claim in named:
        words = (place for place, (_, start) in enumerate(places) if claim.start <= start < claim.end)
        claims.append(replace(claim, words=frozenset(words)))
    known = {id(claim.tool) for claim in named}
    claims += _implied(places, [tool for tool in tools if id(tool) not in known])
    heard = frozenset(word for word, _ in places)
    kept = sorted(_strongest(claims, heard), key=lambda claim: claim.start)
    ends = [claim.start for claim in kept[1:]] + [len(text)]
    starts = [0] + [claim.start for claim in kept[1:]]
    return [_wish(text, claim, start, end) for claim, start, end in zip(kept, starts, ends, strict=False)]


def best_match(text: str, tools: Sequence[Tool]) -> Wish:
    """For when something must be called: the tool that has most to do with the text, else the first."""
    heard = frozenset(stems(excerpt(text)))
    best = max(tools, key=lambda tool: (len(telling(name_words(tool.name)) & heard), _kinship(tool, heard)))
    return next(iter(wishes(text, [best])), Wish(tool=best, clause=text))


def _wish(text: str, claim: _Claim, start: int, end: int) -> Wish:
    if not claim.end:
        return Wish(tool=claim.tool, clause=text[start:end])
    after = text[claim.end : end]
    return Wish(tool=claim.tool, clause=f"{text[start : claim.start]} {after}", after=after, arguments=claim.arguments)


def _named(text: str, tools: Sequence[Tool]) -> list[_Claim]:
    """The tools whose full name is in the text. One that is named with arguments is wanted each time, else once."""
    found = [
        (match.start(), -match.end(), match[0] != tool.name, order)
        for order, tool in enumerate(tools)
        for window in windows(text)
        for match in _spelled(tool.name).finditer(text, *window)
    ]
    claims: list[_Claim] = []
    reach = 0
    for start, negative_end, _, order in sorted(found):
        if start < reach:
            continue
        arguments, reach = _arguments_after(text, -negative_end)
        claims.append(_Claim(tool=tools[order], start=start, end=reach, arguments=arguments))
    given = {id(claim.tool) for claim in claims if claim.arguments is not None}
    kept: list[_Claim] = []
    for claim in claims:
        known = id(claim.tool) in given or any(claim.tool is other.tool for other in kept)
        if claim.arguments is not None or not known:
            kept.append(claim)
    return kept


def _spelled(name: str) -> re.Pattern[str]:
    words = [re.escape(word) for word in name_words(name)] or [re.escape(name)]
    return re.compile(r"(?<![^\W_])" + r"(?:[_.\-/:]+|\s)?".join(words) + r"(?![^\W_])", re.IGNORECASE)


def _arguments_after(text: str, place: int) -> tuple[str | None, int]:
    """The JSON object behind a tool's name, as it was written, and where it ends."""
    gap = _BEFORE_ARGUMENTS.match(text, place)
    start = gap.end() if gap else place
    if text[start : start + 1] == "{":
        try:
            _, end = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            return None, place
        return text[start:end], end
    return None, place


def _without_arguments(text: str, named: Sequence[_Claim]) -> str:
    for claim in named:
        if claim.arguments is not None:
            start = claim.end - len(claim.arguments)
            text = text[:start] + " " * len(claim.arguments) + text[claim.end :]
    return text


def _implied(places: Sequence[tuple[str, int]], tools: Sequence[Tool]) -> list[_Claim]:
    """The tools whose telling words are all in the text."""
    first: dict[str, int] = {}
    for place, (word, _) in enumerate(places):
        first.setdefault(word, place)
    claims = []
    for tool in tools:
        needed = telling(name_words(tool.name))
        if needed and needed <= first.keys():
            words = frozenset(first[word] for word in needed)
            claims.append(_Claim(tool=tool, words=words, start=places[min(words)][1]))
    return claims


def _strongest(claims: Sequence[_Claim], heard: frozenset[str]) -> list[_Claim]:
    """Of claims on the same words the one that rests on more of them; of equals, the one whose description fits better."""
    ranks = [(len(claim.words), _kinship(claim.tool, heard), -place) for place, claim in enumerate(claims)]

    def yields(place: int) -> bool:
        words = claims[place].words
        return any(ranks[other] > ranks[place] and words <= claims[other].words for other in range(len(claims)))

    return [claim for place, claim in enumerate(claims) if claim.arguments is not None or not yields(place)]


def _kinship(tool: Tool, heard: frozenset[str]) -> int:
    return len(telling(word.casefold() for word in WORD.findall(tool.description or "")) & heard)
