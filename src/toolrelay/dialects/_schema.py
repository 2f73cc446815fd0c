"""What a tool's JSON schema says of a value that a model wrote as plain text: which types it may have, and so what was meant."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.request import Tool
from toolrelay.parsing.json import quoted

ANY = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
STRING = frozenset({"string"})
_WORDS = {"True": "true", "False": "false", "None": "null"}


class Parameters:
    """The parameters of a tool, by name. A tool that is not known has none, and everything may be anything."""

    def __init__(self, tool: Tool | None) -> None:
        self._root: JsonObject = (tool.parameters if tool is not None else None) or {}
        properties = self._root.get("properties")
        self._properties: JsonObject = properties if isinstance(properties, dict) else {}

    @property
    def names(self) -> list[str]:
        """In the order in which they were declared."""
        return list(self._properties)

    def types(self, name: str) -> frozenset[str]:
        if name in self._properties:
            return types_of(self._properties[name], self._root)
        further = self._root.get("additionalProperties")
        return types_of(further, self._root) if isinstance(further, dict) else ANY


def types_of(schema: Json, root: JsonObject) -> frozenset[str]:
    """The types that a value of that schema may have. "number" includes "integer"."""
    return _Types(root).of(schema) or ANY


class _Types:
    """Each part of a schema is looked at once, however often it refers to itself."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[int, frozenset[str]] = {}

    def of(self, schema: Json) -> frozenset[str]:
        if not isinstance(schema, dict):
            return ANY
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = ANY  # for what refers back to it from within
            known = self._known[id(schema)] = self._found(schema)
        return known

    def _found(self, schema: JsonObject) -> frozenset[str]:
        found = ANY
        reference = schema.get("$ref")
        if isinstance(reference, str):
            found &= self.of(_resolved(reference, self._root))
        match schema.get("type"):
            case str(kind):
                found &= _with_integers([kind])
            case list(kinds):
                found &= _with_integers(kind for kind in kinds if isinstance(kind, str))
        if isinstance(values := schema.get("enum"), list):
            found &= _with_integers(type_of(value) for value in values)
        if "const" in schema:
            found &= _with_integers([type_of(schema["const"])])
        for key in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(key), list):
                found &= frozenset[str]().union(*(self.of(choice) for choice in choices))
        if isinstance(demands := schema.get("allOf"), list):
            for demand in demands:
                found &= self.of(demand)
        return found | {"null"} if schema.get("nullable") is True else found


def _with_integers(kinds: Iterable[str]) -> frozenset[str]:
    found = frozenset(kinds)
    return found | {"integer"} if "number" in found else found


def _resolved(reference: str, root: JsonObject) -> Json:
    """A reference within the schema; anything else says nothing."""
    if not reference.startswith("#"):
        return True
    at: Json = root
    for step in reference[1:].strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict):
            at = at.get(key) if step else at
        elif isinstance(at, list):
            at = at[int(key)] if key.isdecimal() and int(key) < len(at) else None
        else:
            return None
    return at


def type_of(value: Json) -> str:
    return _TYPES[type(value)]


_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def meant(text: str, types: frozenset[str]) -> str | None:
    """The JSON that the text stands for: the value that it spells, if it may have that type, else the text as a string.

    None: a string is not what was asked for, and the text does not spell anything else.
    """
    if types == STRING:
        return quoted(text)
    plain = text.strip()
    plain = _WORDS.get(plain, plain)
    try:
        value = msgspec.json.decode(plain.encode())
    except (msgspec.MsgspecError, RecursionError):
        return quoted(text) if "string" in types else None
    return plain if type_of(value) in types or "string" not in types else quoted(text)
