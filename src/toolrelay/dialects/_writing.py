"""How dialects write what they share: a tool, a call, its arguments as JSON or as Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import ToolResult

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str)


def json_line(value: Json) -> str:
    """As chat templates write JSON (`tojson`): on one line, blanks after separators, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False)


# Controls but for tab and line feed, line and paragraph separators, what overrides the direction of text, annotations, the byte
# order mark, halves of characters, tags; and the beginning of text that looks like one of these spelled out.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
    r"|<(?=U\+[0-9A-F]{4,6}>)"
)


def spelled_out(text: str) -> str:
    """With a line feed as the only line break, and nothing that cannot be seen. Every text has a spelling of its own."""
    return HIDDEN.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)


def openai_tool(tool: Tool) -> JsonObject:
    """A tool as OpenAI declares it, which is how templates get it."""
    return {"type": "function", "function": function(tool)}


def function(tool: Tool) -> JsonObject:
    described: JsonObject = {"name": tool.name}
    if tool.description is not None:
        described["description"] = tool.description
    described["parameters"] = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    return described


def json_object(call: Call, key: str = "arguments") -> str:
    """`{"name": "f", "arguments": {…}}`. The arguments are the model's own text."""
    return f'{{"name": {json_line(call.name)}, "{key}": {arguments(call)}}}'


def arguments(call: Call) -> str:
    return call.arguments if call.arguments.strip() else "{}"


class Argument(msgspec.Struct, frozen=True):
    """One argument: its own JSON, and its text where it is a string."""

    name: str
    json: str
    text: str | None

    @property
    def plain(self) -> str:
        """As it stands in a tag: a string as it is, anything else as JSON."""
        return self.json if self.text is None else self.text


def listed(call: Call) -> list[Argument]:
    """The arguments one by one, unchanged. Arguments that are no JSON object are one, by the name of `arguments`."""
    try:
        members = _members.decode(arguments(call).encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return [Argument("arguments", json_line(call.arguments), call.arguments)]
    return list(_each(members.items()))


def _each(members: Iterable[tuple[str, msgspec.Raw]]) -> Iterable[Argument]:
    for name, raw in members:
        written = bytes(raw)
        yield Argument(name, written.decode(), _string.decode(written) if written.startswith(b'"') else None)


PYTHON_WORDS: Mapping[object, str] = {None: "None", True: "True", False: "False"}
JSON_WORDS: Mapping[object, str] = {None: "null", True: "true", False: "false"}
_CONTROLS = {code: f"\\x{code:02x}" for code in range(32)} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def python_call(call: Call, quote: str, words: Mapping[object, str] = PYTHON_WORDS) -> str:
    """`f(a=1, b='x')`. `words` are what constants are called."""
    try:
        members = msgspec.json.decode(arguments(call).encode(errors="replace"))
        written = ", ".join(f"{key}={_python(value, quote, words)}" for key, value in members.items())
    except (msgspec.MsgspecError, RecursionError, AttributeError):
        written = f"arguments={_python(call.arguments, quote, words)}"
    return f"{call.name}({written})"


def _python(value: Json, quote: str, words: Mapping[object, str]) -> str:
    match value:
        case None | bool():
            return words[value]
        case str():
            escaped = value.replace("\\", "\\\\").replace(quote, f"\\{quote}").translate(_CONTROLS)
            return quote + escaped + quote
        case list():
            return "[" + ", ".join(_python(item, quote, words) for item in value) + "]"
        case dict():
            items = (f"{_python(key, quote, words)}: {_python(item, quote, words)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case _:
            return repr(value)


def as_json_lines(outcomes: Sequence[ToolResult]) -> str:
    """Render results for models whose template has a role for them and no marks: in a user's message they need a frame."""
    return "\n".join(json_line({"tool": outcome.call.name, "result": outcome.text}) for outcome in outcomes)
