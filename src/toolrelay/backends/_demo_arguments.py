"""Values for a JSON schema, made from a user's words: the demo model's arguments and JSON answers.

`Need` says how much a place in the schema wants a value:

    NAMED    an optional member: only if the text speaks of it
    OFFERED  a member that may be null: only if the text offers something
    MUST     a required member: the schema's default or a plain value if the text offers nothing

`pattern` is not looked at: it is the client's, and could take for ever to match.
"""

from __future__ import annotations

import re
from enum import IntEnum

from msgspec import UNSET, UnsetType

from toolrelay.backends._demo_clues import Clues, name_words
from toolrelay.backends._demo_schema import (
    alternatives,
    as_list,
    as_object,
    bounded,
    count,
    fitted,
    kind_of,
    merged,
    nearby,
    parsed,
    pointed,
    written,
)
from toolrelay.core.json import Json, JsonObject

_DEPTH = 64
_NODES = 10_000  # what may be made in all, so that no schema takes long or makes much of little
_CHARGED = 100  # characters that count as one more
_MOST_ELEMENTS = 100
_FORMATS: dict[str, tuple[re.Pattern[str], str]] = {
    "date": (re.compile(r"\b[0-9]{4}-[01][0-9]-[0-3][0-9]\b"), "2025-01-01"),
    "date-time": (re.compile(r"\b[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-9:.]{5,15}(?:Z|[+-][0-9:]{5})"), "2025-01-01T00:00:00Z"),
    "time": (re.compile(r"\b[0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:Z|[+-][0-9:]{5})"), "12:00:00Z"),
    "email": (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), "demo@example.com"),
    "uri": (re.compile(r"https?://[^\s\"'<>`]*[^\s\"'<>`.,;:!?)]"), "https://example.com"),
    "uuid": (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "00000000-0000-4000-8000-000000000000"),
    "ipv4": (re.compile(r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b"), "127.0.0.1"),
    "ipv6": (re.compile(r"(?<![\w:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])"), "::1"),
    "hostname": (re.compile(r"\b[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b"), "localhost"),
}
_PATH = re.compile(r"(?<![\w/.@-])[\w/.-]{0,200}[\w-]\.[A-Za-z][A-Za-z0-9]{0,4}(?!\w)|(?<!\S)~?/[\w/.-]{1,200}")
_BY_NAME = {"email": _FORMATS["email"][0], "url": _FORMATS["uri"][0], "uri": _FORMATS["uri"][0], "path": _PATH, "file": _PATH}


class Need(IntEnum):
    NAMED = 0
    OFFERED = 1
    MUST = 2


class EndlessError(Exception):
    """A way through the schema that leads back to itself, or is too long."""


def made_for(schema: Json, clues: Clues) -> Json:
    """A value for the schema; None if there is none that ends."""
    try:
        value = _Maker(schema, clues).make(schema, "", Need.MUST, ("#",))
    except EndlessError:
        return None
    return None if isinstance(value, UnsetType) else value


class _Maker:
    """`trail` holds, for each step from the root to here, the $ref taken, or nothing."""

    def __init__(self, root: Json, clues: Clues) -> None:
        self._root = root
        self._clues = clues
        self._left = _NODES

    def make(self, schema: Json, name: str, need: Need, trail: tuple[str, ...]) -> Json | UnsetType:
        """A value, or UNSET where the need is too small for one; then no clue counts as used."""
        kept = self._clues.kept()
        try:
            value = self._made(schema, name, need, trail)
        except EndlessError:
            self._clues.restore(kept)
            raise
        if value is UNSET:
            self._clues.restore(kept)
        return value

    def _made(self, schema: Json, name: str, need: Need, trail: tuple[str, ...]) -> Json | UnsetType:
        self._left -= 1
        if self._left < 0 or len(trail) > _DEPTH:
            raise EndlessError
        plain, trail = self._resolved(schema, (*trail, ""))
        if "const" in plain:
            return self._charged(plain["const"]) if need is Need.MUST or self._is_mentioned(plain["const"]) else UNSET
        options = as_list(plain.get("enum"))
        if options:
            return self._option(plain, options, need)
        ways = alternatives(plain)
        if ways:
            return self._alternative(plain, ways, name, need, trail)
        match kind_of(plain):
            case "object":
                return self._object(plain, name, need, trail)
            case "array":
                return self._array(plain, name, need, trail)
            case "integer":
                return self._number(plain, name, need, whole=True)
            case "number":
                return self._number(plain, name, need, whole=False)
            case "boolean":
                return self._boolean(plain, name, need)
            case "null":
                return None if need is Need.MUST else UNSET
            case _:
                return self._string(plain, name, need)

    def _charged(self, value: Json, times: int = 1) -> Json:
        """The value, after its size was taken from what may be made."""
        size = len(value) if isinstance(value, str) else len(written(value)) if isinstance(value, list | dict) else 0
        self._left -= times * (1 + size // _CHARGED)
        if self._left < 0:
            raise EndlessError
        return value

    def _resolved(self, schema: Json, trail: tuple[str, ...]) -> tuple[JsonObject, tuple[str, ...]]:
        """The schema with $ref and allOf put in place."""
        plain = dict(as_object(schema))
        while isinstance(ref := plain.pop("$ref", None), str):
            if ref in trail or len(trail) > _DEPTH:
                raise EndlessError
            trail = (*trail, ref)
            plain = merged(as_object(pointed(self._root, ref)), plain)
        for part in as_list(plain.pop("allOf", None)):
            resolved, trail = self._resolved(part, trail)
            plain = merged(resolved, plain)
        return plain, trail

    def _alternative(
        self, schema: JsonObject, ways: list[JsonObject], name: str, need: Need, trail: tuple[str, ...]
    ) -> Json | UnsetType:
        """The first way that the text speaks of, else null or the default where they are allowed, else the first that ends."""
        full = [way for way in ways if way.get("type") != "null"]
        for level in range(need + 1):
            if level == Need.MUST and "default" in schema:
                return self._charged(schema["default"])
            if level == Need.MUST and len(full) < len(ways):
                return None
            for way in full:
                try:
                    value = self.make(way, name, Need(level), trail)
                except EndlessError:
                    continue
                if value is not UNSET:
                    return value
        if need is Need.MUST:
            raise EndlessError
        return UNSET

    def _option(self, schema: JsonObject, options: list[Json], need: Need) -> Json | UnsetType:
        mentioned = self._mentioned(options)
        if mentioned:
            return self._charged(mentioned[0])
        if need is not Need.MUST:
            return UNSET
        default = schema.get("default", UNSET)
        return self._charged(schema["default"] if default in options else None if None in options else options[0])

    def _mentioned(self, options: list[Json]) -> list[Json]:
        """Those that the text mentions, in its order."""
        places = [(place, rank) for rank, option in enumerate(options) if (place := self._place(option)) is not None]
        found = [options[rank] for _, rank in sorted(places)]
        for option in found:
            self._clues.use(str(option))
        return found

    def _place(self, option: Json) -> tuple[int, int] | None:
        return None if option is None or isinstance(option, list | dict) else self._clues.mentioned(str(option))

    def _is_mentioned(self, option: Json) -> bool:
        return self._place(option) is not None

    def _object(self, schema: JsonObject, name: str, need: Need, trail: tuple[str, ...]) -> Json | UnsetType:
        properties = as_object(schema.get("properties"))
        required = [member for member in as_list(schema.get("required")) if isinstance(member, str)]
        needs = {member: Need.MUST if member in required else Need.NAMED for member in [*properties, *required]}
        if not required:
            # A tool that requires nothing would never be told anything: its first string takes what is offered.
            text = next((member for member, part in properties.items() if _is_text(part)), None)
            if text is not None and need is Need.MUST:
                needs[text] = Need.OFFERED
        members: JsonObject = {}
        fits = False
        # Strings come last: what an enumeration took is then no longer offered to them.
        for member in sorted(needs, key=lambda member: _is_text(properties.get(member))):
            value = self._member(properties.get(member, {}), member, needs[member], trail)
            if not isinstance(value, UnsetType):
                members[member] = value
                fits = fits or member not in required or self._speaks_of(member) or self._is_chosen(properties.get(member), value)
        if need is not Need.MUST and not (fits or (name and self._clues.speaks_of(name))):
            return UNSET
        for member in properties:
            if len(members) < count(schema, "minProperties") and member not in members:
                members[member] = self._settled(properties[member], member, trail)
        return {member: members[member] for member in needs if member in members}

    def _member(self, schema: Json, name: str, need: Need, trail: tuple[str, ...]) -> Json | UnsetType:
        try:
            return self.make(schema, name, need, trail)
        except EndlessError:
            if need is Need.MUST:
                raise
            return UNSET

    def _settled(self, schema: Json, name: str, trail: tuple[str, ...]) -> Json:
        value = self.make(schema, name, Need.MUST, trail)
        return None if isinstance(value, UnsetType) else value

    def _speaks_of(self, name: str) -> bool:
        return self._clues.speaks_of(name) or self._clues.assigned(name) is not None

    def _is_chosen(self, schema: Json, value: Json) -> bool:
        return not as_object(schema).keys().isdisjoint(("const", "enum")) and self._is_mentioned(value)

    def _array(self, schema: JsonObject, name: str, need: Need, trail: tuple[str, ...]) -> Json | UnsetType:
        low, high = count(schema, "minItems"), schema.get("maxItems")
        items = schema.get("items", {})
        first = as_list(schema.get("prefixItems")) or as_list(items)
        further = not first and items is not False and high != 0
        kind: JsonObject = {}
        found: list[Json] = []
        try:
            kind, trail = self._resolved(items, trail)
            if first and need is Need.MUST:
                found = [self._settled(part, name, trail) for part in first]
            elif further:
                found = self._elements(kind, name, need, trail)
            if need is not Need.MUST and not found:
                return UNSET
            if not found and isinstance(schema.get("default"), list):
                return self._charged(schema["default"])
            if not found and further:
                found = [self._settled(kind, name, trail)]
        except EndlessError:
            if low:
                raise
        least = min(low, _MOST_ELEMENTS) if further else 0
        if schema.get("uniqueItems") is True:
            found = self._distinct(kind, found, least, trail)
        elif len(found) < least:
            missing = least - len(found)
            found += [self._charged(found[-1], missing)] * missing
        return found[:high] if isinstance(high, int) else found

    def _distinct(self, schema: JsonObject, found: list[Json], low: int, trail: tuple[str, ...]) -> list[Json]:
        distinct = {written(element): element for element in found}
        while len(distinct) < low:
            self._left -= 1
            known = len(distinct)
            for candidate in self._others(schema, known, trail):
                distinct.setdefault(written(candidate), candidate)
                if len(distinct) > known:
                    break
            else:
                break
        return list(distinct.values())

    def _elements(self, schema: JsonObject, name: str, need: Need, trail: tuple[str, ...]) -> list[Json]:
        """All that the text offers."""
        if need is Need.NAMED and "enum" not in schema and not self._speaks_of(name):
            return []
        if options := as_list(schema.get("enum")):
            return self._mentioned(options)
        match kind_of(schema):
            case "integer" | "number" as kind:
                return [bounded(schema, number, whole=kind == "integer") for number in self._clues.numbers()]
            case "string" if elements := self._clues.elements():
                return [fitted(schema, element) for element in elements]
            case _:
                value = self._member(schema, name, Need.OFFERED, trail)
                return [] if isinstance(value, UnsetType) else [value]

    def _others(self, schema: JsonObject, known: int, trail: tuple[str, ...]) -> list[Json]:
        """Elements of which one should be unlike the known ones."""
        match kind_of(schema):
            case "boolean":
                return [True, False]
            case "integer" | "number" as kind:
                return [bounded(schema, near, whole=kind == "integer") for near in nearby(schema, known + 2)]
            case "string":
                return [fitted(schema, str(number + 1)) for number in range(known + 1)]
            case _:
                return as_list(schema.get("enum")) or [self._settled(schema, "", trail)]

    def _string(self, schema: JsonObject, name: str, need: Need) -> Json | UnsetType:
        text = self._clues.assigned(name)
        if text is not None:
            self._clues.use(text)
        text = text or self._formatted(schema, name)
        if text is None and need >= Need.OFFERED and schema.get("format") not in _FORMATS and "pattern" not in schema:
            text = self._clues.string(name)
        if text is None:
            if need is not Need.MUST:
                return UNSET
            text = self._fallback(schema)
        return self._charged(fitted(schema, text))

    def _formatted(self, schema: JsonObject, name: str) -> str | None:
        known = _FORMATS.get(str(schema.get("format")))
        patterns = [known[0]] if known else [_BY_NAME[word] for word in name_words(name) if word in _BY_NAME]
        return next((found for pattern in patterns if (found := self._clues.find(pattern))), None)

    def _fallback(self, schema: JsonObject) -> str:
        known = _FORMATS.get(str(schema.get("format")))
        examples = [schema.get("default"), *as_list(schema.get("examples")), known[1] if known else None]
        return next((text for text in examples if isinstance(text, str)), self._clues.remainder() or self._clues.whole)

    def _number(self, schema: JsonObject, name: str, need: Need, *, whole: bool) -> Json | UnsetType:
        number = parsed(self._clues.assigned(name))
        if number is None and (need >= Need.OFFERED or self._clues.speaks_of(name)):
            number = self._clues.number()
        if number is None:
            if need is not Need.MUST:
                return UNSET
            default = schema.get("default")
            number = default if isinstance(default, int | float) else 1
        return bounded(schema, number, whole=whole)

    def _boolean(self, schema: JsonObject, name: str, need: Need) -> Json | UnsetType:
        assigned = (self._clues.assigned(name) or "").casefold()
        if assigned in ("true", "yes", "on", "false", "no", "off"):
            return assigned in ("true", "yes", "on")
        if need is not Need.MUST:
            return True if self._clues.speaks_of(name) else UNSET
        default = schema.get("default")
        return default if isinstance(default, bool) else True


def _is_text(schema: Json) -> bool:
    plain = as_object(schema)
    return kind_of(plain) in ("string", "any") and plain.keys().isdisjoint(("const", "enum"))
