"""What the demo model makes of a user's words: the tools they ask for, and the clues they hold for arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolrelay.core.request import Tool


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_STOP = _set(
    "a an and api by call current do fetch for from function get give in is it list make me my now of on or please run set show "
    "tell that the this to tool use what with you your"
)
_STARTERS = _STOP | _set(
    "am are can check could does find hello hey hi how i if let look open read say search send thanks then we when where which "
    "who why will would write"
)
_ARTICLES = _set("a an my our the this your")
_TAIL = _ARTICLES | _set(
    "also and are currently is like me now or please right thank thanks then today tomorrow tonight what you"
)
_SOURCES = _set("about at called for from in named near of titled to")
_FREE = _set("body content input keyword message prompt q query question search subject term text title topic")

_WORD = re.compile(r"[^\W_]+")
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CAPITAL = r"[A-ZÀ-ÖØ-Þ][\w'\u2019/-]*"
_CAPITALS = rf"{_CAPITAL}(?:\s(?:(?:de|del|du|la|upon)\s)?{_CAPITAL})*"
_CAPITAL_RUN = re.compile(rf"(?<!\w){_CAPITALS}")
_PLACES = re.compile(rf"(?<!\w)(?i:about|at|for|in|of)\s({_CAPITALS}(?:,\s?{_CAPITALS})*,?\sand\s{_CAPITALS})")
_PREPOSITION = re.compile(r"(?<!\w)(about|as|at|by|called|for|from|in|named|near|of|on|titled|to|with)\s", re.IGNORECASE)
_PAUSE = re.compile(r"[,;:!?\n]|\.(?=\s|$)")
_SENTENCE_END = re.compile(r"[!?\n]|\.(?=\s|$)")
_LIST_START = re.compile(r"(?<!\w)(?:about|called|for|from|in|named|of|to|with)\s|:\s?", re.IGNORECASE)
_SEPARATOR = re.compile(r",?\s(?:and|or)\s|,")
# Bounded, so that a text of nothing but opening quotes is read in linear time.
_QUOTED = re.compile(r"\"([^\"]{1,2000})\"|“([^”]{1,2000})”|`([^`]{1,2000})`|(?<!\w)'([^'\n]{1,2000})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![0-9])")
_ASSIGNED_NAME = re.compile(r"(\w+(?:[ -]\w+){0,3})[\"'`]?\s?$")
_ASSIGNED_VALUE = re.compile(r"\s?(?:\"([^\"\n]{0,500})\"|'([^'\n]{0,500})'|([^,;\n]{1,500}))")
_BEFORE_ARGUMENTS = re.compile(r"(?:[\s`\"'*:=(]|with\b|using\b|the\b|arguments?\b|args\b|parameters?\b|input\b|tool\b)*")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_JSON = json.JSONDecoder(parse_constant=_refuse)  # NaN is Python's, not JSON's


def stem(word: str) -> str:
    """The word without its case and its plural's s."""
    word = word.casefold()
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def name_words(name: str) -> list[str]:
    """get_weather, getWeather and get-weather are all get, weather."""
    words = _NAME_WORD.findall(name) if name.isascii() else _WORD.findall(name)
    return [word.casefold() for word in words]


def _stems(text: str) -> list[str]:
    return [stem(word) for word in _WORD.findall(text)]


def _telling(words: Iterable[str]) -> frozenset[str]:
    return frozenset(stem(word) for word in words if word not in _STOP)


# Which tools are asked for


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
    words: frozenset[int]
    start: int
    end: int | None = None
    arguments: str | None = None


def wishes(text: str, tools: Sequence[Tool]) -> list[Wish]:
    """The calls that the text asks for, in its own order."""
    named = _named(text, tools)
    bare = _without_arguments(text, named)
    places = [(stem(match[0]), match.start()) for match in _WORD.finditer(bare)]
    claims = [
        _Claim(
            tool=claim.tool,
            words=frozenset(place for place, (_, start) in enumerate(places) if claim.start <= start < (claim.end or 0)),
            start=claim.start,
            end=claim.end,
            arguments=claim.arguments,
        )
        for claim in named
    ]
    known = {id(claim.tool) for claim in named}
    claims += _implied(places, [tool for tool in tools if id(tool) not in known])
    kept = sorted(_strongest(claims, frozenset(_stems(bare))), key=lambda claim: claim.start)
    ends = [claim.start for claim in kept[1:]] + [len(text)]
    starts = [0] + [claim.start for claim in kept[1:]]
    return [_wish(text, claim, start, end) for claim, start, end in zip(kept, starts, ends, strict=True)]


def best_match(text: str, tools: Sequence[Tool]) -> Wish:
    """For when something must be called: the tool that has most to do with the text, else the first."""
    heard = frozenset(_stems(text))
    best = max(tools, key=lambda tool: (len(_telling(name_words(tool.name)) & heard), _kinship(tool, heard)))
    return next(iter(wishes(text, [best])), Wish(tool=best, clause=text))


def _wish(text: str, claim: _Claim, start: int, end: int) -> Wish:
    if claim.end is None:
        return Wish(tool=claim.tool, clause=text[start:end])
    after = text[claim.end : end]
    return Wish(tool=claim.tool, clause=f"{text[start : claim.start]} {after}", after=after, arguments=claim.arguments)


def _named(text: str, tools: Sequence[Tool]) -> list[_Claim]:
    """The tools whose full name is in the text. One that is named with arguments is wanted each time, else once."""
    found = [
        (match.start(), -match.end(), match[0] != tool.name, order)
        for order, tool in enumerate(tools)
        for match in _spelled(tool.name).finditer(text)
    ]
    claims: list[_Claim] = []
    reach = 0
    for start, negative_end, _, order in sorted(found):
        if start < reach:
            continue
        arguments, reach = _arguments_after(text, -negative_end)
        claims.append(_Claim(tool=tools[order], words=frozenset(), start=start, end=reach, arguments=arguments))
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
        if claim.arguments is not None and claim.end is not None:
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
        telling = _telling(name_words(tool.name))
        if telling and all(word in first for word in telling):
            words = frozenset(first[word] for word in telling)
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
    return len(_telling(word.casefold() for word in _WORD.findall(tool.description or "")) & heard)


def each_place(clause: str) -> list[str]:
    """A clause for each place: of "weather in Paris and Tokyo", two. One that lists none comes back as it is."""
    match = _PLACES.search(clause)
    if match is None:
        return [clause]
    return [
        clause[: match.start(1)] + place.strip() + clause[match.end(1) :] for place in _SEPARATOR.split(match[1]) if place.strip()
    ]


# What can be made into arguments


class Clues:
    """What a text offers for arguments. A string or number that was used is not offered again.

    `clause` is looked at first, `whole` where it holds nothing; `ignored` are words that only name the tool.
    """

    def __init__(self, clause: str, *, whole: str, after: str = "", ignored: Iterable[str] = ()) -> None:
        self.whole = whole.strip()
        self._ignored = frozenset(stem(word) for word in ignored)
        self._clause = clause
        self._after = _trimmed(_SENTENCE_END.split(after.strip(" :\n"), maxsplit=1)[0])
        self._spoken = [f" {' '.join(_stems(text))} " for text in (clause, self.whole)]
        self._numbers = [_number(match[0]) for match in _NUMBER.finditer(clause)] or [
            _number(match[0]) for match in _NUMBER.finditer(self.whole)
        ]
        self._assigned = _assignments(self.whole) | _assignments(clause)
        self._used: set[str] = set()

    def assigned(self, name: str) -> str | None:
        """The value of `name: value` or `name=value`."""
        return self._assigned.get("".join(name_words(name)))

    def speaks_of(self, name: str) -> bool:
        words = _telling(name_words(name))
        return bool(words) and any(all(f" {word} " in spoken for word in words) for spoken in self._spoken)

    def mentioned(self, value: str) -> tuple[int, int] | None:
        """Where the text says this value: a sortable place, or None."""
        words = " ".join(_stems(value))
        for rank, spoken in enumerate(self._spoken):
            place = spoken.find(f" {words} ") if words else (self._clause, self.whole)[rank].find(value or "\0")
            if place >= 0:
                return rank, place
        return None

    def use(self, text: str) -> None:
        self._used.add(text.casefold())

    def kept(self) -> tuple[frozenset[str], tuple[int | float, ...]]:
        """What was used so far and which numbers are left, for `restore`."""
        return frozenset(self._used), tuple(self._numbers)

    def restore(self, kept: tuple[frozenset[str], tuple[int | float, ...]]) -> None:
        self._used, self._numbers = set(kept[0]), list(kept[1])

    def number(self) -> int | float | None:
        return self._numbers.pop(0) if self._numbers else None

    def numbers(self) -> list[int | float]:
        taken, self._numbers = self._numbers, []
        return taken

    def string(self, name: str) -> str | None:
        """The next unused piece of text that could be meant."""
        free = not _FREE.isdisjoint(stem(word) for word in name_words(name))
        for text in (self._clause, self.whole):
            for candidate in self._candidates(text, name, free=free):
                if candidate.casefold() not in self._used:
                    self.use(candidate)
                    return candidate
        return None

    def find(self, pattern: re.Pattern[str]) -> str | None:
        for text in (self._clause, self.whole):
            for match in pattern.finditer(text):
                if match[0].casefold() not in self._used:
                    self.use(match[0])
                    return match[0]
        return None

    def elements(self) -> list[str]:
        """The elements of the first list in the text: everything that is quoted, or "a, b and c"."""
        quoted = quotes(self._clause)
        if len(quoted) > 1:
            return quoted
        for match in _LIST_START.finditer(self._clause):
            enumeration = _SENTENCE_END.split(self._clause[match.end() : match.end() + 500], maxsplit=1)[0]
            found = [element for part in _SEPARATOR.split(enumeration) if (element := _trimmed(part))]
            if len(found) > 1:
                return found
        return []

    def remainder(self) -> str:
        """What stands behind the tool's full name."""
        return self._after

    def _candidates(self, text: str, name: str, *, free: bool) -> list[str]:
        quoted = quotes(text)
        text = _QUOTED.sub(" ", text)
        phrases = [(word, phrase) for word, phrase in _phrases(text) if self._says_something(phrase)]
        own = [phrase for word, phrase in phrases if word == name.casefold()]
        if free:
            return quoted + own + [self._after] * bool(self._after) + [_from_first_source(text)] * bool(phrases)
        capitals = [run[0] for _, phrase in phrases if (run := _CAPITAL_RUN.match(phrase))]
        lower = [phrase for word, phrase in phrases if not _CAPITAL_RUN.match(phrase) and word != "to"]
        others = [self._without_starters(match[0]) for match in _CAPITAL_RUN.finditer(text)]
        return own + quoted + capitals + lower + [other for other in others if other]

    def _says_something(self, phrase: str) -> bool:
        return not all(word in self._ignored or word in _STOP for word in _stems(phrase))

    def _without_starters(self, run: str) -> str:
        words = run.split()
        while words and (words[0].casefold() in _STARTERS or self._ignored.issuperset(_stems(words[0]))):
            words.pop(0)
        return " ".join(words)


def quotes(text: str) -> list[str]:
    return [next(group for group in match.groups() if group is not None) for match in _QUOTED.finditer(text)]


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _phrases(text: str) -> list[tuple[str, str]]:
    """What follows each preposition, up to the next one or a pause."""
    found = []
    matches = list(_PREPOSITION.finditer(text))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        word = match[1].casefold()
        phrase = _trimmed(_PAUSE.split(text[match.end() : following.start() if following else len(text)], maxsplit=1)[0])
        if word in _SOURCES and phrase:
            found.append((word, phrase))
    return found


def _from_first_source(text: str) -> str:
    for match in _PREPOSITION.finditer(text):
        phrase = _trimmed(_SENTENCE_END.split(text[match.end() :], maxsplit=1)[0])
        if match[1].casefold() in _SOURCES and phrase:
            return phrase
    return text.strip()


def _trimmed(phrase: str) -> str:
    """Without articles and a preposition before it, and courtesies behind."""
    words = phrase.split()
    while words and (words[0].casefold() in _ARTICLES or (len(words) > 1 and words[0].casefold() in _SOURCES)):
        words.pop(0)
    while words and words[-1].casefold().strip(",.!?") in _TAIL:
        words.pop()
    return " ".join(words).strip(" ,;:!?\"'`")


def _assignments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in re.finditer("[:=]", text):
        name = _ASSIGNED_NAME.search(text[max(0, match.start() - 64) : match.start()])
        value = _ASSIGNED_VALUE.match(text, match.end())
        if name is None or value is None:
            continue
        quoted = next((group for group in value.groups()[:2] if group is not None), None)
        plain = (value[3] or "").split() if match[0] == "=" else [(value[3] or "").strip(" .!?")]
        said = quoted if quoted is not None else (plain or [""])[0]
        words = name_words(name[1])
        for count in range(1, len(words) + 1) if said else ():
            found.setdefault("".join(words[-count:]), said)
    return found
