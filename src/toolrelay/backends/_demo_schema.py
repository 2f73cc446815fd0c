"""JSON schemas as the demo model reads them: they are the client's and may be anything, so nothing here trusts them."""

from __future__ import annotations

import json
import math

from toolrelay.core.json import Json, JsonObject


def as_object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def count(schema: JsonObject, key: str) -> int:
    value = schema.get(key)
    return value if isinstance(value, int) else 0


def pointed(root: Json, ref: str) -> Json:
    """What a reference within the document points to."""
    value = root
    for step in ref.lstrip("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            return {}
    return value if ref.startswith("#") else {}


def merged(base: JsonObject, over: JsonObject) -> JsonObject:
    both = base | over
    if "properties" in base and "properties" in over:
        both["properties"] = as_object(base["properties"]) | as_object(over["properties"])
    if "required" in base and "required" in over:
        both["required"] = as_list(base["required"]) + as_list(over["required"])
    return both


def alternatives(schema: JsonObject) -> list[JsonObject]:
    """The ways in which a value can satisfy the schema, where it names several."""
    for key in ("anyOf", "oneOf"):
        branches = as_list(schema.get(key))
        if branches:
            shared = {name: value for name, value in schema.items() if name not in (key, "default")}
            return [merged(shared, as_object(branch)) for branch in branches]
    types = as_list(schema.get("type"))
    return [schema | {"type": one} for one in types]


def kind_of(schema: JsonObject) -> str:
    """The type, read from other members where it is not said; "any" where the schema leaves a choice."""
    if "const" in schema or any(schema.get(key) for key in ("enum", "anyOf", "oneOf", "allOf", "$ref")):
        return "any"
    declared = schema.get("type")
    if isinstance(declared, str):
        return declared
    for kind, keys in (
        ("object", ("properties", "required", "additionalProperties")),
        ("array", ("items", "prefixItems", "minItems")),
        ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ):
        if any(key in schema for key in keys):
            return kind
    return "any" if isinstance(declared, list) else "string"


def fitted(schema: JsonObject, text: str) -> str:
    """The text, no longer and no shorter than the schema wants."""
    low = min(count(schema, "minLength"), 10_000)
    if len(text) < low:
        text = ((text or ".") * low)[:low]
    high = schema.get("maxLength")
    return text[: max(high, 0)] if isinstance(high, int) else text


def parsed(text: str | None) -> int | float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _limit(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15 else None


def nearby(schema: JsonObject, many: int) -> list[float]:
    """That many numbers up from the least that the schema allows, and down from the greatest."""
    step = max(_limit(schema.get("multipleOf")) or 1, 1)
    low = next((bound for key in ("minimum", "exclusiveMinimum") if (bound := _limit(schema.get(key))) is not None), 0)
    high = next((bound for key in ("maximum", "exclusiveMaximum") if (bound := _limit(schema.get(key))) is not None), 0)
    return [low + step * number for number in range(many)] + [high - step * number for number in range(many)]


def bounded(schema: JsonObject, value: float, *, whole: bool) -> int | float:
    """The nearest number that the schema allows."""
    low, high = _limit(schema.get("minimum")), _limit(schema.get("maximum"))
    above, below = _limit(schema.get("exclusiveMinimum")), _limit(schema.get("exclusiveMaximum"))
    step = _limit(schema.get("multipleOf")) or (1 if whole else 0)
    if step > 0:
        floors = [] if low is None else [math.ceil(low / step)]
        floors += [] if above is None else [math.floor(above / step) + 1]
        ceilings = [] if high is None else [math.floor(high / step)]
        ceilings += [] if below is None else [math.ceil(below / step) - 1]
        value = max([*floors, min([*ceilings, round(value / step)])]) * step
    else:
        floor = max(bound for bound in (low, above, -math.inf) if bound is not None)
        ceiling = min(bound for bound in (high, below, math.inf) if bound is not None)
        value = max(floor, min(ceiling, value))
        if value in (above, below):
            value = (floor + ceiling) / 2 if math.isfinite(floor + ceiling) else value + (1 if value == above else -1)
    return int(value) if whole or float(value).is_integer() else value


def written(value: Json) -> str:
    """The value as JSON text; a default that is nested too deeply to be written counts as empty."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "{}"
