"""Inkling: messages with typed content.

    <|message_model|>get_weather<|content_invoke_tool_json|>{"name":"get_weather","args":{"city":"Paris"}}<|end_message|>

The template ends with `<|message_model|>`, so that the answer may begin with the name. Marks around text are removed.
Sources: vLLM's parser inkling and the fixtures of its renderer, SGLang's inkling_detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.rendering import arguments_json, function_schema, json_line
from toolrelay.parsing.grammar import NAME_AT_START, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_MESSAGE, _TEXT, _CALL, _END = "<|message_model|>", "<|content_text|>", "<|content_invoke_tool_json|>", "<|end_message|>"
_STRIPPED = (_TEXT, _END, "<|content_model_end_sampling|>", "<|content_invoke_tool_text|>", "<|content_tool_error|>")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker in _STRIPPED:
        return
    if marker == _MESSAGE:
        name = yield from reader.read_match(NAME)
        mark = yield from reader.accept(_TEXT, _CALL)
        if not mark:
            reader.unread(name)
        if mark != _CALL:
            return
    elif marker != _CALL:
        reader.unread(marker)
        yield from reader.expect_name(sink.tools)
        yield from reader.expect(_CALL)
    yield from json_calls(reader, sink, closed=True)
    yield from reader.accept_after_blanks(_END)


def render_calls(calls: Sequence[Call]) -> str:
    return "".join(
        f'{_MESSAGE}{call.name}{_CALL}{{"name":{json_line(call.name)},"args":{arguments_json(call)}}}{_END}' for call in calls
    )


def render_results(results: Sequence[ToolResult]) -> str:
    return "".join(f"<|message_tool|>{result.call.name}{_TEXT}{result.text}{_END}" for result in results)


def render_tools(tools: Sequence[Tool]) -> str:
    listed = json_line([function_schema(tool) | {"type": "function"} for tool in tools])
    return f"<|message_system|>tool_declare<|content_xml|>{listed}{_END}"


DIALECTS = (
    Dialect(
        name="inkling",
        start_markers=(*map(StartMarker, (_MESSAGE, _CALL, *_STRIPPED)), *NAME_AT_START),
        end_markers=(_END,),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=render_tools,
    ),
)
