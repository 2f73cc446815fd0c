"""Llama 3 and xLAM: JSON objects without marks, or after `<|python_tag|>`.

Llama 3:  {"name": "get_weather", "parameters": {"city": "Paris"}}     several calls are separated by `;`
xLAM:     [{"name": "get_weather", "arguments": {"city": "Paris"}}]      also after `[TOOL_CALLS]`, or in `<tool_call>` anywhere

Without the tag, calls count only as the whole answer (parsing.grammar.whole_answer), which may be in a Markdown fence.
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

_TAG, _FENCE = "<|python_tag|>", "```json\n"
_XLAM, _XLAM_END, _LIST = "<tool_call>", "</tool_call>", "[TOOL_CALLS]"
_ENDS = ("<|eom_id|>", "<|eot_id|>")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker == _TAG:
        yield from _several_calls(reader, sink)
    elif marker == _XLAM:
        yield from json_calls(reader, sink, closed=True)
        yield from reader.accept_after_blanks(_XLAM_END)
    elif marker == _FENCE:
        yield from whole_answer(reader, sink, _fenced_calls)
    else:
        reader.unread(marker)
        yield from whole_answer(reader, sink, _several_calls)


def _several_calls(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from reader.accept(_LIST)
    yield from json_calls(reader, sink, known_keys=True)
    while (yield from reader.accept_after_blanks(";")):
        yield from json_calls(reader, sink, known_keys=True)
    yield from reader.accept_after_blanks(*_ENDS)


def _fenced_calls(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from _several_calls(reader, sink)
    yield from reader.skip_blanks()
    yield from reader.expect("```")
    yield from reader.accept_after_blanks(*_ENDS)


def _llama_calls(calls: Sequence[Call]) -> str:
    return "; ".join(render_json_call(call, "parameters") for call in calls)


def _llama_results(results: Sequence[ToolResult]) -> str:
    return "<|eot_id|>".join(f"<|start_header_id|>ipython<|end_header_id|>\n\n{json_line(result.text)}" for result in results)


def _llama_tools(tools: Sequence[Tool]) -> str:
    listed = "\n\n".join(json.dumps(openai_schema(tool), indent=4, ensure_ascii=False) for tool in tools)
    return (
        "You have access to the following functions. To call a function, please respond with JSON for a function call. "
        'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
        "Do not use variables.\n\n" + listed
    )


def _xlam_calls(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(render_json_call(call) for call in calls) + "]"


_START_MARKERS = (StartMarker(_TAG), *(StartMarker(mark, "start") for mark in ("{", "[", _FENCE)))
DIALECTS = (
    Dialect(
        name="llama3_json",
        start_markers=_START_MARKERS,
        stray_marks=_ENDS,
        grammar=grammar,
        render_calls=_llama_calls,
        render_results=_llama_results,
        render_tools=_llama_tools,
    ),
    Dialect(
        name="xlam",
        start_markers=(StartMarker(_XLAM), *_START_MARKERS[1:]),
        end_markers=(_XLAM_END,),
        grammar=grammar,
        render_calls=_xlam_calls,
        render_results=render_json_results,
    ),
)
