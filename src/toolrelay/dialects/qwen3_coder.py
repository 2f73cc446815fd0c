"""`<tool_call><function=f><parameter=k>v</parameter></function></tool_call>`: Qwen3-Coder, Step 3.5, Nemotron 3, MiMo; Seed-OSS.

Sources: the chat templates of Qwen3-Coder (vLLM, tool_chat_template_qwen3coder) and Seed-OSS (llama.cpp, ByteDance-Seed-OSS).
The two differ in the outer tag, and Qwen puts each value on lines of its own. Models leave the outer tag out at times.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import NAME
from toolrelay.dialects._tags import TagForm, render_parameters, tagged_call
from toolrelay.dialects._writing import as_json_lines, json_line
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.hermes import render_results
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME_ALONE, Parse, Reader

_FUNCTION = "<function="


def grammar(reader: Reader, sink: CallSink, marker: str, form: TagForm) -> Parse[None]:
    if marker != _FUNCTION:
        yield from reader.blanks()
        yield from reader.literal(_FUNCTION)
    while True:
        name = (yield from reader.word(">", of=NAME_ALONE)).strip()
        if NAME.fullmatch(name) is None:
            raise NotACallError
        yield from tagged_call(reader, sink, form, name)
        if not (yield from reader.closing(_FUNCTION)):
            break
    yield from reader.closing("</tool_call>", "</seed:tool_call>")


def render_calls(calls: Sequence[Call], tag: str, form: TagForm) -> str:
    return "\n".join(f"<{tag}>\n<function={call.name}>\n{render_parameters(call, form)}</function>\n</{tag}>" for call in calls)


_EXAMPLE = """

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user \
about function calls
</IMPORTANT>"""


def render_tools(tools: Sequence[Tool]) -> str:
    return (
        "# Tools\n\nYou have access to the following functions:\n\n<tools>" + "".join(map(_tool, tools)) + "\n</tools>" + _EXAMPLE
    )


def _tool(tool: Tool) -> str:
    parameters: JsonObject = tool.parameters or {}
    properties = parameters.get("properties")
    lines = ["\n<function>", f"<name>{tool.name}</name>"]
    if tool.description is not None:
        lines.append(_field("description", tool.description))
    lines.append("<parameters>")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        fields: JsonObject = schema if isinstance(schema, dict) else {}
        lines += ["<parameter>", _field("name", name)]
        lines += [_field(key, fields[key]) for key in ("type", "description") if key in fields]
        lines += [_field(key, value) for key, value in fields.items() if key not in ("name", "type", "description")]
        lines.append("</parameter>")
    lines += [_field(key, value) for key, value in parameters.items() if key not in ("type", "properties")]
    return "\n".join(line for line in (*lines, "</parameters>", "</function>") if line)


def _field(key: str, value: Json) -> str:
    """What could leave its tag is written as JSON, on one line."""
    text = value.strip() if isinstance(value, str) else json_line(value)
    if "<" in text or "\n" in text:
        text = json_line(value).replace("<", "\\u003c")
    return f"<{key}>{text}</{key}>" if NAME.fullmatch(key) else ""


def _dialect(name: str, tag: str, form: TagForm) -> Dialect:
    return Dialect(
        name=name,
        start_markers=(StartMarker(f"<{tag}>"), StartMarker(_FUNCTION)),
        end_markers=(f"</{tag}>", "</function>"),
        grammar=lambda reader, sink, marker: grammar(reader, sink, marker, form),
        render_calls=lambda calls: render_calls(calls, tag, form),
        render_results=render_results if name == "qwen3_coder" else as_json_lines,
        render_tools=render_tools if name == "qwen3_coder" else None,
    )


QWEN = TagForm(key_open="<parameter=", key_close=">", value_close="</parameter>", ends=("</function>",), trims=True)
SEED = replace(QWEN, trims=False)
DIALECTS = (
    _dialect("qwen3_coder", "tool_call", QWEN),
    _dialect("seed_oss", "seed:tool_call", SEED),
)
