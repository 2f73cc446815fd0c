"""Mistral: a JSON list, or a name and JSON arguments for each call. Each of the three dialects parses all forms.

mistral:      [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abc123XYZ"}]
mistral_v11:  [TOOL_CALLS]get_weather[CALL_ID]abc123XYZ[ARGS]{"city": "Paris"}
mistral_v13:  [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}      `[ARGS]` may be missing, and so may `{}`

A server that removes special tokens leaves the list alone. It counts only as the whole answer (parsing.grammar.whole_answer).

Sources: the chat templates of Mistral-Nemo-2407 and Mistral-Small-3.2; for the forms without an id vLLM's
test_mistral_tool_parser.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.identity import shorten_id
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.parameter_types import Parameters
from toolrelay.dialects.rendering import arguments_json, framed_results, json_line, json_list
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker, whole_answer
from toolrelay.parsing.json import json_arguments
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_LISTS = ("[{", "[ {", "[\n")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker in _LISTS:
        reader.unread(marker)
        yield from whole_answer(reader, sink, _bare_list)
        return
    if (yield from reader.is_ahead(*_LISTS, "{")):
        yield from json_calls(reader, sink)
        return
    while True:
        yield from reader.skip_blanks()
        name = yield from reader.read_match(NAME)
        if not name:
            raise NotACallError
        if (yield from reader.accept("[CALL_ID]")):
            yield from reader.read_word("[ARGS]")
        else:
            yield from reader.accept("[ARGS]")
        yield from reader.skip_blanks()
        if not (yield from reader.peek()) and name in sink.tools and not Parameters(sink.tools[name]).names:
            sink.start(name)
            sink.finish()
            return
        reader.unread((yield from reader.expect("{", '"{')))
        sink.start(name)
        yield from json_arguments(reader, sink.arguments)
        sink.finish()
        if not (yield from reader.accept_after_blanks(marker)):
            return


def _bare_list(reader: Reader, sink: CallSink) -> Parse[None]:
    yield from json_calls(reader, sink, known_keys=True)


def _list_calls(calls: Sequence[Call]) -> str:
    listed = ", ".join(
        f'{{"name": {json_line(call.name)}, "arguments": {arguments_json(call)}, "id": "{shorten_id(call.id)}"}}'
        for call in calls
    )
    return f"[TOOL_CALLS][{listed}]"


def _list_results(results: Sequence[ToolResult]) -> str:
    return "".join(
        f'[TOOL_RESULTS]{{"content": {json_line(result.text)}, "call_id": "{shorten_id(result.call.id)}"}}[/TOOL_RESULTS]'
        for result in results
    )


def _calls_with_id(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[CALL_ID]{shorten_id(call.id)}[ARGS]{arguments_json(call)}" for call in calls)


def _results_with_id(results: Sequence[ToolResult]) -> str:
    return "".join(f"[TOOL_RESULTS]{shorten_id(result.call.id)}[TOOL_CONTENT]{result.text}[/TOOL_RESULTS]" for result in results)


def _calls_without_id(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[ARGS]{arguments_json(call)}" for call in calls)


def _render_tools(tools: Sequence[Tool]) -> str:
    return f"[AVAILABLE_TOOLS]{json_list(tools)}[/AVAILABLE_TOOLS]"


DIALECTS = tuple(
    Dialect(
        name=name,
        start_markers=(StartMarker("[TOOL_CALLS]"), *(StartMarker(mark, "start") for mark in _LISTS)),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=_render_tools,
    )
    for name, render_calls, render_results in (
        ("mistral", _list_calls, _list_results),
        ("mistral_v11", _calls_with_id, _results_with_id),
        ("mistral_v13", _calls_without_id, framed_results("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "")),
    )
)
