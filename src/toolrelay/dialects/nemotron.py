"""`<TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>`: Nemotron Nano 2 and Nemotron Super 1.5.

Source: llama.cpp's NVIDIA-Nemotron-Nano-v2 template.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import json_calls
from toolrelay.dialects._writing import function, json_line, json_object
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from json_calls(reader, sink)
    yield from reader.closing("</TOOLCALL>")


def render_calls(calls: Sequence[Call]) -> str:
    return f"<TOOLCALL>[{', '.join(json_object(call) for call in calls)}]</TOOLCALL>"


def render_results(outcomes: Sequence[ToolResult]) -> str:
    return f"<TOOL_RESPONSE>[{', '.join(outcome.text for outcome in outcomes)}]</TOOL_RESPONSE>"


def render_tools(tools: Sequence[Tool]) -> str:
    listed = ", ".join(json_line(function(tool)) for tool in tools)
    return f"""You can use the following tools to assist the user if required:
<AVAILABLE_TOOLS>[{listed}]</AVAILABLE_TOOLS>

If you decide to call any tool(s), use the following format:
<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}, {{"name": "tool_name2", "arguments": "tool_args2"}}]</TOOLCALL>

The user will execute tool-calls and return responses from tool(s) in this format:
<TOOL_RESPONSE>[{{"tool_response1"}}, {{"tool_response2"}}]</TOOL_RESPONSE>

Based on the tool responses, you can call additional tools if needed, correct tool calls if any errors are found, or just \
respond to the user."""


DIALECTS = (
    Dialect(
        name="nemotron",
        start_markers=(StartMarker("<TOOLCALL>"),),
        end_markers=("</TOOLCALL>",),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    ),
)
