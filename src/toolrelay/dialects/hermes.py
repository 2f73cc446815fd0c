"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes 2 Pro, Qwen 2.5 and 3, Granite 4, Ernie 4.5 and many more.

Sources: the chat templates of Qwen3 and Hermes-2-Pro; for LongCat vLLM's test_longcat_tool_parser.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import json_calls
from toolrelay.dialects._writing import json_line, json_object, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

_FIRST = ("{", "[", "<", "`", "")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    close = f"</{marker[1:]}"
    yield from reader.blanks()
    if (yield from reader.peek()) not in _FIRST:
        raise NotACallError
    if (yield from reader.option(marker)):  # some say it twice
        yield from reader.blanks()
    fenced = yield from reader.option("```json", "```")
    yield from json_calls(reader, sink)
    if fenced:
        yield from reader.closing("```")
    yield from reader.closing(close, "}" + close, "}\n" + close)
    yield from reader.closing(close)


def render_calls(calls: Sequence[Call], tag: str = "tool_call") -> str:
    return "\n".join(f"<{tag}>\n{json_object(call)}\n</{tag}>" for call in calls)


def render_results(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(f"<tool_response>\n{outcome.text}\n</tool_response>" for outcome in outcomes)


def render_tools(tools: Sequence[Tool], tag: str = "tool_call") -> str:
    listed = "\n".join(json_line(openai_tool(tool)) for tool in tools)
    return f"""# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{listed}
</tools>

For each function call, return a json object with function name and arguments within <{tag}></{tag}> XML tags:
<{tag}>
{{"name": <function-name>, "arguments": <args-json-object>}}
</{tag}>"""


def dialect(name: str, tag: str) -> Dialect:
    """The same form with another tag."""
    return Dialect(
        name=name,
        start_markers=(StartMarker(f"<{tag}>"),),
        end_markers=(f"</{tag}>",),
        grammar=grammar,
        render_calls=lambda calls: render_calls(calls, tag),
        render_results=render_results,
        render_tools=lambda tools: render_tools(tools, tag),
    )


DIALECTS = (dialect("hermes", "tool_call"), dialect("longcat", "longcat_tool_call"))
