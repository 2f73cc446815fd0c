"""Qwen3-Coder, Qwen 3.5, MiMo V2 and Seed-OSS: a tag for each parameter. Also Step 3.5 and Nemotron 3.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Qwen 3.5 and Step 3.5 list tools as JSON, Qwen3-Coder in tags.
MiMo V2 has no line breaks between tags and values; Seed-OSS has none around values, and another outer tag, `<seed:tool_call>`.
The outer tag may be missing.
Sources: the chat templates of Qwen3-Coder (vLLM, tool_chat_template_qwen3coder), Qwen 3.5 and Seed-OSS (llama.cpp, Qwen3.5-4B and
ByteDance-Seed-OSS); for MiMo vLLM's parser of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.rendering import framed_results, json_line, json_lines, render_json_results
from toolrelay.dialects.tagged_parameters import TagForm, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

FUNCTION = "<function="
_NAME_IN_TAG = re.compile(r"\s*[\"']?[\w.\-]*[\"']?\s*/?")


def grammar(reader: Reader, sink: CallSink, marker: str, form: TagForm) -> Parse[None]:
    if marker != FUNCTION:
        yield from reader.skip_blanks()
        if (yield from reader.peek()) == "{":  # as in Hermes
            yield from json_calls(reader, sink, closed=True)
            yield from reader.accept_after_blanks(*form.frame.closes)
            return
        yield from reader.expect(FUNCTION)
    while True:
        written = yield from reader.read_word(">", before=("<",), of=_NAME_IN_TAG)
        ended = reader.text[reader.at - 1 : reader.at] == ">"
        followers = form.followers if ended else (form.key_open, *form.frame.ends)
        name = written.strip("\"' \t\r\n/")
        if not name or ((yield from reader.is_ahead("<")) and not (yield from reader.is_ahead(*followers))):
            raise NotACallError
        if written.endswith("/"):
            sink.start(name)
            sink.finish()
        else:
            yield from tagged_call(reader, sink, form, name)
        if not (yield from reader.accept_after_blanks(FUNCTION)):
            break
    yield from reader.accept_after_blanks(*form.frame.closes)


def render_calls(calls: Sequence[Call], tag: str, form: TagForm, line: str) -> str:
    return "\n".join(
        f"<{tag}>{line}<function={call.name}>{line}{render_parameters(call, form, line)}</function>{line}</{tag}>"
        for call in calls
    )


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
    return _tools_section("".join(map(_render_tool, tools)))


def _json_tools(tools: Sequence[Tool]) -> str:
    return _tools_section(f"\n{json_lines(tools)}")


def _tools_section(listed: str) -> str:
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


def _dialect(
    name: str,
    tag: str,
    form: TagForm,
    results: Callable[[Sequence[ToolResult]], str],
    tools: Callable[[Sequence[Tool]], str] | None = None,
    *,
    line: str = "\n",
) -> Dialect:
    return Dialect(
        name=name,
        start_markers=(StartMarker(f"<{tag}>"), StartMarker(f"<{tag} >"), StartMarker(FUNCTION)),
        end_markers=(f"</{tag}>", "</function>"),
        stray_marks=("<|im_end|>",),
        grammar=lambda reader, sink, marker: grammar(reader, sink, marker, form),
        render_calls=lambda calls: render_calls(calls, tag, form, line),
        render_results=results,
        render_tools=tools,
    )


def _frame(tag: str) -> CallFrame:
    return CallFrame(call=FUNCTION, name_ends=(">",), ends=("</function>",), opens=(f"<{tag}>",), closes=(f"</{tag}>",))


@lru_cache(maxsize=256)
def form_in(tag: str) -> TagForm:
    """Return the form of calls inside that tag."""
    return TagForm(key_open="<parameter=", key_close=">", value_close="</parameter>", frame=_frame(tag), trims=True)


QWEN = form_in("tool_call")
MIMO = replace(QWEN, trims=False)
SEED = replace(form_in("seed:tool_call"), trims=False)
_RESULTS = framed_results("<tool_response>\n", "\n</tool_response>")
DIALECTS = (
    _dialect("qwen3_coder", "tool_call", QWEN, _RESULTS, render_tools),
    _dialect("qwen35", "tool_call", QWEN, _RESULTS, _json_tools),
    _dialect("mimo", "tool_call", MIMO, _RESULTS, line=""),
    _dialect("seed_oss", "seed:tool_call", SEED, render_json_results),
)
