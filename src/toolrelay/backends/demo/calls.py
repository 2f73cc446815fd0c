"""The tools that a user's message names, and arguments from the message that are valid for their JSON schemas.

The message and the schemas are the client's and may be anything: the work on them is limited, and no reference is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
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
_MAX_COST, _MAX_DEPTH = 5_000, 64
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LISTS = ("allOf", "anyOf", "oneOf", "enum", "examples", "prefixItems", "required")
_TYPES = {"$ref": str, "properties": dict, "minItems": int, "minLength": int, "maxLength": int, **dict.fromkeys(_LISTS, list)}
_SAMPLES = (  # one of each format
    *("2025-01-01", "2025-01-01T00:00:00Z", "12:00:00Z", "P1D", "demo@example.com", "https://example.com", "example.com"),
    *("127.0.0.1", "::1", "00000000-0000-4000-8000-000000000000"),
)
_Schema: TypeAlias = dict[str, Any]  # without $ref and allOf; the keywords in _TYPES have these types
to_json: Callable[[Json], str] = partial(json.dumps, ensure_ascii=False)


def _split(text: str) -> list[str]:
    """Split into lower-case singular words: `getWeather`, `get_weather` and `Get weathers` are all get, weather."""
    return [re.sub(r"(?<=...)s$", "", word.casefold()) for word in _WORD.findall(_CAMEL_CASE.sub(" ", text))]


_FREE_TEXT = frozenset(_split("body content input keyword message prompt q query question search term text"))
_COMMON_WORDS = frozenset(
    _split("""a an and api are by call can current do fetch for from function get give how i in is it list make me my now of on or
    please run set show tell that the this to tool use what when where which who why with you your""")
)


def find_calls(message: str, tools: Sequence[Tool]) -> list[Call]:
    """Return the calls that are written out as `tool {…}`; if there are none, calls of the tools that the message names."""
    known = {key: tool for tool in reversed(tools) for key in ("".join(_split(tool.name)), tool.name)}
    calls, end = [], 0
    for match in islice(_WRITTEN_CALL.finditer(message), 1000):
        tool = known.get(match[1]) or known.get("".join(_split(match[1])))
        if tool and match.start() >= end:
            with suppress(ValueError, RecursionError):
                _, end = _JSON.raw_decode(message, match.end())
                calls.append(Call(id="", name=tool.name, arguments=message[match.end() : end], kind=tool.kind))
    return calls or [call for tool, focus in _find_tools(message, tools) for call in _make_calls(tool, message, focus)]


def call_best_tool(message: str, tools: Sequence[Tool]) -> list[Call]:
    """Return calls of the tool with the most words in common with the message, or else of the first."""
    words = set(_split(_excerpt(message))) - _COMMON_WORDS
    return _make_calls(max(tools, key=lambda tool: len(words.intersection(_split(tool.name)))), message)


def fill_schema(schema: Json, message: str, focus: str = "", tool: str = "") -> Json:
    """Return a value that the schema allows; None if there is none within the limits. `focus` is searched before the message."""
    with suppress(RecursionError):
        return _Generator(schema, _MessageValues(message, focus, tool)).value(schema, ("#",))
    return None


def _excerpt(text: str, length: int = 4_000) -> str:
    """Keep the start and the end of a long text, so that a search in it is bounded."""
    return text if len(text) <= length else f"{text[: length // 2]}\n{text[-length // 2 :]}"


def _find_tools(text: str, tools: Sequence[Tool]) -> list[tuple[Tool, str]]:
    """Return the tools whose name, or each uncommon word of it, is in the text, each with the part of the text about it."""
    text = _excerpt(text)
    first = {_split(word[0].casefold())[0]: word.start() for word in reversed(list(_WORD.finditer(text)))}
    found: list[tuple[set[int], int, Tool]] = []  # where the name or its words are, and where the part about the tool starts
    for tool in tools:
        parts = r"[\W_]?".join(map(re.escape, _WORD.findall(_CAMEL_CASE.sub(" ", tool.name))))
        name = re.search(rf"(?<![^\W_]){parts}(?![^\W_])", text, re.IGNORECASE) if parts else None
        places = set(range(*name.span())) if name else {first.get(word, -1) for word in {*_split(tool.name)} - _COMMON_WORDS}
        if places and -1 not in places:
            found.append((places, name.end() if name else min(places), tool))
    found.sort(key=lambda match: len(match[0]), reverse=True)
    # A tool is dropped if one before it has the same words and more.
    kept = [match for rank, match in enumerate(found) if not any(match[0] <= places for places, _, _ in found[:rank])]
    kept.sort(key=lambda match: min(match[0]))
    ends = [*(min(places) for places, _, _ in kept[1:]), len(text)]
    return [(tool, text[start:end]) for (_, start, tool), end in zip(kept, ends, strict=False)]


def _make_calls(tool: Tool, message: str, focus: str = "") -> list[Call]:
    """Return one call, or one for each name in a list, unless the tool takes a list."""
    if tool.kind == "custom":
        text = next(iter(_quoted_texts(focus or message[:4000])), message.strip())
        return [Call(id="", name=tool.name, arguments=text, kind="custom")]
    names = "".join(_NAME_LIST.findall(focus)[:1])  # Paris and Tokyo
    parts = dict.fromkeys(focus.replace(names, name.strip()) for name in _SEPARATOR.split(names)[:16]) if names else {}
    values = [fill_schema(tool.parameters or {"type": "object"}, message, part, tool.name) for part in [focus, *parts]]
    whole, *each = [value if isinstance(value, dict) else {} for value in values]
    objects = [whole] if not each or any(isinstance(value, list) for value in whole.values()) else each
    return [Call(id="", name=tool.name, arguments=arguments) for arguments in dict.fromkeys(map(to_json, objects))]


def _quoted_texts(text: str) -> list[str]:
    return [quoted for groups in _QUOTED.findall(text) if (quoted := "".join(groups)).strip()]


class _MessageValues:
    """The values that a message offers for arguments, each to be used once. `focus` is searched before the whole message."""

    def __init__(self, message: str, focus: str = "", tool: str = "") -> None:
        message, focus = _excerpt(message), _excerpt(focus)
        text = "\n".join(dict.fromkeys(filter(None, [focus, message])))
        bare = _QUOTED.sub(" ", text)
        ignored = _COMMON_WORDS.union(_split(tool))
        names = re.findall(_NAMES, _WORD.sub(lambda word: "," if ignored.issuperset(_split(word[0])) else word[0], bare))
        phrases = [phrase for found in _PHRASE.findall(bare) if not ignored.issuperset(_split(phrase := _trim(found)))]
        self.fallback = _trim(re.split(_END, focus.strip(), maxsplit=1)[0]) or message.strip()
        self._quoted = _quoted_texts(text)
        self._names = [*self._quoted, *names, *phrases][:100]
        self._free_text = _trim("".join(_SENTENCE.findall(bare)[:1]))
        self._tokens = [token.strip(".,;:!?\"'`()") for token in text.split()][:100]
        self._words = f" {' '.join(_split(text))} "
        self._numbers = _numbers(focus) or _numbers(text)
        self._taken = {""}
        self._assigned: dict[str, str] = {}
        for name, *values in _ASSIGNMENT.findall(text):
            words = _split(name)
            for start in range(len(words)):  # `the red wine: x` assigns to wine, red_wine and the_red_wine
                self._assigned.setdefault("".join(words[start:]), "".join(values).strip(" .!?"))

    def candidates(self, name: str, *, is_wanted: bool, is_text: bool) -> list[Json]:
        """Return what could be the value of an argument. One that is not wanted must be named, or its value limited."""
        words = _split(name)
        assigned = self._assigned.get("".join(words), "")
        if is_text:
            texts = self._names if _FREE_TEXT.isdisjoint(words) else [*self._quoted, self._free_text]
            return [text for text in [assigned, *(texts if is_wanted else [])] if text.casefold() not in self._taken]
        is_named = bool(words) and f" {' '.join(words)} " in self._words
        found: list[Json] = [*_numbers(assigned), assigned.casefold() not in ("false", "no", "off")] if assigned else []
        found += [text for token in [assigned, *self._quoted, *self._tokens] if token for text in (token, token.casefold())]
        if is_wanted or is_named:
            items: list[Json] = [*self._quoted] or [*filter(None, map(_trim, _SEPARATOR.split(self._free_text)))]
            found += [*self._numbers, *filter(None, [[*self._numbers], items])]
        return [*found, True] if is_named else found

    def take(self, value: Json) -> None:
        if value in self._numbers and not isinstance(value, bool):  # True equals 1
            self._numbers.remove(value)
        self._taken.add(str(value).casefold())


def _trim(phrase: str) -> str:
    return _TRAILING.sub("", _LEADING.sub("", " ".join(phrase.split()))).strip(" ,;:!?\"'`")


def _numbers(text: str) -> list[Json]:
    return [float(number) if "." in number else int(number) for number in _NUMBER.findall(text)[:100]]


class _Generator:
    """Raises RecursionError for a schema that is too large or too deep, or that only leads back to itself."""

    def __init__(self, root: Json, values: _MessageValues) -> None:
        self._root = root
        self._values = values
        self._cost = 0

    def value(self, schema: Json, path: tuple[str, ...]) -> Json:
        """Return an object with what the message offers; else the default, null if it is allowed, or a sample."""
        plain, path = self._resolve(schema, path)
        kind = plain.get("type", "object" if "properties" in plain else None)
        if "default" in plain:
            value: Json = plain["default"]
        elif union := plain.pop("anyOf", None) or plain.pop("oneOf", None):
            for part in sorted(union, key=lambda part: part != {"type": "null"}):
                with suppress(RecursionError):
                    return self.value({**plain, "allOf": [part]}, path)
            raise RecursionError
        elif kind == "object":
            value = self._object(plain, path)
        elif kind == "array":
            value = [self.value(each, path) for each in plain.get("prefixItems", [])]
            if missing := max(min(plain.get("minItems", 0), 100) - len(value), 0):
                item, _ = self._resolve(plain.get("items"), path)
                rest = list(islice(filter(self._validator(item, path), self._scalars(item)), missing))  # different values
                rest = rest or [self.value(plain.get("items"), path)]
                value += rest + rest[-1:] * (missing - len(rest))
        else:
            value = next(filter(self._validator(plain, path), self._scalars(plain)), None)
            if value is None and not plain.keys().isdisjoint(("format", "pattern")):  # that no sample fits
                return self.value({key: plain[key] for key in plain if key not in ("format", "pattern")}, path)
        self._spend(len(to_json(value)))
        return value

    def _object(self, plain: _Schema, path: tuple[str, ...]) -> JsonObject:
        members, required = plain.get("properties", {}), [str(name) for name in plain.get("required", [])]
        validators = {name: self._validator(member, path) for name, member in members.items()}
        texts = {name: None for name, is_valid in validators.items() if any(is_valid("\0" * length) for length in (1, 10, 100))}
        wanted = set(required or islice(texts, 1))  # where nothing is required, the first text is filled
        value: JsonObject = {}
        for name in sorted(members, key=texts.__contains__):  # texts get what others do not take
            candidates = self._values.candidates(name, is_wanted=name in wanted, is_text=name in texts)
            for found in islice(filter(validators[name], candidates), 1):
                self._values.take(found)
                value[name] = found
        value |= {name: self.value(members.get(name), path) for name in required if name not in value}
        return {name: value[name] for name in [*members, *value] if name in value}

    def _spend(self, size: int) -> None:
        self._cost += 1 + size // 100
        if self._cost > _MAX_COST:
            raise RecursionError

    def _resolve(self, schema: Json, path: tuple[str, ...]) -> tuple[_Schema, tuple[str, ...]]:
        """Return the schema with $ref and allOf merged into it, a list of types as anyOf, and without malformed keywords."""
        members = schema if isinstance(schema, dict) else {}
        plain: _Schema = {key: value for key, value in members.items() if isinstance(value, _TYPES.get(key, object))}
        if isinstance(plain.get("type"), list):
            plain.setdefault("anyOf", [{"type": kind} for kind in plain.pop("type")])
        ref, parts = plain.pop("$ref", ""), plain.pop("allOf", [])
        self._spend(len(ref))
        if len(path) >= _MAX_DEPTH or (ref and ref in path):
            raise RecursionError
        path, target = (*path, ref), self._root
        for step in ref.split("/")[1:]:
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        for part in [target, *parts] if ref.startswith("#") else parts:
            base, path = self._resolve(part, path)
            both = {"properties": base.get("properties", {}) | plain.get("properties", {})}
            both["required"] = base.get("required", []) + plain.get("required", [])
            plain = base | plain | {key: value for key, value in both.items() if value}
        return plain, path

    def _validator(self, schema: Json, path: tuple[str, ...]) -> Callable[[Json], bool]:
        """Return a check for values. A schema that cannot be compiled, such as one with inner references, accepts nothing."""
        import jsonschema_rs  # noqa: PLC0415 -- other models do without it

        with suppress(RecursionError, ValueError, jsonschema_rs.ReferencingError):
            plain, _ = self._resolve(schema, path)
            self._spend(len(to_json(plain)) // 10)
            # json.loads as a retriever fetches nothing: it refuses a URI.
            return jsonschema_rs.validator_for(plain, retriever=json.loads, validate_formats=True).is_valid
        return lambda _: False

    def _scalars(self, plain: _Schema) -> list[Json]:
        """Return values of which a schema without members allows one."""
        limits = [limit if isinstance(limit := plain.get(key), int | float) and abs(limit) < 1e15 else 0 for key in _LIMITS]
        step = step if (step := limits.pop()) > 1e-9 else 1
        multiples = (limit // step * step + step * more for limit in limits for more in range(-3, 4))  # near each limit
        numbers = [int(number) if number % 1 == 0 else number for number in (1, *limits, sum(limits) / 2, *multiples)]
        text = self._values.fallback.ljust(min(plain.get("minLength", 0), 10_000), ".")[: plain.get("maxLength", 10_000)]
        options = [plain.get("const"), *plain.get("enum", []), *plain.get("examples", [])]
        return [None, *options, text, *_SAMPLES, True, *dict.fromkeys(numbers)]
