"""The tools that a user's message names, and the argument values that it offers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct

from toolrelay.core.json import Json
from toolrelay.core.request import Tool

_PREPOSITIONS = "about|at|by|called|for|from|in|named|near|of|on|with"
_BEFORE = rf"(?<!\w)(?i:{_PREPOSITIONS})\s"
_END = r"[!?\n]|\.(?:\s|$)|$"
_NAMES = r"(?<!\w)[A-ZÀ-ÖØ-Þ][\w'/-]*+(?:\s(?:(?:da|de|del|du|la)\s)?[A-ZÀ-ÖØ-Þ][\w'/-]*+)*+"
_NAME_LIST = re.compile(rf"{_BEFORE}({_NAMES}(?:,\s?{_NAMES})*+,?\sand\s{_NAMES})")
_PHRASE = re.compile(rf"{_BEFORE}(.+?)(?=\s{_BEFORE}|\sto\s|[,;:]|{_END})")
_SENTENCE = re.compile(rf"(?:{_BEFORE}|:\s)(.+?)(?:{_END})")
_SEPARATOR = re.compile(r",?\s(?:and|or)\s|,")
_QUOTED = re.compile(r"\"([^\"]{1,1000})\"|“([^”]{1,1000})”|`([^`]{1,1000})`|(?<!\w)'([^'\n]{1,1000})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.-])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![0-9-])")
_ASSIGNMENT = re.compile(r"(?<!\w)((?:\w++[ -]){0,3}\w++)[\"']?\s?(?:[:=]\s?[\"']([^\"'\n]*)|:\s?([^,;\n]+)|=\s?([^\s,;]+))")
_LEADING = re.compile(rf"^(?:(?:a|an|my|our|the|this|to|your|{_PREPOSITIONS}) )+", re.IGNORECASE)
_TRAILING = re.compile(r"(?:[ ,]*\b(?:also|and|is|now|or|please|right|then|today|tomorrow|what))+[ ,.!?]*$", re.IGNORECASE)
_WRITTEN_CALL = re.compile(r"(?<![\w./-])([\w./-]++)(?:\swith)?(?:\sarguments)?[\s`:(]{0,5}(?=\{)")
_WORD = re.compile(r"[^\W_]+")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_JSON = json.JSONDecoder(parse_constant=int)  # int refuses NaN and Infinity, which are not JSON


def _split(text: str) -> list[str]:
    """Split into lower-case singular words: `getWeather`, `get_weather` and `Get weathers` are all get, weather."""
    return [re.sub(r"(?<=...)s$", "", word.casefold()) for word in _WORD.findall(_CAMEL_CASE.sub(" ", text))]


_FREE_TEXT = frozenset(_split("body content input keyword message prompt q query question search term text"))
_COMMON_WORDS = frozenset(
    _split(
        "a an and api are by call can current do fetch for from function get give how i in is it list make me my now of on or "
        "please run set show tell that the this to tool use what when where which who why with you your"
    )
)


class ToolMention(Struct, frozen=True):
    """A tool that a message asks for: the part of the message about it, or the arguments that are written there."""

    tool: Tool
    focus: str = ""
    arguments: str | None = None


def excerpt(text: str, length: int = 4_000) -> str:
    """Keep the start and the end of a long text, so that a search in it is bounded."""
    return text if len(text) <= length else f"{text[: length // 2]}\n{text[-length // 2 :]}"


def find_tools(text: str, tools: Sequence[Tool]) -> list[ToolMention]:
    """Return the calls that are written out as `tool {…}`; else the tools whose name, or each uncommon word of it, is there."""
    if written := _find_written(text, tools):
        return written
    text = excerpt(text)
    first = {_split(word[0].casefold())[0]: word.start() for word in reversed(list(_WORD.finditer(text)))}
    found: list[tuple[Sequence[int], Tool]] = []  # a tool, and where its name or its words are
    for tool in tools:
        parts = r"[\W_]?".join(map(re.escape, _WORD.findall(_CAMEL_CASE.sub(" ", tool.name))))
        name = re.search(rf"(?<![^\W_]){parts}(?![^\W_])", text, re.IGNORECASE) if parts else None
        uncommon = set(_split(tool.name)) - _COMMON_WORDS
        if name or (uncommon and uncommon <= first.keys()):
            found.append((range(*name.span()) if name else [first[word] for word in uncommon], tool))
    found.sort(key=lambda match: len(match[0]), reverse=True)
    # A tool is dropped if one before it has the same words and more.
    kept = [match for rank, match in enumerate(found) if not any(set(match[0]) <= set(places) for places, _ in found[:rank])]
    kept.sort(key=lambda match: min(match[0]))
    starts = [places.stop if isinstance(places, range) else min(places) for places, _ in kept]  # a full name is no value
    ends = [*(min(places) for places, _ in kept[1:]), len(text)]
    return [ToolMention(tool, text[start:end]) for (_, tool), start, end in zip(kept, starts, ends, strict=False)]


def _find_written(text: str, tools: Sequence[Tool]) -> list[ToolMention]:
    known = {key: tool for tool in reversed(tools) for key in ("".join(_split(tool.name)), tool.name)}
    found, end = [], 0
    for match in islice(_WRITTEN_CALL.finditer(text), 1000):
        tool = known.get(match[1]) or known.get("".join(_split(match[1])))
        if tool and match.start() >= end:
            try:
                _, end = _JSON.raw_decode(text, match.end())
            except (ValueError, RecursionError):
                continue
            found.append(ToolMention(tool, arguments=text[match.end() : end]))
    return found


def best_tool(text: str, tools: Sequence[Tool]) -> ToolMention:
    """Return the tool with the most words in common with the message, or else the first."""
    words = set(_split(excerpt(text))) - _COMMON_WORDS
    best = max(tools, key=lambda tool: len(words.intersection(_split(tool.name))))
    return next(iter(find_tools(text, [best])), ToolMention(best))


def quoted_texts(text: str) -> list[str]:
    return [quoted for match in _QUOTED.finditer(text) if (quoted := "".join(match.groups(default=""))).strip()]


def split_names(text: str) -> list[str]:
    """Return a text for each name in a list: `weather in Paris and Tokyo` gives two."""
    match = _NAME_LIST.search(text)
    names = _SEPARATOR.split(match[1])[:16] if match else []
    return [text[: match.start(1)] + name.strip() + text[match.end(1) :] for name in names] if match else [text]


class MessageValues:
    """The values that a message offers for arguments, each to be used once. `focus` is searched before the whole message."""

    def __init__(self, message: str, focus: str = "", tool: str = "") -> None:
        ignored = _COMMON_WORDS.union(_split(tool))
        text = "\n".join(dict.fromkeys(filter(None, [excerpt(focus), excerpt(message)])))
        bare = _QUOTED.sub(" ", text)
        sentence = _SENTENCE.search(bare)
        phrases = [phrase for found in _PHRASE.findall(bare) if not ignored.issuperset(_split(phrase := _trim(found)))]
        names = re.findall(_NAMES, _WORD.sub(lambda word: "," if ignored.issuperset(_split(word[0])) else word[0], bare))
        self.fallback = _trim(re.split(_END, focus.strip(), maxsplit=1)[0]) or excerpt(message.strip())
        self._quoted = quoted_texts(text)
        self._names = [*self._quoted, *names, *phrases][:100]
        self._free_text = _trim(sentence[1]) if sentence else ""
        self._tokens = [token.strip(".,;:!?\"'`()") for token in text.split()][:100]
        self._words = f" {' '.join(_split(text))} "
        self._numbers = _numbers(excerpt(focus)) or _numbers(text)
        self._taken = {""}
        self._assigned: dict[str, str] = {}
        for match in _ASSIGNMENT.finditer(text):
            words = _split(match[1])
            for start in range(len(words)):
                self._assigned.setdefault("".join(words[start:]), (match[2] or match[3] or match[4] or "").strip(" .!?"))

    def candidates(self, name: str, *, is_wanted: bool, is_text: bool) -> Iterator[Json]:
        """Yield what could be the value of an argument. One that is not wanted must be named, or its value limited."""
        words = _split(name)
        is_named = bool(words) and f" {' '.join(words)} " in self._words
        assigned = self._assigned.get("".join(words), "")
        if is_text:
            texts = self._names if _FREE_TEXT.isdisjoint(words) else [*self._quoted, self._free_text]
            yield from (text for text in [assigned, *(texts if is_wanted else [])] if text not in self._taken)
            return
        if assigned:
            yield from [*_numbers(assigned), assigned.casefold() not in ("false", "no", "off")]
        yield from (text for token in [assigned, *self._quoted, *self._tokens] if token for text in (token, token.casefold()))
        if is_wanted or is_named:
            yield from [*self._numbers]
            items: list[Json] = [*self._quoted] or [item for part in _SEPARATOR.split(self._free_text) if (item := _trim(part))]
            yield from filter(None, ([*self._numbers], items))
        if is_named:
            yield True

    def take(self, value: Json) -> None:
        if value in self._numbers and not isinstance(value, bool):  # True equals 1
            self._numbers.remove(value)
        self._taken |= {value, value.casefold(), value.capitalize()} if isinstance(value, str) else set()


def _trim(phrase: str) -> str:
    return _TRAILING.sub("", _LEADING.sub("", " ".join(phrase.split()))).strip(" ,;:!?\"'`")


def _numbers(text: str) -> list[Json]:
    return [float(number) if "." in number else int(number) for number in _NUMBER.findall(text)[:100]]
