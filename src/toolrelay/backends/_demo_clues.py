"""What the demo model finds in a user's words that could be made into arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct


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
_FREE = _set("body content input keyword message prompt q query question search term text")
_BEFORE = {"destination": "to", "origin": "from", "recipient": "to", "subject": "about", "title": "called", "topic": "about"}

_HEARD_LENGTH = 4_000
_MOST_PLACES = 16
WORD = re.compile(r"[^\W_]+")
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
_QUOTED = re.compile(r"\"([^\"]{1,1000})\"|“([^”]{1,1000})”|`([^`]{1,1000})`|(?<!\w)'([^'\n]{1,1000})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![0-9])")
_ASSIGNED_NAME = re.compile(r"(\w+(?:[ -]\w+){0,3})[\"'`]?\s?$")
_ASSIGNED_VALUE = re.compile(r"\s?(?:\"([^\"\n]{0,500})\"|'([^'\n]{0,500})'|([^,;\n]{1,500}))")


def windows(text: str) -> list[tuple[int, int]]:
    """The parts that are listened to: of a long text the beginning and the end, where questions stand."""
    half = _HEARD_LENGTH // 2
    return [(0, len(text))] if len(text) <= _HEARD_LENGTH else [(0, half), (len(text) - half, len(text))]


def excerpt(text: str) -> str:
    return "\n".join(text[start:end] for start, end in windows(text))


def stem(word: str) -> str:
    """The word without its case and its plural's s."""
    word = word.casefold()
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def name_words(name: str) -> list[str]:
    """get_weather, getWeather and get-weather are all get, weather."""
    words = _NAME_WORD.findall(name) if name.isascii() else WORD.findall(name)
    return [word.casefold() for word in words]


def stems(text: str) -> list[str]:
    return [stem(word) for word in WORD.findall(text)]


def telling(words: Iterable[str]) -> frozenset[str]:
    return frozenset(stem(word) for word in words if word not in _STOP)


def each_place(clause: str) -> list[str]:
    """A clause for each place: of "weather in Paris and Tokyo", two. One that lists none comes back as it is."""
    clause = excerpt(clause)
    match = _PLACES.search(clause)
    if match is None:
        return [clause]
    places = [place for part in _SEPARATOR.split(match[1]) if (place := part.strip())]
    return [clause[: match.start(1)] + place + clause[match.end(1) :] for place in places[:_MOST_PLACES]]


class Clues:
    """What a text offers for arguments. A string or number that was used is not offered again.

    `clause` is looked at first, `whole` where it holds nothing; `ignored` are words that only name the tool.
    """

    def __init__(self, clause: str, *, whole: str, after: str = "", ignored: Iterable[str] = ()) -> None:
        self.whole = excerpt(whole.strip())
        self._after = _trimmed(_SENTENCE_END.split(excerpt(after.strip(" :\n")), maxsplit=1)[0])
        self._clause = clause = excerpt(clause)
        self._texts = (clause, self.whole) if clause.strip() != self.whole else (clause,)
        self._spoken = [f" {' '.join(stems(text))} " for text in self._texts]
        every = ([_number(match[0]) for match in _NUMBER.finditer(text)] for text in self._texts)
        self._numbers = next((numbers for numbers in every if numbers), [])
        self._assigned = _assignments(self.whole) | _assignments(clause)
        readings = (_read(text, frozenset(stem(word) for word in ignored)) for text in self._texts)
        self._readings = tuple(readings)
        self._found: dict[re.Pattern[str], list[str]] = {}
        self._used: set[str] = set()

    def assigned(self, name: str) -> str | None:
        """The value of `name: value` or `name=value`."""
        return self._assigned.get("".join(name_words(name)))

    def speaks_of(self, name: str) -> bool:
        words = telling(name_words(name))
        return bool(words) and any(all(f" {word} " in spoken for word in words) for spoken in self._spoken)

    def mentioned(self, value: str) -> tuple[int, int] | None:
        """Where the text says this value: a sortable place, or None."""
        words = " ".join(stems(value))
        for rank, spoken in enumerate(self._spoken):
            place = spoken.find(f" {words} ") if words else self._texts[rank].find(value or "\0")
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
        own = _BEFORE.get(name.casefold(), name.casefold())
        free = not _FREE.isdisjoint(stem(word) for word in name_words(name))
        return self._first_unused(
            candidate
            for reading in self._readings
            for candidate in (reading.freely(own, self._after) if free else reading.strictly(own))
        )

    def find(self, pattern: re.Pattern[str]) -> str | None:
        if pattern not in self._found:
            self._found[pattern] = [match[0] for text in self._texts for match in pattern.finditer(text)]
        return self._first_unused(self._found[pattern])

    def _first_unused(self, candidates: Iterable[str]) -> str | None:
        for candidate in candidates:
            if candidate and candidate.casefold() not in self._used:
                self.use(candidate)
                return candidate
        return None

    def elements(self) -> list[str]:
        """The elements of the first list in the text: everything that is quoted, or "a, b and c"."""
        quoted = quotes(self._clause)
        if len(quoted) > 1:
            return quoted
        starts = [self._clause[match.end() : match.end() + 500] for match in _LIST_START.finditer(self._clause)]
        for start in (self._after, *starts):
            enumeration = _SENTENCE_END.split(start, maxsplit=1)[0]
            found = [element for part in _SEPARATOR.split(enumeration) if (element := _trimmed(part))]
            if len(found) > 1:
                return found
        return []

    def remainder(self) -> str:
        """What stands behind the tool's full name."""
        return self._after


class _Reading(Struct, frozen=True, kw_only=True):
    """What could be meant by a text: quoted, behind each preposition, behind the first one, or with a capital."""

    quoted: list[str]
    phrases: list[tuple[str, str]]
    sentence: str
    capitals: list[str]

    def freely(self, own: str, after: str) -> list[str]:
        """For what may be any text, such as a query. `own` is the preposition that belongs to the argument's name."""
        return [*self.quoted, *(phrase for word, phrase in self.phrases if word == own), after, self.sentence]

    def strictly(self, own: str) -> list[str]:
        """For what is more likely a name."""
        first = [phrase for word, phrase in self.phrases if word == own]
        names = [run[0] for _, phrase in self.phrases if (run := _CAPITAL_RUN.match(phrase))]
        others = [phrase for word, phrase in self.phrases if word != "to" and not _CAPITAL_RUN.match(phrase)]
        return first + self.quoted + names + others + self.capitals


def _read(text: str, ignored: frozenset[str]) -> _Reading:
    quoted = quotes(text)
    text = _QUOTED.sub(" ", text)
    phrases = [found for found in _phrases(text) if not all(word in ignored or word in _STOP for word in stems(found[1]))]
    runs = [_without_starters(match[0].split(), ignored) for match in _CAPITAL_RUN.finditer(text)]
    return _Reading(quoted=quoted, phrases=phrases, sentence=_from_first_source(text) if phrases else "", capitals=runs)


def _without_starters(words: list[str], ignored: frozenset[str]) -> str:
    while words and (words[0].casefold() in _STARTERS or ignored.issuperset(stems(words[0]))):
        words.pop(0)
    return " ".join(words)


def quotes(text: str) -> list[str]:
    found = (next(group for group in match.groups() if group is not None) for match in _QUOTED.finditer(text))
    return [quoted for quoted in found if quoted.strip()]


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _phrases(text: str) -> list[tuple[str, str]]:
    """What follows each preposition, up to the next one or a pause."""
    found = []
    matches = list(_PREPOSITION.finditer(text))
    ends = [match.start() for match in matches[1:]] + [len(text)]
    for match, end in zip(matches, ends, strict=False):
        word = match[1].casefold()
        phrase = _trimmed(_PAUSE.split(text[match.end() : end], maxsplit=1)[0])
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
