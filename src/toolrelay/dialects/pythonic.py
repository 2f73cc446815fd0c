"""Calls as Python: Llama 4 and ToolACE as a list, Olmo 3 and LFM 2 in tags. Nothing is evaluated.

pythonic:  [get_weather(city="Paris")]      Llama 4 also between `<|python_start|>` and `<|python_end|>`
olmo3:     <function_calls>
           get_weather(city='Paris')
           </function_calls>
lfm2:      <|tool_call_start|>[get_weather(city='Paris')]<|tool_call_end|>      or JSON in the same tags; lfm25 has no tags around
           tools and results

Servers may leave out special tokens. Without tags, a list counts only as the whole answer (parsing.grammar.whole_answer). The
templates escape nothing in strings; here quotes and line breaks are escaped.
Sources: vLLM's tool_chat_template_llama4_pythonic and tool_chat_template_olmo3 (constants as in JSON), llama.cpp's LFM2-8B-A1B
and LFM2.5-8B-A1B.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.python_calls import python_calls
from toolrelay.dialects.rendering import (
    JSON_CONSTANTS,
    framed_results,
    function_schema,
    json_line,
    json_lines,
    json_list,
    render_python_call,
)
from toolrelay.parsing.grammar import CallSink, StartMarker, whole_answer
from toolrelay.parsing.stream_reader import Parse, Reader


def _llama(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker in _END_TAGS:
        yield from _tagged(reader, sink, marker)
    else:
        yield from whole_answer(reader, sink, _list)


def _list(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from python_calls(reader, sink)
    yield from reader.skip_blanks()
    yield from reader.expect("]")


def _tagged(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    yield from reader.skip_blanks()
    if (yield from reader.is_ahead("{", "[{")):
        yield from json_calls(reader, sink, closed=True)
    else:
        listed = yield from reader.accept("[")
        yield from python_calls(reader, sink)
        if listed:
            yield from reader.accept_after_blanks("]")
    yield from reader.accept_after_blanks(_END_TAGS[marker])


def _llama_calls(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(render_python_call(call, '"') for call in calls) + "]"


def _llama_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(json_line(result.text) for result in results)


def _llama_tools(tools: Sequence[Tool]) -> str:
    return (
        "Here is a list of functions in JSON format that you can invoke. "
        f"Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]\n{json_lines(tools)}"
    )


def _olmo_calls(calls: Sequence[Call]) -> str:
    lines = "\n".join(render_python_call(call, "'", JSON_CONSTANTS) for call in calls)
    return f"<function_calls>\n{lines}\n</function_calls>"


def _olmo_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(f"Function {result.call.name} returned:\n{result.text}" for result in results)


def _olmo_tools(tools: Sequence[Tool]) -> str:
    listed = "\n".join(json_line(function_schema(tool)) for tool in tools)
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
    return "<|tool_call_start|>[" + ", ".join(render_python_call(call, "'") for call in calls) + "]<|tool_call_end|>"


def _lfm2_tools(tools: Sequence[Tool]) -> str:
    return f"List of tools: <|tool_list_start|>{json_list(tools)}<|tool_list_end|>"


def _lfm25_tools(tools: Sequence[Tool]) -> str:
    return f"List of tools: {json_list(tools)}"


_PYTHON, _PYTHON_END = "<|python_start|>", "<|python_end|>"
_END_TAGS = {"<function_calls>": "</function_calls>", "<|tool_call_start|>": "<|tool_call_end|>", _PYTHON: _PYTHON_END}
DIALECTS = (
    Dialect(
        name="pythonic",
        start_markers=(StartMarker(_PYTHON), StartMarker("[", "start")),
        grammar=_llama,
        render_calls=_llama_calls,
        render_results=_llama_results,
        render_tools=_llama_tools,
    ),
    Dialect(
        name="olmo3",
        start_markers=(StartMarker("<function_calls>"),),
        end_markers=("</function_calls>",),
        grammar=_tagged,
        render_calls=_olmo_calls,
        render_results=_olmo_results,
        render_tools=_olmo_tools,
    ),
    *(
        Dialect(
            name=name,
            start_markers=(StartMarker("<|tool_call_start|>"), StartMarker("[", "start")),
            end_markers=("<|tool_call_end|>",),
            grammar=_llama,
            render_calls=_lfm_calls,
            render_results=render_results,
            render_tools=render_tools,
        )
        for name, render_results, render_tools in (
            ("lfm2", framed_results("<|tool_response_start|>", "<|tool_response_end|>"), _lfm2_tools),
            ("lfm25", framed_results("<|im_start|>tool\n", separator="<|im_end|>\n"), _lfm25_tools),
        )
    ),
)
