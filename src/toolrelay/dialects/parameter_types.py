"""Types of a tool's parameters, from its JSON schema, and the coercion of plain text to them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool
from toolrelay.parsing.json import encode_string

ANY = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
STRING = frozenset({"string"})
OBJECT = frozenset({"object"})
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")  # in the reference, which is a URI
_PYTHON_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_TYPE_NAMES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Parameters:
    """The parameters of a tool. A tool that is unknown has none, and its arguments may have any type."""

    def __init__(self, tool: Tool | None) -> None:
        self.root: JsonObject = (tool.parameters if tool is not None else None) or {}
        self._properties = properties_of(self.root, self.root)

    @property
    def names(self) -> list[str]:
        """In the order of their declaration."""
        return list(self._properties)

    def are_complete(self, given: Collection[str]) -> bool:
        """Return whether the required parameters are given; without any, whether all declared ones are, and no others."""
        required = self.root.get("required")
        if isinstance(required, list) and required:
            return all(name in given for name in required)
        return set(given) == set(self._properties)

    def schema(self, name: str) -> Json:
        return self._properties.get(name, self.root.get("additionalProperties"))

    def types(self, name: str) -> frozenset[str]:
        return types_of(self.schema(name), self.root)


def properties_of(schema: Json, root: JsonObject) -> JsonObject:
    """Return the properties that the schema declares anywhere: itself, in a reference, or in an alternative or a part."""
    found: dict[str, list[Json]] = {}
    for part in parts_of(schema, root):
        declared = part.get("properties")
        for name, property_schema in declared.items() if isinstance(declared, dict) else ():
            found.setdefault(name, []).append(property_schema)
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}


def parts_of(schema: Json, root: JsonObject) -> list[JsonObject]:
    """Return the schema, what it refers to, its alternatives and parts, and those of these; each once."""
    found: dict[int, JsonObject] = {}
    waiting = deque([schema])
    while waiting:
        part = waiting.popleft()
        if isinstance(part, dict) and id(part) not in found:
            found[id(part)] = part
            if isinstance(reference := part.get("$ref"), str):
                waiting.append(_dereference(reference, root))
            for key in ("anyOf", "oneOf", "allOf"):
                if isinstance(choices := part.get(key), list):
                    waiting += choices
    return list(found.values())


def types_of(schema: Json, root: JsonObject) -> frozenset[str]:
    """Return the types that a value of that schema may have. "number" includes "integer"."""
    return _TypeResolver(root).types(schema) or ANY


class _TypeResolver:
    """Resolves each part of a schema once, even if it refers to itself."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[int, frozenset[str]] = {}

    def types(self, schema: Json) -> frozenset[str]:
        if not isinstance(schema, dict):
            return ANY
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = ANY  # for references back to it
            known = self._known[id(schema)] = self._resolve(schema)
        return known

    def _resolve(self, schema: JsonObject) -> frozenset[str]:
        types = ANY
        reference = schema.get("$ref")
        if isinstance(reference, str):
            types &= self.types(_dereference(reference, self._root))
        match schema.get("type"):
            case str(kind):
                types &= _with_integers([kind])
            case list(kinds):
                types &= _with_integers(kind for kind in kinds if isinstance(kind, str))
        if isinstance(values := schema.get("enum"), list):
            types &= _with_integers(_TYPE_NAMES[type(value)] for value in values)
        if "const" in schema:
            types &= _with_integers([_TYPE_NAMES[type(schema["const"])]])
        for key in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(key), list):
                types &= frozenset[str]().union(*map(self.types, choices))
        if isinstance(parts := schema.get("allOf"), list):
            for part in parts:
                types &= self.types(part)
        types -= _excluded(schema.get("not"))
        return types | {"null"} if schema.get("nullable") is True else types


def _excluded(schema: Json) -> frozenset[str]:
    """Return the types that `not` excludes as a whole: only a schema that states no more than types does so."""
    match schema:
        case {"type": str(kind), **rest} if not rest:
            return _with_integers([kind])
        case {"type": list(kinds), **rest} if not rest:
            return _with_integers(kind for kind in kinds if isinstance(kind, str))
        case {"const": None, **rest} if not rest:
            return frozenset({"null"})
    return frozenset()


def _with_integers(kinds: Iterable[str]) -> frozenset[str]:
    types = frozenset(kinds)
    return types | {"integer"} if "number" in types else types


def _dereference(reference: str, root: JsonObject) -> Json:
    """Follow a reference within the schema. Any other reference accepts everything."""
    if not reference.startswith("#"):
        return True
    at: Json = root
    for step in _ESCAPED.sub(_unescape, reference[1:]).strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict):
            at = at.get(key) if step else at
        elif isinstance(at, list):
            at = at[int(key)] if key.isdecimal() and int(key) < len(at) else None
        else:
            return None
    return at


def _unescape(found: re.Match[str]) -> str:
    return bytes.fromhex(found.group().replace("%", "")).decode(errors="replace")


def coerce(text: str, types: frozenset[str]) -> str | None:
    """Return the JSON of a value written as plain text: the value itself if it has one of the types, else a string.

    None: a string is not allowed, and the text is not JSON.
    """
    if types == STRING:
        return encode_string(text)
    plain = text.strip()
    plain = _PYTHON_CONSTANTS.get(plain, plain)
    try:
        value = msgspec.json.decode(plain.encode())
    except (msgspec.MsgspecError, RecursionError):
        return encode_string(text) if "string" in types else _coerce_escaped(plain, types)
    if isinstance(value, str) and "string" not in types:
        return _coerce_escaped(plain[1:-1], types) or plain
    return plain if _TYPE_NAMES[type(value)] in types or "string" not in types else encode_string(text)


def _coerce_escaped(text: str, types: frozenset[str]) -> str | None:
    """Return the JSON of a value that was escaped once too often; None if it is not such a value."""
    if "\\" not in text:
        return None
    try:
        plain = msgspec.json.decode(f'"{text}"'.encode(), type=str)
        value = msgspec.json.decode(plain.encode())
    except (msgspec.MsgspecError, RecursionError):
        return None
    return plain if _TYPE_NAMES[type(value)] in types else None
