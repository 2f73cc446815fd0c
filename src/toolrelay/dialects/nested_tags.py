"""Objects and lists as nested tags, such as `<city>Paris</city><tags><item>a</item><item>b</item></tags>`, to JSON and back."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.dialects.parameter_types import coerce, parts_of, properties_of, types_of
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.dialects.rendering import json_line
from toolrelay.parsing.json import encode_string

_ITEM = "item"
_MAX_DEPTH = 100


class _Element(msgspec.Struct):
    """A tag with its text or children."""

    name: str
    start: int
    text: str = ""
    children: list[_Element] = []

    def named(self, name: str) -> list[_Element]:
        return [child for child in self.children if child.name == name]


def nested_to_json(text: str, prefix: str, schema: Json, root: JsonObject) -> str | None:
    """Return the JSON of nested tags, typed by the schema; None if the text is not such tags and nothing else.

    None also if the schema allows neither an object nor a list. `prefix` precedes each tag. Repeated tags are a list, and so are
    tags named `item`.
    """
    top = None if types_of(schema, root).isdisjoint({"object", "array"}) else _parse(text, prefix)
    return None if top is None else _Encoder(root).encode(top, schema)


def _parse(text: str, prefix: str) -> _Element | None:
    """Return the element around the tags. Missing closing tags are added if a prefix shows that these are no other tags."""
    top = _Element("", 0)
    stack = [top]
    at = 0
    for found in _tags(prefix).finditer(text):
        closing, name = found.groups()
        if closing:
            while prefix and len(stack) > 1 and name != stack[-1].name:
                _close(stack, text, found.start())
            if len(stack) == 1 or name != stack[-1].name:
                return None
            _close(stack, text, found.start())
        else:
            if len(stack) > _MAX_DEPTH or ((len(stack) == 1 or stack[-1].children) and text[at : found.start()].strip()):
                return None
            stack[-1].children.append(_Element(name, found.end()))
            stack.append(stack[-1].children[-1])
        at = found.end()
    while prefix and len(stack) > 1:
        _close(stack, text, len(text))
        at = len(text)
    return top if len(stack) == 1 and top.children and not text[at:].strip() else None


def _close(stack: list[_Element], text: str, end: int) -> None:
    element = stack.pop()
    element.text = text[element.start : end]


@lru_cache(maxsize=8)
def _tags(prefix: str) -> re.Pattern[str]:
    return re.compile(re.escape(prefix) + r"<(/?)([^<>/\s]+)>")


def text_to_json(text: str, types: frozenset[str]) -> str:
    """Return the JSON of a value without tags inside. An empty one may be an empty list or object."""
    if not text.strip() and "string" not in types:
        return "[]" if "array" in types else "{}" if "object" in types else encode_string(text)
    return coerce(text, types) or python_to_json(text) or encode_string(text)


class _Encoder:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._declared: dict[int, tuple[Json, JsonObject]] = {}  # by schema, which is kept so that its id stays its own

    def encode(self, element: _Element, schema: Json) -> str:
        types = types_of(schema, self._root)
        if not element.children:
            return text_to_json(element.text, types)
        names = list(dict.fromkeys(child.name for child in element.children))
        if "array" in types and (names == [_ITEM] or (len(names) == 1 and "object" not in types)):
            return self._list(element.children, schema)
        members = ", ".join(f"{encode_string(name)}: {self._member(element.named(name), schema)}" for name in names)
        return f"[{{{members}}}]" if "array" in types and "object" not in types else f"{{{members}}}"

    def _list(self, elements: list[_Element], schema: Json) -> str:
        items = self._keyword(schema, "items")
        return "[" + ", ".join(self.encode(element, items) for element in elements) + "]"

    def _member(self, elements: list[_Element], schema: Json) -> str:
        if id(schema) not in self._declared:
            self._declared[id(schema)] = schema, properties_of(schema, self._root)
        declared, name = self._declared[id(schema)][1], elements[0].name
        member = declared[name] if name in declared else self._keyword(schema, "additionalProperties")
        if len(elements) == 1:
            return self.encode(elements[0], member)
        return self._list(elements, member if "array" in types_of(member, self._root) else {"items": member})

    def _keyword(self, schema: Json, keyword: str) -> Json:
        """Return the first schema under that keyword; without one, anything is allowed."""
        return next((part[keyword] for part in parts_of(schema, self._root) if keyword in part), True)


def json_to_nested(text: str, prefix: str) -> str:
    """Return an object or list as nested tags; anything that would not survive them is returned as it is."""
    try:
        value = msgspec.json.decode(text.encode(errors="replace"))
        written = _render(value, prefix, _MAX_DEPTH)
        parsed = nested_to_json(written, prefix, True, {})
        survives = parsed is not None and json_line(msgspec.json.decode(parsed)) == json_line(value)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        survives = False
    return written if survives else text


def _render(value: Json, prefix: str, depth: int) -> str:
    if depth < 0:
        raise RecursionError
    match value:
        case dict():
            members = list(value.items())
        case list():
            members = [(_ITEM, item) for item in value]
        case str():
            return value
        case _:
            return json_line(value)
    return "".join(f"{prefix}<{name}>{_render(item, prefix, depth - 1)}{prefix}</{name}>" for name, item in members)
