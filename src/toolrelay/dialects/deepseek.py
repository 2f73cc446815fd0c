"""DeepSeek V3, R1 and V3.1. Each of the two dialects parses both forms.

V3:    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
       ```json
       {"city": "Paris"}
       ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
V3.1:  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>
       <｜tool▁calls▁end｜>

Sources: vLLM's tool_chat_template_deepseekv3 and tool_chat_template_deepseekv31.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.rendering import arguments_json, framed_results, json_lines, tools_section
from toolrelay.parsing.errors import TruncatedCallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.json import json_arguments
from toolrelay.parsing.stream_reader import Parse, Reader

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEPARATOR, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FRAME = CallFrame(call=_CALL, name_ends=(_SEPARATOR,), ends=(_CALL_END,), opens=(_BEGIN,), closes=(_END,))
_OUTPUT = ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>")
_OUTPUTS = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker == _BEGIN:
        yield from reader.skip_blanks()
        yield from reader.expect(_CALL)
    while True:
        yield from _call(reader, sink)
        if not (yield from reader.accept_after_blanks(_CALL)):
            break
    yield from reader.accept_after_blanks(_END)


def _call(reader: Reader, sink: CallSink) -> Parse[None]:
    name = yield from reader.read_name(_SEPARATOR)
    if name == "function" and (yield from reader.peek()) != "{":
        name = yield from reader.read_name("\n", "```")
    sink.start(name)
    yield from reader.skip_blanks()
    fenced = yield from reader.accept("```json", "json", "```")
    yield from reader.skip_blanks()
    if (yield from reader.peek()) in ("{", "[", '"'):
        yield from json_arguments(reader, sink.arguments)
    elif not (yield from reader.peek()):
        raise TruncatedCallError
    if fenced:
        yield from reader.accept_after_blanks("```")
    yield from _FRAME.end_call(reader)
    sink.finish()


def _v3_calls(calls: Sequence[Call]) -> str:
    written = (f"{_CALL}function{_SEPARATOR}{call.name}\n```json\n{arguments_json(call)}\n```{_CALL_END}" for call in calls)
    return _BEGIN + "\n".join(written) + _END


def _v3_results(results: Sequence[ToolResult]) -> str:
    return framed_results(*_OUTPUT)(results).join(_OUTPUTS)


def _v3_tools(tools: Sequence[Tool]) -> str:
    return f"""{tools_section(tools)}For function call returns, you should first print {_BEGIN}
For each function call, you should return object like:
{_CALL}function{_SEPARATOR}<function_name>
```json
<function_arguments_in_json_format>
```{_CALL_END}
At the end of function call returns, you should print {_END}"""


def _v31_calls(calls: Sequence[Call]) -> str:
    return _BEGIN + "".join(f"{_CALL}{call.name}{_SEPARATOR}{arguments_json(call)}{_CALL_END}" for call in calls) + _END


def _v31_tools(tools: Sequence[Tool]) -> str:
    return f"""## Tools
You have access to the following tools:
{json_lines(tools)}
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
        stray_marks=("<｜end▁of▁sentence｜>", *_OUTPUT, *_OUTPUTS),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    )
    for name, render_calls, render_results, render_tools in (
        ("deepseek_v3", _v3_calls, _v3_results, _v3_tools),
        ("deepseek_v31", _v31_calls, framed_results(*_OUTPUT, ""), _v31_tools),
    )
)
