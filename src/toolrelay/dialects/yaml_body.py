"""YAML mappings, as models write arguments, to JSON: block mappings and lists, literal and folded text, scalars, flow values.

A subset: no anchors, tags, documents or complex keys. Scalars are typed by the tool's schema, so `no` and `1.0` stay strings
where the schema wants strings.
"""

from __future__ import annotations

import re

from toolrelay.core.json import Json, JsonObject
from toolrelay.dialects.nested_tags import text_to_json
from toolrelay.dialects.parameter_types import types_of
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.parsing.json import encode_string

_MEMBER = re.compile(r"""("[^"]*"|'[^']*'|[^\s:#&*!|>'"%@`{\[][^:]*?)\s*:(?:\s+(.*))?$""")
_BLOCK = re.compile(r"([|>])([+-]?)(?:\s+#.*)?$")
_COMMENT = re.compile(r"\s#.*$")
_MAX_DEPTH = 32


class _InvalidYamlError(Exception):
    pass


def yaml_to_json(text: str, schema: JsonObject) -> str | None:
    """Return the JSON of a YAML mapping; None if the text is not one."""
    try:
        return _Yaml(text, schema).parse()
    except _InvalidYamlError:
        return None


class _Yaml:
    def __init__(self, text: str, root: JsonObject) -> None:
        self._lines = [line.rstrip("\r") for line in text.expandtabs(2).split("\n")]
        self._at = 0
        self._root = root

    def parse(self) -> str:
        indent = self._indent()
        if indent is None:
            return "{}"
        parsed = self._mapping(indent, self._root, 0)
        if self._indent() is not None:
            raise _InvalidYamlError
        return parsed

    def _indent(self) -> int | None:
        """Skip blank lines and comments; return the indentation of the next line, None at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and not line.lstrip().startswith("#"):
                return len(line) - len(line.lstrip())
            self._at += 1
        return None

    def _mapping(self, indent: int, schema: Json, depth: int) -> str:
        members: dict[str, str] = {}
        while self._indent() == indent:
            found = _MEMBER.match(self._lines[self._at].strip())
            if found is None:
                raise _InvalidYamlError
            key = found.group(1).strip("\"'")
            self._at += 1
            members[key] = self._value((found.group(2) or "").strip(), indent, self._member_schema(schema, key), depth)
        if not members or (self._indent() or 0) > indent:
            raise _InvalidYamlError
        return "{" + ", ".join(f"{encode_string(key)}: {value}" for key, value in members.items()) + "}"

    def _list(self, indent: int, schema: Json, depth: int) -> str:
        items = []
        item_schema = schema.get("items", True) if isinstance(schema, dict) else True
        while self._indent() == indent and self._lines[self._at].lstrip().startswith("-"):
            line = self._lines[self._at].strip()
            if line != "-" and not line.startswith("- "):
                raise _InvalidYamlError
            rest = line[1:].lstrip()
            inner = indent + len(line) - len(rest)
            if _MEMBER.match(rest) and rest[0] not in "\"'{[":
                self._lines[self._at] = " " * inner + rest
                items.append(self._mapping(inner, item_schema, self._deeper(depth)))
            else:
                self._at += 1
                items.append(self._value(rest, indent, item_schema, depth))
        return "[" + ", ".join(items) + "]"

    def _value(self, text: str, indent: int, schema: Json, depth: int) -> str:
        """Parse what follows a key or dash: on the same line, or more indented below."""
        block = _BLOCK.match(text)
        if block is not None:
            return encode_string(self._block(indent, folded=block.group(1) == ">", keep=block.group(2)))
        if text and not text.startswith("#"):
            return self._scalar(text, schema)
        below = self._indent()
        is_list = below is not None and self._lines[self._at].lstrip().startswith("-")
        if below is None or below < indent or (below == indent and not is_list):
            return "null" if "null" in types_of(schema, self._root) else '""'
        if is_list:
            return self._list(below, schema, self._deeper(depth))
        return self._mapping(below, schema, self._deeper(depth))

    def _block(self, indent: int, *, folded: bool, keep: str) -> str:
        lines: list[str] = []
        margin: int | None = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip():
                begins = len(line) - len(line.lstrip())
                margin = begins if margin is None else margin
                if begins <= indent or begins < margin:
                    break
            lines.append(line[margin or 0 :] if line.strip() else "")
            self._at += 1
        text = "\n".join(lines).rstrip("\n")
        if folded:
            text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
        return text if keep == "-" or not text else f"{text}\n"

    def _scalar(self, text: str, schema: Json) -> str:
        quoted = python_to_json(text) if text[0] in "\"'" else None
        if quoted is not None:
            return quoted
        if text[0] not in "[{":
            text = _COMMENT.sub("", text)
        return text_to_json(text, types_of(schema, self._root))

    def _member_schema(self, schema: Json, key: str) -> Json:
        fields: JsonObject = schema if isinstance(schema, dict) else {}
        properties = fields.get("properties")
        declared: JsonObject = properties if isinstance(properties, dict) else {}
        return declared.get(key, fields.get("additionalProperties", True))

    def _deeper(self, depth: int) -> int:
        if depth >= _MAX_DEPTH:
            raise _InvalidYamlError
        return depth + 1
