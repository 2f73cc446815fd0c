"""Solar Open: an id, a name and JSON arguments between marks.

    <|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>
    <|calls|>

Marks around text are removed.
Source: llama.cpp's template upstage-Solar-Open-100B.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.identity import shorten_id
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.rendering import arguments_json, function_schema, json_line
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.json import json_value
from toolrelay.parsing.stream_reader import Parse, Reader

_NAME, _ARGUMENTS = "<|tool_call:name|>", "<|tool_call:args|>"
_FRAME = CallFrame(
    call="<|tool_call:begin|>",
    name_ends=(_NAME,),
    ends=("<|tool_call:end|>",),
    opens=("<|tool_calls|>",),
    closes=("<|calls|>",),
)
_ID = re.compile(r"[\w\-]*")
_STRIPPED = ("<|begin|>assistant", "<|content|>", "<|end|>")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker in _STRIPPED:
        return
    if marker != _FRAME.call:
        yield from reader.skip_blanks()
        yield from reader.expect(_FRAME.call)
    while True:
        yield from reader.read_word(_NAME, of=_ID)
        sink.start((yield from reader.read_name(_ARGUMENTS)))
        yield from reader.skip_blanks()
        if (yield from reader.peek()) != "<":
            yield from json_value(reader, sink.arguments)
        yield from _FRAME.end_call(reader)
        sink.finish()
        if not (yield from reader.accept_after_blanks(_FRAME.call)):
            break
    yield from reader.accept_after_blanks(*_FRAME.closes)


def render_calls(calls: Sequence[Call]) -> str:
    written = "".join(
        f"{_FRAME.call}{shorten_id(call.id)}{_NAME}{call.name}{_ARGUMENTS}{arguments_json(call)}{_FRAME.ends[0]}"
        for call in calls
    )
    return f"{_FRAME.opens[0]}{written}{_FRAME.closes[0]}"


def render_results(results: Sequence[ToolResult]) -> str:
    written = "".join(
        f"<|tool_response:begin|>{shorten_id(result.call.id)}<|tool_response:name|>{result.call.name}"
        f"<|tool_response:result|>{result.text}<|tool_response:end|>"
        for result in results
    )
    return f"<|tool_response|>{written}"


def render_tools(tools: Sequence[Tool]) -> str:
    listed = "".join(f"<|tool:begin|>{json_line(function_schema(tool))}<|tool:end|>" for tool in tools)
    return f"""## Tools

### Tool Call Instruction
You may invoke one or more tools to assist with the user's query. Available tools are provided in JSON Schema format: \
<|tools:begin|><|tool:begin|><tools-json-object><|tool:end|>...<|tools:end|>

### Available Tools
<|tools:begin|>{listed}<|tools:end|>

### Tool Call Format
For each tool call, return a JSON object with the following structure, enclosed within {_FRAME.call} and {_FRAME.ends[0]} tags:
{_FRAME.call}<tool-call-id>{_NAME}<tool-name>{_ARGUMENTS}<args-json-object>{_FRAME.ends[0]}
- The <tool-call-id> must be a randomly generated string consisting of 10 lowercase letters (a-z) and/or digits (0-9) (e.g., \
a1b2c3d4e5)

### Tool Response Format
Each tool is responded by `tool` with the following structure:
<|tool_response:id|><tool-call-id><|tool_response:name|><tool-name><|tool_response:result|><results><|tool_response:end|>
- Ensure the <tool-call-id> matches the corresponding tool call"""


DIALECTS = (
    Dialect(
        name="solar",
        start_markers=tuple(map(StartMarker, (*_FRAME.opens, _FRAME.call, *_STRIPPED))),
        end_markers=(*_FRAME.ends, *_FRAME.closes),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    ),
)
