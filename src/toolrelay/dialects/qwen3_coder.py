"""Qwen3-Coder and Seed-OSS: a tag for each parameter. Also Step 3.5, Nemotron 3 and MiMo.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Seed-OSS has another outer tag, `<seed:tool_call>`, and no line breaks around values. The outer tag may be missing.
Sources: the chat templates of Qwen3-Coder (vLLM, tool_chat_template_qwen3coder) and Seed-OSS (llama.cpp, ByteDance-Seed-OSS).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.hermes import render_results
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.rendering import json_line, render_json_results
from toolrelay.dialects.tagged_parameters import TagForm, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_FUNCTION = "<function="
_NAME_IN_TAG = re.compile(r"\s*[\"']?[\w.\-]*[\"']?\s*/?")


def grammar(reader: Reader, sink: CallSink, marker: str, form: TagForm) -> Parse[None]:
    if marker != _FUNCTION:
        yield from reader.skip_blanks()
        if (yield from reader.peek()) == "{":  # as in Hermes
            yield from json_calls(reader, sink, closed=True)
            yield from reader.accept_after_blanks(*form.frame.closes)
            return
        yield from reader.expect(_FUNCTION)
    while True:
        written = yield from reader.read_word(">", of=_NAME_IN_TAG)
        name = written.strip("\"' \t\r\n/")
        if not name:
            raise NotACallError
        if written.endswith("/"):
            sink.start(name)
            sink.finish()
        else:
            yield from tagged_call(reader, sink, form, name)
        if not (yield from reader.accept_after_blanks(_FUNCTION)):
            break
    yield from reader.accept_after_blanks(*form.frame.closes)


def render_calls(calls: Sequence[Call], tag: str, form: TagForm) -> str:
    return "\n".join(f"<{tag}>\n<function={call.name}>\n{render_parameters(call, form)}</function>\n</{tag}>" for call in calls)


_INSTRUCTIONS = """

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
    listed = "".join(map(_render_tool, tools))
    return f"# Tools\n\nYou have access to the following functions:\n\n<tools>{listed}\n</tools>{_INSTRUCTIONS}"


def _render_tool(tool: Tool) -> str:
    parameters: JsonObject = tool.parameters or {}
    properties = parameters.get("properties")
    lines = ["\n<function>", f"<name>{tool.name}</name>"]
    if tool.description is not None:
        lines.append(_render_field("description", tool.description))
    lines.append("<parameters>")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        fields: JsonObject = schema if isinstance(schema, dict) else {}
        lines += ["<parameter>", _render_field("name", name)]
        lines += [_render_field(key, fields[key]) for key in ("type", "description") if key in fields]
        lines += [_render_field(key, value) for key, value in fields.items() if key not in ("name", "type", "description")]
        lines.append("</parameter>")
    lines += [_render_field(key, value) for key, value in parameters.items() if key not in ("type", "properties")]
    return "\n".join(line for line in (*lines, "</parameters>", "</function>") if line)


def _render_field(key: str, value: Json) -> str:
    """Render a tag with a value. A value that could leave its tag is escaped as JSON on one line."""
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
        render_results=render_results if name == "qwen3_coder" else render_json_results,
        render_tools=render_tools if name == "qwen3_coder" else None,
    )


def _frame(tag: str) -> CallFrame:
    return CallFrame(call=_FUNCTION, name_ends=(">",), ends=("</function>",), opens=(f"<{tag}>",), closes=(f"</{tag}>",))


QWEN = TagForm(key_open="<parameter=", key_close=">", value_close="</parameter>", frame=_frame("tool_call"), trims=True)
SEED = replace(QWEN, frame=_frame("seed:tool_call"), trims=False)
DIALECTS = (
    _dialect("qwen3_coder", "tool_call", QWEN),
    _dialect("seed_oss", "seed:tool_call", SEED),
)
