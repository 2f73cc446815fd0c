"""`[f(a=1, b="x"), g()]`: Llama 3.2 and 4, ToolACE; in tags: Olmo 3, LFM 2. See _python: read, never evaluated.

Sources: vLLM's tool_chat_template_llama4_pythonic and tool_chat_template_olmo3 (a call a line in `<function_calls>`, JSON's words
for constants), llama.cpp's LFM2.5-8B-A1B and llama-cpp-lfm2 (also JSON in the same tags). Without tags a list counts only as the
whole answer (see _bare). The templates put strings in quotes and escape nothing; here quotes and line breaks are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._bare import whole_answer
from toolrelay.dialects._json_calls import json_calls
from toolrelay.dialects._python import python_calls
from toolrelay.dialects._writing import JSON_WORDS, function, json_line, openai_tool, python_call
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader


def _bare(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from whole_answer(reader, sink, _list)


def _list(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from python_calls(reader, sink)
    yield from reader.blanks()
    yield from reader.literal("]")


def _tagged(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    yield from reader.blanks()
    if (yield from reader.ahead("{", "[{")):
        yield from json_calls(reader, sink)
    else:
        listed = yield from reader.option("[")
        yield from python_calls(reader, sink)
        if listed:
            yield from reader.closing("]")
    yield from reader.closing(_CLOSERS[marker])


def _llama_calls(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(python_call(call, '"') for call in calls) + "]"


def _llama_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(json_line(outcome.text) for outcome in outcomes)


def _llama_tools(tools: Sequence[Tool]) -> str:
    listed = "\n".join(json_line(openai_tool(tool)) for tool in tools)
    return (
        "Here is a list of functions in JSON format that you can invoke. "
        f"Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]\n{listed}"
    )


def _olmo_calls(calls: Sequence[Call]) -> str:
    lines = "\n".join(python_call(call, "'", JSON_WORDS) for call in calls)
    return f"<function_calls>\n{lines}\n</function_calls>"


def _olmo_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(f"Function {outcome.call.name} returned:\n{outcome.text}" for outcome in outcomes)


def _olmo_tools(tools: Sequence[Tool]) -> str:
    listed = "\n".join(json_line(function(tool)) for tool in tools)
    return f"""You have access to the following functions. To call functions, respond with a pythonic function call wrapped in \
<function_calls></function_calls> XML tags.

For example, to call a function named 'get_weather' with parameters city='New York' and units='celsius', respond with:
<function_calls>
get_weather(city='New York', units='celsius')
</function_calls>

You can call multiple functions by putting each call on a new line within the tags:
<function_calls>
function1(param1='value1')
function2(param2='value2')
</function_calls>

Here are the available functions:
<functions>
{listed}
</functions>"""


def _lfm_calls(calls: Sequence[Call]) -> str:
    return "<|tool_call_start|>[" + ", ".join(python_call(call, "'") for call in calls) + "]<|tool_call_end|>"


def _lfm_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(f"<|tool_response_start|>{outcome.text}<|tool_response_end|>" for outcome in outcomes)


def _lfm_tools(tools: Sequence[Tool]) -> str:
    return "List of tools: " + json_line([openai_tool(tool) for tool in tools])


_CLOSERS = {"<function_calls>": "</function_calls>", "<|tool_call_start|>": "<|tool_call_end|>"}
DIALECTS = (
    Dialect(
        name="pythonic",
        start_markers=(StartMarker("[", "start"),),
        grammar=_bare,
        render_calls=_llama_calls,
        render_results=_llama_outcomes,
        render_tools=_llama_tools,
    ),
    Dialect(
        name="olmo3",
        start_markers=(StartMarker("<function_calls>"),),
        end_markers=("</function_calls>",),
        grammar=_tagged,
        render_calls=_olmo_calls,
        render_results=_olmo_outcomes,
        render_tools=_olmo_tools,
    ),
    Dialect(
        name="lfm2",
        start_markers=(StartMarker("<|tool_call_start|>"),),
        end_markers=("<|tool_call_end|>",),
        grammar=_tagged,
        render_calls=_lfm_calls,
        render_results=_lfm_outcomes,
        render_tools=_lfm_tools,
    ),
)
