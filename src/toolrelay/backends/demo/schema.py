"""Values that are valid for a JSON schema, filled from a message.

The schema is the client's and may be anything: the work on it is limited, and no reference is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice

from msgspec import UNSET, UnsetType

from toolrelay.backends.demo.extraction import MessageValues
from toolrelay.core.json import Json, JsonObject

_MAX_DEPTH = 64
_MAX_COST = 5_000
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SAMPLES = (  # one of each format
    *("2025-01-01", "2025-01-01T00:00:00Z", "12:00:00Z", "P1D", "demo@example.com", "https://example.com", "example.com"),
    *("127.0.0.1", "::1", "00000000-0000-4000-8000-000000000000"),
)
_Path = tuple[str, ...]  # a $ref or "" for each step from the root to a schema
to_json: Callable[[Json], str] = partial(json.dumps, ensure_ascii=False)


class _TooLargeError(Exception):
    pass


def generate(schema: Json, values: MessageValues) -> Json:
    """Return a value that the schema allows; None if there is none within the limits."""
    try:
        return _Generator(schema, values).value(schema, ("#",))
    except (_TooLargeError, RecursionError):
        return None


class _Generator:
    def __init__(self, root: Json, values: MessageValues) -> None:
        self._root = root
        self._values = values
        self._cost = 0

    def value(self, schema: Json, path: _Path) -> Json:
        """Return an object with what the message offers; else the default, null if it is allowed, or a sample."""
        plain, path = self._resolve(schema, path)
        branches = _branches(plain)
        value: Json
        if "default" in plain:
            value = plain["default"]
        elif branches:
            for branch in branches:
                with suppress(_TooLargeError):
                    return self.value(branch, path)
            raise _TooLargeError
        elif plain.get("type") == "object" or ("properties" in plain and "type" not in plain):
            value = self._object(plain, path)
        elif plain.get("type") == "array":
            least, item = min(_count(plain, "minItems", 0), 100), plain.get("items")
            found = [self.value(each, path) for each in _list(plain.get("prefixItems"))]
            found = found or list(islice(filter(self._validator(item, path), self._scalars(_dict(item))), least))
            found = found or [self.value(item, path) for _ in range(min(least, 1))]
            value = found + found[-1:] * (least - len(found))
        else:
            value = next(filter(self._validator(plain, path), self._scalars(plain)), None)
            if value is None and not plain.keys().isdisjoint(("format", "pattern")):  # that no sample fits
                return self.value({key: plain[key] for key in plain if key not in ("format", "pattern")}, path)
        self._spend(len(to_json(value)))
        return value

    def _object(self, plain: JsonObject, path: _Path) -> JsonObject:
        members, required = _dict(plain.get("properties")), [str(name) for name in _list(plain.get("required"))]
        validators = {name: self._validator(member, path) for name, member in members.items()}
        texts = [name for name, is_valid in validators.items() if any(is_valid("\0" * length) for length in (1, 10, 100))]
        wanted = required or texts[:1]  # where nothing is required, the first text is filled
        value: JsonObject = {}
        for name in sorted(dict.fromkeys([*members, *required]), key=texts.__contains__):  # texts get what others do not take
            candidates = self._values.candidates(name, is_wanted=name in wanted, is_text=name in texts)
            found = next((each for each in candidates if name in members and validators[name](each)), UNSET)
            if not isinstance(found, UnsetType):
                self._values.take(found)
                value[name] = found
            elif name in required:
                value[name] = self.value(members.get(name), path)
        return {name: value[name] for name in [*members, *value] if name in value}

    def _spend(self, size: int) -> None:
        self._cost += 1 + size // 100
        if self._cost > _MAX_COST:
            raise _TooLargeError

    def _resolve(self, schema: Json, path: _Path) -> tuple[JsonObject, _Path]:
        """Return the schema with $ref and allOf merged into it."""
        plain = dict(_dict(schema))
        ref, parts = str(plain.pop("$ref", "")), _list(plain.pop("allOf", None))
        self._spend(len(ref))
        if len(path) >= _MAX_DEPTH or (ref and ref in path):
            raise _TooLargeError
        path, target = (*path, ref), self._root
        for step in ref.split("/")[1:]:
            target = _dict(target).get(step.replace("~1", "/").replace("~0", "~"))
        for part in [target, *parts] if ref.startswith("#") else parts:
            base, path = self._resolve(part, path)
            both: JsonObject = {"properties": _dict(base.get("properties")) | _dict(plain.get("properties"))}
            both["required"] = [*_list(base.get("required")), *_list(plain.get("required"))]
            plain = base | plain | {key: value for key, value in both.items() if value}
        return plain, path

    def _validator(self, schema: Json, path: _Path) -> Callable[[Json], bool]:
        """Return a check for values. A schema that cannot be compiled, such as one with inner references, accepts nothing."""
        import jsonschema_rs  # noqa: PLC0415 -- other models do without it

        with suppress(_TooLargeError, ValueError, jsonschema_rs.ReferencingError):
            plain, _ = self._resolve(schema, path)
            self._spend(len(to_json(plain)) // 10)
            # json.loads as a retriever fetches nothing: it refuses a URI.
            return jsonschema_rs.validator_for(plain, retriever=json.loads, validate_formats=True).is_valid
        return lambda _: False

    def _scalars(self, plain: JsonObject) -> list[Json]:
        """Return values of which a schema without members allows one."""
        limits = [limit if isinstance(limit := plain.get(key), int | float) and abs(limit) < 1e15 else 0 for key in _LIMITS]
        step = step if (step := limits.pop()) > 1e-9 else 1
        multiples = [limit // step * step + step * more for limit in limits for more in range(-3, 4)]
        numbers = [1, *limits, sum(limits) / 2, *multiples]
        text = self._values.fallback.ljust(min(_count(plain, "minLength", 0), 10_000), ".")[: _count(plain, "maxLength", 10_000)]
        options = [None, plain.get("const"), *_list(plain.get("enum")), *_list(plain.get("examples")), text]
        return [*options, *_SAMPLES, True, *dict.fromkeys(int(number) if number % 1 == 0 else number for number in numbers)]


def _dict(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _count(plain: JsonObject, key: str, default: int) -> int:
    return max(value, 0) if isinstance(value := plain.get(key), int) else default


def _branches(plain: JsonObject) -> list[JsonObject]:
    """Return the alternatives of a union, null first."""
    branches = [plain | {"type": kind} for kind in _list(plain.get("type"))]
    for key in ("anyOf", "oneOf"):
        shared = {name: value for name, value in plain.items() if name != key}
        branches = [{**shared, "allOf": [part]} for part in _list(plain.get(key))] or branches
    return sorted(branches, key=lambda branch: branch.get("type") != "null" and branch.get("allOf") != [{"type": "null"}])
