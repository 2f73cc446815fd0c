"""Muse Glimmer: `<atem:invoke>` tags in messages, each to a recipient.

    <|start|>assistant to=get_weather<|message|><atem:function_calls>
    <atem:invoke name="get_weather">
    <atem:parameter name="city">Paris</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eom|>

Messages to `self` are reasoning; tags quoted there or in messages to `user` are no calls. The template ends with
`<|start|>assistant`, so that the answer begins with ` to=`.
Sources: llama.cpp's muse-glimmer template, SGLang's muse_glimmer_detector, vLLM's muse_glimmer_tool_parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.invoke import InvokeForm
from toolrelay.dialects.rendering import function_schema, json_line
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

FORM = InvokeForm(opens="<atem:function_calls>", closes="</atem:function_calls>", prefix="atem:")
_START, _TO, _MESSAGE = "<|start|>", "to=", "<|message|>"
_ENDS = ("<|eom|>", "<|eot|>")
_HEADER = re.compile(r"[ \t]*(?:to=)?[\w.\-]*")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker in (FORM.opens, FORM.invoke):
        yield from FORM.grammar(reader, sink, marker)
        yield from reader.accept_after_blanks(*_ENDS)
        return
    if marker in (_MESSAGE, *_ENDS):
        return
    if marker == _START:
        yield from reader.expect("assistant")
    recipient = (yield from reader.read_word(_MESSAGE, of=_HEADER)).strip().removeprefix(_TO)
    if recipient not in ("", "self", "user"):
        return
    emit = sink.reasoning if recipient == "self" else sink.text
    emit("")
    if (yield from reader.read_until(*_ENDS, _START, emit=emit, or_end=True)) == _START:
        reader.unread(_START)


def render_calls(calls: Sequence[Call]) -> str:
    """Render calls as they follow the header of the first one, because the template writes a header before any answer."""
    written = "".join(f"{_ENDS[0]}{_START}assistant {_TO}{call.name}{_MESSAGE}{FORM.render_calls([call])}" for call in calls[1:])
    return FORM.render_calls(calls[:1]) + written


def render_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(f'<tool_output name="{result.call.name}">\n{result.text}\n</tool_output>' for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    namespaces = dict.fromkeys(tool.name.partition(".")[0] for tool in tools)
    metadata = "\n".join(json_line({"name": name, "description": ""}) for name in namespaces)
    schemas = "\n".join(json_line(function_schema(tool)) for tool in tools)
    recipients = ", ".join(('"self"', *(f'"{name}.*"' for name in namespaces), '"user"'))
    return f"""In this environment you have access to a set of tools you can use to answer the user's question.

You can invoke a function by writing a "<atem:function_calls>" block like the following:
<atem:function_calls>
<atem:invoke name="$FUNCTION_NAME">
<atem:parameter name="$PARAMETER_NAME">$PARAMETER_VALUE</atem:parameter>
...
</atem:invoke>
</atem:function_calls>

String and scalar parameters should be specified as is, while lists and objects should use JSON format. Note that spaces for \
string values are not stripped. The output is not expected to be valid XML and is parsed with regular expressions.
Here are the functions available in JSONSchema format:
// Tool metadata
{metadata}
// Function schemas
{schemas}

Here's an example of how to call a function in the tool set:
(If the tool namespace is not specified, invoke the function directly as `example_function_name` rather than \
`example_tool_name.example_function_name`)

to=example_tool_name.example_function_name

<atem:function_calls>
<atem:invoke name="example_tool_name.example_function_name">
<atem:parameter name="example_parameter_1">value_1</atem:parameter>
<atem:parameter name="example_parameter_2">This is the value for the second parameter
that can span
"multiple" lines
</atem:parameter>
</atem:invoke>
</atem:function_calls>

# Valid recipients: {recipients}."""


DIALECTS = (
    Dialect(
        name="muse_glimmer",
        start_markers=(
            *map(StartMarker, (FORM.opens, FORM.invoke, _START, _MESSAGE, *_ENDS)),
            StartMarker(f" {_TO}", "start"),
            StartMarker(_TO, "start"),
        ),
        end_markers=(FORM.closes, *FORM.form.frame.ends),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    ),
)
