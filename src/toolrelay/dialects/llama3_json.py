"""`{"name": "f", "parameters": {…}}` with or without `<|python_tag|>` before it: Llama 3; a list of such objects: xLAM.

Sources: the chat templates of Llama 3.1 and 3.2 (vLLM, llama.cpp), vLLM's llama_tool_parser (several calls stand side by side
with `;`); for xLAM vLLM's tool_chat_template_xlam_llama. Without the tag a call counts only as the whole answer (see _bare).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._bare import whole_answer
from toolrelay.dialects._json_calls import json_calls
from toolrelay.dialects._writing import as_json_lines, json_line, json_object, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

_TAG = "<|python_tag|>"


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker == _TAG:
        yield from _side_by_side(reader, sink)
        yield from reader.closing("<|eom_id|>", "<|eot_id|>")
    else:
        reader.unread(marker)
        yield from whole_answer(reader, sink, _side_by_side)


def _side_by_side(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from json_calls(reader, sink, known_keys=True)
    while (yield from reader.closing(";")):
        yield from json_calls(reader, sink, known_keys=True)


def _llama_calls(calls: Sequence[Call]) -> str:
    return "; ".join(json_object(call, "parameters") for call in calls)


def _llama_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(json_line({"output": outcome.text}) for outcome in outcomes)


def _llama_tools(tools: Sequence[Tool]) -> str:
    listed = "".join(json.dumps(openai_tool(tool), indent=4, ensure_ascii=False) + "\n\n" for tool in tools)
    return (
        "You have access to the following functions. To call a function, please respond with JSON for a function call. "
        'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
        "Do not use variables.\n\n" + listed.rstrip()
    )


def _xlam_calls(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(json_object(call) for call in calls) + "]"


_BARE = (StartMarker(_TAG), StartMarker("{", "start"), StartMarker("[", "start"))
DIALECTS = (
    Dialect(
        name="llama3_json",
        start_markers=_BARE,
        grammar=grammar,
        render_calls=_llama_calls,
        render_results=_llama_outcomes,
        render_tools=_llama_tools,
    ),
    Dialect(
        name="xlam",
        start_markers=_BARE[1:],
        grammar=grammar,
        render_calls=_xlam_calls,
        render_results=as_json_lines,
    ),
)
