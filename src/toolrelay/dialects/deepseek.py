"""DeepSeek V3, R1 and V3.1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>…<｜tool▁sep｜>…<｜tool▁call▁end｜><｜tool▁calls▁end｜>`.

V3 writes `function<｜tool▁sep｜>f` and the arguments in a fence, V3.1 `f<｜tool▁sep｜>{…}`; both are read by both dialects.
Sources: vLLM's tool_chat_template_deepseekv3 and tool_chat_template_deepseekv31.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import NAME
from toolrelay.dialects._writing import arguments, json_line, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_value
from toolrelay.parsing.stream_reader import NAME_ALONE, Parse, Reader

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEPARATOR, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker == _BEGIN:
        yield from reader.blanks()
        yield from reader.literal(_CALL)
    while True:
        yield from _call(reader, sink)
        if not (yield from reader.closing(_CALL)):
            break
    yield from reader.closing(_END)


def _call(reader: Reader, sink: CallSink) -> Parse[None]:
    name = (yield from reader.word(_SEPARATOR, of=NAME_ALONE)).strip()
    if name == "function" and (yield from reader.peek()) != "{":
        name = (yield from reader.word("\n", "```", of=NAME_ALONE)).strip()
    if NAME.fullmatch(name) is None:
        raise NotACallError
    sink.start(name)
    yield from reader.blanks()
    fenced = yield from reader.option("```json", "json", "```")
    yield from reader.blanks()
    if (yield from reader.peek()) in ("{", "[", '"'):
        yield from json_value(reader, sink.arguments)
    if fenced:
        yield from reader.closing("```")
    yield from reader.blanks()
    yield from reader.literal(_CALL_END)
    sink.finish()


def _v3_calls(calls: Sequence[Call]) -> str:
    written = (f"{_CALL}function{_SEPARATOR}{call.name}\n```json\n{arguments(call)}\n```{_CALL_END}" for call in calls)
    return _BEGIN + "\n".join(written) + _END


def _v3_outcomes(outcomes: Sequence[ToolResult]) -> str:
    written = (f"<｜tool▁output▁begin｜>{outcome.text}<｜tool▁output▁end｜>" for outcome in outcomes)
    return "<｜tool▁outputs▁begin｜>" + "\n".join(written) + "<｜tool▁outputs▁end｜>"


def _v3_tools(tools: Sequence[Tool]) -> str:
    listed = "\n".join(json_line(openai_tool(tool)) for tool in tools)
    return f"""# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{listed}
</tools>

For function call returns, you should first print {_BEGIN}
For each function call, you should return object like:
{_CALL}function{_SEPARATOR}<function_name>
```json
<function_arguments_in_json_format>
```{_CALL_END}
At the end of function call returns, you should print {_END}"""


def _v31_calls(calls: Sequence[Call]) -> str:
    return _BEGIN + "".join(f"{_CALL}{call.name}{_SEPARATOR}{arguments(call)}{_CALL_END}" for call in calls) + _END


def _v31_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "".join(f"<｜tool▁output▁begin｜>{outcome.text}<｜tool▁output▁end｜>" for outcome in outcomes)


def _v31_tools(tools: Sequence[Tool]) -> str:
    listed = "\n".join(json_line(openai_tool(tool)) for tool in tools)
    return f"""## Tools
You have access to the following tools:
{listed}
IMPORTANT: ALWAYS adhere to this exact format for tool use:
{_BEGIN}{_CALL}tool_call_name{_SEPARATOR}tool_call_arguments{_CALL_END}{{{{additional_tool_calls}}}}{_END}

Where:

- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces"""


DIALECTS = tuple(
    Dialect(
        name=name,
        start_markers=(StartMarker(_BEGIN), StartMarker(_CALL)),
        end_markers=(_CALL_END, _END),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    )
    for name, render_calls, render_results, render_tools in (
        ("deepseek_v3", _v3_calls, _v3_outcomes, _v3_tools),
        ("deepseek_v31", _v31_calls, _v31_outcomes, _v31_tools),
    )
)
