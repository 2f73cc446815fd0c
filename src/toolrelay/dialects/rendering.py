"""Rendering shared by dialects: tools as JSON, TypeScript or Python, calls as JSON or Python, results as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import ToolResult

# Control characters except tab and line feed, line and paragraph separators, direction overrides, annotations, the byte order
# mark, surrogates, tags; and "<" where the text already looks like an escape.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
    r"|<(?=U\+[0-9A-F]{4,6}>)"
)


def escape_invisible(text: str) -> str:
    """Replace invisible characters by escapes such as <U+202E>. Two different texts never become the same."""
    return _INVISIBLE.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)


def json_line(value: Json) -> str:
    """Encode like `tojson` of chat templates: on one line, a blank after separators, no needless escapes."""
    return json.dumps(value, ensure_ascii=False)


# Tools


def openai_schema(tool: Tool) -> JsonObject:
    """Return a tool as OpenAI's API declares it, which is what chat templates receive."""
    return {"type": "function", "function": function_schema(tool)}


def function_schema(tool: Tool) -> JsonObject:
    schema: JsonObject = {"name": tool.name}
    if tool.description is not None:
        schema["description"] = tool.description
    return schema | {"parameters": tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}}


def json_lines(tools: Sequence[Tool]) -> str:
    return "\n".join(json_line(openai_schema(tool)) for tool in tools)


def json_list(tools: Sequence[Tool]) -> str:
    return json_line([openai_schema(tool) for tool in tools])


def tools_section(tools: Sequence[Tool]) -> str:
    """Return the section that the templates of Hermes, Qwen, GLM and DeepSeek V3 share."""
    return f"""# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{json_lines(tools)}
</tools>

"""


_TYPESCRIPT = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
}
_MAX_DEPTH = 8


def typescript_declaration(tool: Tool) -> str:
    """Return `type f = (_: {…}) => any;`. Descriptions cannot leave their comments."""
    properties = (tool.parameters or {}).get("properties")
    parameters = f"_: {_members(tool.parameters or {}, 0)}" if isinstance(properties, dict) and properties else ""
    return f"{_comment(tool.description)}type {tool.name} = ({parameters}) => any;"


def _comment(text: Json) -> str:
    return "".join(f"// {line}\n" for line in text.splitlines()) if isinstance(text, str) else ""


def _members(schema: JsonObject, depth: int) -> str:
    properties = schema.get("properties")
    required = schema.get("required")
    lines = []
    for name, member in properties.items() if isinstance(properties, dict) else ():
        fields: JsonObject = member if isinstance(member, dict) else {}
        optional = "" if isinstance(required, list) and name in required else "?"
        default = f" // default: {json_line(fields['default'])}" if "default" in fields else ""
        key = name if name.isidentifier() else json_line(name)
        lines.append(f"{_comment(fields.get('description'))}{key}{optional}: {_type(fields, depth)},{default}\n")
    return "{\n" + "".join(lines) + "}"


def _type(schema: Json, depth: int) -> str:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "any"
    if isinstance(values := schema.get("enum"), list):
        return " | ".join(map(json_line, values))
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return " | ".join(dict.fromkeys(_type(choice, depth + 1) for choice in choices))
    match schema.get("type"):
        case "array":
            return f"{_type(schema.get('items'), depth + 1)}[]"
        case "object" if schema.get("properties"):
            return _members(schema, depth + 1)
        case str(kind):
            return _TYPESCRIPT.get(kind, "any")
        case list(kinds):
            return " | ".join(_type({**schema, "type": kind}, depth + 1) for kind in kinds)
        case _:
            return "any"


_PYTHON_TYPES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}


def python_declaration(tool: Tool) -> str:
    """Return a Python function without a body. Descriptions cannot leave their docstrings."""
    properties = (tool.parameters or {}).get("properties")
    required = (tool.parameters or {}).get("required")
    signature, described = [], []
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        fields: JsonObject = schema if isinstance(schema, dict) else {}
        kind, shown = _python_type(fields, 0), name if name.isidentifier() else json_line(name)
        optional = not (isinstance(required, list) and name in required)
        if optional:
            kind = f"Optional[{kind}]"
        signature.append(f"{shown}: {kind}{' = None' if optional else ''}")
        described.append(f"        {shown} ({kind}): {one_line(fields.get('description'))}")
    arguments = "\n\n    Args:\n" + "\n".join(described) if described else ""
    return (
        f"def {tool.name}({', '.join(signature)}) -> List[Dict]:\n"
        f'    """{one_line(tool.description)}{arguments}\n    """\n    pass'
    )


def one_line(text: Json) -> str:
    """Return a description on one line, without the end of a docstring."""
    return " ".join(text.split()).replace('"""', '" " "') if isinstance(text, str) else ""


def _python_type(schema: Json, depth: int) -> str:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "Any"
    match schema.get("type"):
        case "array":
            return f"List[{_python_type(schema.get('items'), depth + 1)}]"
        case "object":
            return f"Dict[str, {_python_type(schema.get('additionalProperties'), depth + 1)}]"
        case list(kinds):
            return "Union[" + ",".join(_python_type({"type": kind}, depth + 1) for kind in kinds) + "]"
        case str(kind):
            return _PYTHON_TYPES.get(kind, "Any")
        case _:
            return "Any"


# Calls


def arguments_json(call: Call) -> str:
    """Return the model's own text of the arguments; `{}` if there is none."""
    return call.arguments if call.arguments.strip() else "{}"


def render_json_call(call: Call, key: str = "arguments") -> str:
    """Return `{"name": "f", "arguments": {…}}`."""
    return f'{{"name": {json_line(call.name)}, "{key}": {arguments_json(call)}}}'


class Argument(msgspec.Struct, frozen=True):
    """An argument of a call: its JSON, and its text if it is a string."""

    name: str
    json: str
    text: str | None

    @property
    def plain(self) -> str:
        """A string as it is, anything else as JSON."""
        return self.json if self.text is None else self.text


_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string_decoder = msgspec.json.Decoder(str)


def split_arguments(call: Call) -> list[Argument]:
    """Return the arguments one by one. Text that is not a JSON object becomes a single argument named `arguments`."""
    try:
        members = _members_decoder.decode(arguments_json(call).encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return [Argument("arguments", json_line(call.arguments), call.arguments)]
    return [
        Argument(name, bytes(raw).decode(), _string_decoder.decode(raw) if bytes(raw).startswith(b'"') else None)
        for name, raw in members.items()
    ]


PYTHON_CONSTANTS: Mapping[object, str] = {None: "None", True: "True", False: "False"}
JSON_CONSTANTS: Mapping[object, str] = {None: "null", True: "true", False: "false"}
_CONTROLS = {code: f"\\x{code:02x}" for code in range(32)} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def render_python_call(call: Call, quote: str, constants: Mapping[object, str] = PYTHON_CONSTANTS) -> str:
    """Return `f(a=1, b='x')`."""
    try:
        members = msgspec.json.decode(arguments_json(call).encode(errors="replace"))
        keywords = ", ".join(f"{key}={_python(value, quote, constants)}" for key, value in members.items())
    except (msgspec.MsgspecError, RecursionError, AttributeError):
        keywords = f"arguments={_python(call.arguments, quote, constants)}"
    return f"{call.name}({keywords})"


def _python(value: Json, quote: str, constants: Mapping[object, str]) -> str:
    match value:
        case None | bool():
            return constants[value]
        case str():
            return quote + value.replace("\\", "\\\\").replace(quote, f"\\{quote}").translate(_CONTROLS) + quote
        case list():
            return "[" + ", ".join(_python(item, quote, constants) for item in value) + "]"
        case dict():
            items = (f"{_python(key, quote, constants)}: {_python(item, quote, constants)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case _:
            return repr(value)


# Results


def framed_results(before: str = "", after: str = "", separator: str = "\n") -> Callable[[Sequence[ToolResult]], str]:
    """Return a renderer that writes the text of each result between two marks.

    Where the template has a role for results, `before` begins such a turn, and `separator` ends all but the last one, which the
    template ends.
    """
    return lambda results: separator.join(f"{before}{result.text}{after}" for result in results)


def render_json_results(results: Sequence[ToolResult]) -> str:
    """Render results for models whose template has a role for results but no marks, which a user message would need."""
    return "\n".join(json_line({"tool": result.call.name, "result": result.text}) for result in results)
