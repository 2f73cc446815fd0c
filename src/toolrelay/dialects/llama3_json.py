"""Llama 3 and xLAM: JSON objects without marks, or after `<|python_tag|>`.

Llama 3:  {"name": "get_weather", "parameters": {"city": "Paris"}}     several calls are separated by `;`
xLAM:     [{"name": "get_weather", "arguments": {"city": "Paris"}}]

Without the tag, calls count only as the whole answer (parsing.grammar.whole_answer).
Sources: the chat templates of Llama 3.1 and 3.2 (vLLM, llama.cpp), vLLM's llama_tool_parser and tool_chat_template_xlam_llama.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.rendering import json_line, openai_schema, render_json_call, render_json_results
from toolrelay.parsing.grammar import CallSink, StartMarker, whole_answer
from toolrelay.parsing.stream_reader import Parse, Reader

_TAG = "<|python_tag|>"


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker == _TAG:
        yield from _several_calls(reader, sink)
    else:
        reader.unread(marker)
        yield from whole_answer(reader, sink, _several_calls)


def _several_calls(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from json_calls(reader, sink, known_keys=True)
    while (yield from reader.accept_after_blanks(";")):
        yield from json_calls(reader, sink, known_keys=True)
    yield from reader.accept_after_blanks("<|eom_id|>", "<|eot_id|>")


def _llama_calls(calls: Sequence[Call]) -> str:
    return "; ".join(render_json_call(call, "parameters") for call in calls)


def _llama_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(json_line({"output": result.text}) for result in results)


def _llama_tools(tools: Sequence[Tool]) -> str:
    listed = "\n\n".join(json.dumps(openai_schema(tool), indent=4, ensure_ascii=False) for tool in tools)
    return (
        "You have access to the following functions. To call a function, please respond with JSON for a function call. "
        'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
        "Do not use variables.\n\n" + listed
    )


def _xlam_calls(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(render_json_call(call) for call in calls) + "]"


_START_MARKERS = (StartMarker(_TAG), StartMarker("{", "start"), StartMarker("[", "start"))
DIALECTS = (
    Dialect(
        name="llama3_json",
        start_markers=_START_MARKERS,
        grammar=grammar,
        render_calls=_llama_calls,
        render_results=_llama_results,
        render_tools=_llama_tools,
    ),
    Dialect(
        name="xlam",
        start_markers=_START_MARKERS[1:],
        grammar=grammar,
        render_calls=_xlam_calls,
        render_results=render_json_results,
    ),
)
