"""JSON schemas as OpenAI's strict mode accepts them, and values back as the original schema has them.

strict mode                                        here
------------------------------------------------   ----------------------------------------------------------------------
no other properties than those named               `additionalProperties: false` is added
all properties are required                        all are; an optional one may be null, and a null is dropped again
the root is an object                              another root becomes the member `value` of one, and is taken out again
every schema has a type                            that of a `const` or `enum` is added
`oneOf` is unknown                                 becomes `anyOf`
only some keywords are known                       those that only restrict or describe a value are left out
maps, tuples, values of any type are impossible    NotStrictError
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs
import msgspec

from toolrelay.core.json import Json, JsonObject

MAX_DEPTH = 100
REFUSED_SCHEMA = "invalid_json_schema"  # the code of OpenAI's error
_ROOT = "value"
_NULL: JsonObject = {"type": "null"}
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_SCALARS = frozenset(_TYPES.values())
_KEPT = frozenset(
    {
        "type", "description", "title", "enum", "format", "pattern", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
    }
)  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_UNKNOWN_PATTERN = re.compile(r"\(\?|\\[1-9bB]")  # lookaround, references, word boundaries
# What these demand cannot be said otherwise, and a value that ignores it would be wrong.
_IMPOSSIBLE = (
    "not", "if", "dependentSchemas", "dependentRequired", "dependencies", "patternProperties", "prefixItems", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "contains", "$dynamicRef",
)  # fmt: skip
_REFERENCE = re.compile(r"#/(\$defs|definitions)/[^/]+")


class NotStrictError(ValueError):
    """The schema says something that strict mode cannot express."""


class StrictSchema:
    """`schema` is for the provider. `is_changed`: its values have to be restored."""

    def __init__(self, original: JsonObject) -> None:
        self._original = original
        self._definitions = {key: value for key in ("$defs", "definitions") if isinstance(value := original.get(key), dict)}
        self.is_changed = False
        schema = self._convert(original, 0)
        self._is_wrapped = schema.get("type") != "object"
        if self._is_wrapped:
            self.is_changed = True
            members: JsonObject = {_ROOT: schema}
            schema = {"type": "object", "properties": members, "required": [_ROOT], "additionalProperties": False}
        for key, definitions in self._definitions.items():
            schema[key] = {name: self._convert(each, 1) for name, each in definitions.items()}
        self.schema = schema

    def restore(self, text: str) -> str:
        """Return the value as the original schema has it: without the wrapper and without nulls of optional properties."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return text
        if self._is_wrapped:
            if not isinstance(value, dict) or value.keys() != {_ROOT}:
                return text
            value = value[_ROOT]
        return msgspec.json.encode(self._restore(value, self._original, 0)).decode()

    # To strict mode

    def _convert(self, schema: Json, depth: int) -> JsonObject:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            raise NotStrictError("a schema that is true, false, or nested too deeply")
        impossible = [name for name in _IMPOSSIBLE if schema.get(name) not in (None, {}, [])]
        if impossible:
            raise NotStrictError(f"the keyword {impossible[0]!r}")
        if "$ref" in schema:
            return self._reference(schema)
        choices = self._choices(schema)
        if choices is not None:
            return _described(schema, [self._convert(each, depth + 1) for each in choices])
        out = {name: value for name, value in schema.items() if name in _KEPT}
        if "const" in schema:
            out["enum"] = [schema["const"]]
        out["type"] = kinds = schema.get("type") or _type_of(out.get("enum"))
        if out.get("format") not in _FORMATS:
            out.pop("format", None)
        if _UNKNOWN_PATTERN.search(str(out.get("pattern", ""))):
            del out["pattern"]
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind == "object":
                self._convert_object(schema, out, depth)
            elif kind == "array":
                out["items"] = self._convert(schema.get("items"), depth + 1)
            elif kind not in _SCALARS:
                raise NotStrictError("a value of any type")
        return out

    def _reference(self, schema: JsonObject) -> JsonObject:
        reference = schema["$ref"]
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise NotStrictError(f"the reference {str(reference)[:100]!r}")
        return {"$ref": reference}

    def _choices(self, schema: JsonObject) -> list[Json] | None:
        for name in ("anyOf", "oneOf", "allOf"):
            choices = schema.get(name)
            if not isinstance(choices, list) or not choices:
                continue
            if (name == "allOf" and len(choices) > 1) or any(key in schema for key in ("properties", "items", "enum", "const")):
                raise NotStrictError(f"{name!r} beside other demands")
            return choices
        return None

    def _convert_object(self, schema: JsonObject, out: JsonObject, depth: int) -> None:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, dict) or others not in (None, False):
            raise NotStrictError("an object with any properties")
        required = _required(schema)
        if not required <= properties.keys():
            raise NotStrictError("a required property without a schema")
        members: JsonObject = {}
        for name, each in properties.items():
            member = self._convert(each, depth + 1)
            if name not in required:
                self.is_changed = True
                member = _nullable(member)
            members[name] = member
        out |= {"properties": members, "required": [*members], "additionalProperties": False}

    # And back

    def _restore(self, value: Json, schema: Json, depth: int) -> Json:
        schema = self._resolve(value, schema, depth)
        if depth > MAX_DEPTH or schema is None:
            return value
        if isinstance(value, list):
            return [self._restore(each, schema.get("items"), depth + 1) for each in value]
        properties = schema.get("properties")
        if not isinstance(value, dict) or not isinstance(properties, dict):
            return value
        required = _required(schema)
        return {
            name: self._restore(each, properties.get(name), depth + 1)
            for name, each in value.items()
            if each is not None or name in required or name not in properties
        }

    def _resolve(self, value: Json, schema: Json, depth: int) -> JsonObject | None:
        """Follow references, and choose the alternative that the value fits."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict):
                return None
            reference = schema.get("$ref")
            if isinstance(reference, str):
                _, key, name = reference.split("/", 2)
                schema = self._definitions.get(key, {}).get(name)
                continue
            choices = self._choices(schema)
            if choices is None:
                return schema
            schema = next((each for each in choices if self._fits(value, each, depth)), None)
        return None

    def _fits(self, value: Json, schema: Json, depth: int) -> bool:
        definitions = {key: self.schema[key] for key in self._definitions}
        try:
            return jsonschema_rs.is_valid({**self._convert(schema, depth), **definitions}, value)
        except (ValueError, jsonschema_rs.ReferencingError):  # a pattern or reference that is wrong
            return False


def _required(schema: Mapping[str, Any]) -> set[str]:
    required = schema.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _nullable(schema: JsonObject) -> JsonObject:
    """Return the schema with null as one more value."""
    kinds = schema.get("type")
    if "anyOf" in schema or "$ref" in schema:
        found = schema.get("anyOf")
        choices: list[Json] = [*found] if isinstance(found, list) else [schema]
        return _described(schema, choices if _NULL in choices else [*choices, _NULL])
    types: list[Json] = [*kinds] if isinstance(kinds, list) else [kinds]
    out: JsonObject = {**schema, "type": types if "null" in types else [*types, "null"]}
    values = schema.get("enum")
    if isinstance(values, list) and None not in values:
        out["enum"] = [*values, None]
    return out


def _described(schema: JsonObject, choices: Sequence[Json]) -> JsonObject:
    """Return the choices with the description of the schema."""
    out: JsonObject = {"anyOf": [*choices]}
    if "description" in schema:
        out["description"] = schema["description"]
    return out


def _type_of(values: Json) -> Json:
    """Return the types of the values of an enumeration; an empty list is no type."""
    if not isinstance(values, list) or not values or any(type(value) not in _TYPES for value in values):
        raise NotStrictError("a value of any type")
    kinds = list(dict.fromkeys(_TYPES[type(value)] for value in values))
    return kinds[0] if len(kinds) == 1 else [*kinds]
