"""The subset of JSON Schema that Gemini takes, and other schemas rewritten to it.

Functions and output formats are sent as `parametersJsonSchema` and `responseJsonSchema`, which take JSON Schema: `parameters` and
`responseSchema` refuse every keyword that OpenAPI 3.0 does not have. They, too, know only some keywords, and no reference that
has members beside it: https://ai.google.dev/api/generate-content#FIELDS.response_json_schema

rewritten   $ref (inlined), const (enum), oneOf (anyOf), allOf (merged), nullable (type null), exclusive limits of integers
dropped     other keywords, and references that are circular or lead nowhere, with the names in `dropped`
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor

from toolrelay.core.json import Json, JsonObject

MAX_DEPTH = 60  # levels of subschemas
MAX_NODES = 5000  # subschemas, with those that references repeat
MAX_PARTS = 64  # of an allOf

# https://ai.google.dev/api/generate-content#FIELDS.response_json_schema, and the JSONSchema type of Google's SDK
_SUBSCHEMAS = ("items", "additionalProperties")
_KEPT = frozenset(
    {"type", "format", "title", "description", "default", "required", "propertyOrdering", "pattern", "uniqueItems"}
    | {f"{limit}{what}" for limit in ("min", "max") for what in ("imum", "Items", "Length", "Properties")}
)
_SILENT = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "nullable"})  # of no meaning to a model
_LATER = frozenset({"const", "enum", "exclusiveMinimum", "exclusiveMaximum"})  # handled when the others are
_EMPTY: tuple[Json, ...] = ({}, [], False, None)


def function_schema(schema: JsonObject | None) -> tuple[JsonObject | None, list[str]]:
    """Return the parameters of a function, None if it has none, and the names of the dropped keywords."""
    if not schema:
        return None, []
    rewriter = _Rewriter(schema)
    found = rewriter.rewrite(schema)
    if "type" not in found:
        found = {"type": "object", **found}
    has_parameters = any(value not in _EMPTY for key, value in found.items() if key not in ("type", "title", "description"))
    return found if has_parameters else None, rewriter.dropped


def output_schema(schema: JsonObject) -> tuple[JsonObject, list[str]]:
    """Return the schema of an output, and the names of the dropped keywords."""
    rewriter = _Rewriter(schema)
    return rewriter.rewrite(schema), rewriter.dropped


class _Rewriter:
    def __init__(self, root: JsonObject) -> None:
        self.dropped: list[str] = []
        self._root = root
        self._nodes = 0

    def rewrite(self, schema: Json, open_refs: tuple[str, ...] = (), depth: int = 0) -> JsonObject:
        """Return a rewritten schema. `open_refs` are the references inside of which it stands."""
        if not isinstance(schema, dict):  # true and false
            return {}
        schema, open_refs = self._flatten(schema, open_refs, depth)
        out: JsonObject = {}
        for key, value in schema.items():
            self._add(out, key, value, open_refs, depth)
        if "const" in schema or "enum" in schema:
            self._set_enum(out, [schema["const"]] if "const" in schema else schema["enum"])
        self._tighten(out, schema)
        return _with_null(out) if schema.get("nullable") is True else out

    def _flatten(self, schema: JsonObject, open_refs: tuple[str, ...], depth: int) -> tuple[JsonObject, tuple[str, ...]]:
        """Return a schema with its reference and its `allOf` merged into it, and the references inside of which it is then."""
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            self._drop("schemas that are nested too deeply or too large")
            return {}, open_refs
        reference, parts = schema.get("$ref"), schema.get("allOf")
        if reference is None and parts is None:
            return schema, open_refs
        merged: JsonObject = {}
        inside = open_refs
        if reference is not None:
            target = _resolve(self._root, reference)
            if target is None or reference in open_refs:
                self._drop("$ref")
                merged = {} if target is None or "type" not in target else {"type": target["type"]}
            else:
                merged, inside = self._flatten(target, (*open_refs, str(reference)), depth + 1)
        given = parts if isinstance(parts, list) else []
        if len(given) > MAX_PARTS:
            self._drop("allOf")
        for part in given[:MAX_PARTS]:
            if isinstance(part, dict):
                members, refs = self._flatten(part, open_refs, depth + 1)
                if "anyOf" in merged and "anyOf" in members:
                    self._drop("anyOf")
                merged = _merge(merged, members)
                inside = (*inside, *(each for each in refs if each not in inside))
        own: JsonObject = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        return _merge(merged, own), inside

    def _add(self, out: JsonObject, key: str, value: Json, open_refs: tuple[str, ...], depth: int) -> None:
        if key in _SUBSCHEMAS and isinstance(value, dict):
            out[key] = self.rewrite(value, open_refs, depth + 1)
        elif key == "additionalProperties" and isinstance(value, bool):
            out[key] = value
        elif key == "properties" and isinstance(value, dict):
            out[key] = {name: self.rewrite(inner, open_refs, depth + 1) for name, inner in value.items()}
        elif key in ("anyOf", "oneOf") and "anyOf" not in out and isinstance(value, list):
            out["anyOf"] = [self.rewrite(inner, open_refs, depth + 1) for inner in value]
        elif key in ("prefixItems", "items") and isinstance(value, list):  # as `items` were before draft 2020-12
            out["prefixItems"] = [self.rewrite(inner, open_refs, depth + 1) for inner in value]
        elif key in _KEPT:
            out[key] = value
        elif key not in _SILENT and key not in _LATER:
            self._drop(key)

    def _set_enum(self, out: JsonObject, values: Json) -> None:
        """Keep lists of strings and numbers. Null is a type here; of other values, and the empty string, there can be no list."""
        if not isinstance(values, list):
            self._drop("enum")
            return
        if "" in values:
            self._drop("enum")
        rest: list[Json] = [value for value in values if value is not None and value != ""]
        is_listed = all(isinstance(value, str | int | float) and not isinstance(value, bool) for value in rest)
        if rest and all(isinstance(value, bool) for value in rest):
            out.setdefault("type", "boolean")
        if not is_listed and not {False, True} <= {value for value in rest if isinstance(value, bool)}:
            self._drop("enum")
        if is_listed and rest:
            out["enum"] = rest
            out.setdefault("type", "string" if all(isinstance(value, str) for value in rest) else "number")
        if None in values:
            out["type"] = _nullable_type(out.get("type")) if rest else "null"

    def _tighten(self, out: JsonObject, schema: JsonObject) -> None:
        """Make exclusive limits of integers inclusive ones, and require only names that are declared."""
        for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            limit = schema.get(exclusive)
            if limit is True:  # as JSON Schema had it before draft 6
                limit = schema.get(inclusive)
            if limit is None or limit is False:
                continue
            if not isinstance(limit, int | float) or not -(2**53) < limit < 2**53:
                self._drop(exclusive)
                continue
            bound = (floor(limit) if step > 0 else -floor(-limit)) + step if schema.get("type") == "integer" else limit
            if bound is limit:
                self._drop(exclusive)
            given = out.get(inclusive)
            if isinstance(given, int | float):
                bound = max(given, bound) if step > 0 else min(given, bound)
            out[inclusive] = bound
        if "required" in out:
            self._check_required(out, out["required"], out.get("properties"))

    def _check_required(self, out: JsonObject, required: Json, properties: Json) -> None:
        given = required if isinstance(required, list) else []
        names = [name for name in given if isinstance(name, str)]
        kept: list[Json] = [name for name in names if not isinstance(properties, dict) or name in properties]
        if kept != required:
            self._drop("required")
        out["required"] = kept
        if not kept:
            del out["required"]

    def _drop(self, name: str) -> None:
        if name not in self.dropped:
            self.dropped.append(name)


def _resolve(root: JsonObject, reference: Json) -> JsonObject | None:
    """Return what a reference into the same schema means, or None."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Json = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found if isinstance(found, dict) else None


def _merge(schema: JsonObject, other: JsonObject) -> JsonObject:
    """Return both schemas as one: properties and required names are united, of other members those of the second count."""
    merged = schema | other
    ours, theirs = schema.get("properties"), other.get("properties")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        merged["properties"] = ours | theirs
    first, second = schema.get("required"), other.get("required")
    if isinstance(first, list) and isinstance(second, list):
        merged["required"] = first + [name for name in second if name not in first]
    return merged


def _with_null(schema: JsonObject) -> JsonObject:
    if "type" in schema:
        return {**schema, "type": _nullable_type(schema["type"])}
    return schema


def _nullable_type(kind: Json) -> Json:
    kinds = kind if isinstance(kind, list) else [kind]
    return [*(each for each in kinds if each is not None), *(() if "null" in kinds else ("null",))]
