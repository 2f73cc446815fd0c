"""Functionary: 3.1 with a tag around JSON, 3.2 with the recipient of each part of the answer on a line of its own.

3.1:  <function=get_weather>{"city": "Paris"}</function>
3.2:  >>>get_weather
      {"city": "Paris"}>>>all
      Text.

The template of 3.2 ends with `>>>`, so that the answer begins with the first recipient.
Sources: llama.cpp's templates meetkai-functionary-medium-v3.1 and meetkai-functionary-medium-v3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects import qwen3_coder
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.rendering import (
    arguments_json,
    function_schema,
    json_line,
    one_line,
    render_json_results,
    typescript_declaration,
)
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import NAME_AT_START, CallSink, StartMarker
from toolrelay.parsing.json import json_value
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_RECIPIENT = ">>>"
_USER = "all"


def _tagged_calls(calls: Sequence[Call]) -> str:
    return "".join(f"<function={call.name}>{arguments_json(call)}</function>" for call in calls)


def _tagged_tools(tools: Sequence[Tool]) -> str:
    listed = "".join(
        f"Use the function '{tool.name}' to '{one_line(tool.description)}'\n{json_line(function_schema(tool))}\n\n"
        for tool in tools
    )
    return f"""You have access to the following functions:

{listed}
Think very carefully before calling functions.
If a you choose to call a function ONLY reply in the following format:
<{{start_tag}}={{function_name}}>{{parameters}}{{end_tag}}
where

start_tag => `<function`
parameters => a JSON dict with the function argument name as key and function argument value as value.
end_tag => `</function>`

Here is an example,
<function=example_function_name>{{"example_name": "example_value"}}</function>

Reminder:
- If looking for real time information use relevant functions before falling back to brave_search
- Function calls MUST follow the specified format, start with <function= and end with </function>
- Required parameters MUST be specified
- Only call one function at a time
- Put the entire function call reply on one line"""


def _recipients(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker != _RECIPIENT:
        reader.unread(marker)
        reader.unread((yield from reader.expect_name({*sink.tools, _USER})))
    while True:
        name = yield from reader.read_match(NAME)
        yield from reader.expect("\n", "\r\n")
        if name == _USER:
            return
        yield from reader.skip_blanks()
        if not name or (yield from reader.peek()) not in ("{", ""):
            raise NotACallError
        sink.start(name)
        yield from json_value(reader, sink.arguments)
        sink.finish()
        if not (yield from reader.accept_after_blanks(_RECIPIENT)):
            return


def _recipient_calls(calls: Sequence[Call]) -> str:
    return "".join(f"{_RECIPIENT}{call.name}\n{arguments_json(call)}" for call in calls)


def _recipient_tools(tools: Sequence[Tool]) -> str:
    declared = "\n\n".join(map(typescript_declaration, tools))
    return f"""You are capable of executing available function(s) if required.
Only execute function(s) when absolutely necessary.
Ask for the required input to:recipient==all
Use JSON for function arguments.
Respond in this format:
>>>${{recipient}}
${{content}}
Available functions:
// Supported function definitions that should be called when necessary.
namespace functions {{

{declared}

}} // namespace functions"""


DIALECTS = (
    Dialect(
        name="functionary31",
        start_markers=(StartMarker("<function="),),
        end_markers=("</function>",),
        grammar=lambda reader, sink, marker: qwen3_coder.grammar(reader, sink, marker, qwen3_coder.QWEN),
        render_calls=_tagged_calls,
        render_results=render_json_results,
        render_tools=_tagged_tools,
    ),
    Dialect(
        name="functionary32",
        start_markers=(StartMarker(_RECIPIENT), *NAME_AT_START),
        grammar=_recipients,
        render_calls=_recipient_calls,
        render_results=render_json_results,
        render_tools=_recipient_tools,
    ),
)
