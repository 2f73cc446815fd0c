"""`[TOOL_CALLS]` before a list of JSON objects, or before each `f[CALL_ID]…[ARGS]{…}`, `f[ARGS]{…}`, `f{…}`: Mistral.

Sources: the chat templates of Mistral-Nemo-2407 (the list, with ids of nine characters), Mistral-Small-3.2 (`[CALL_ID]`) and,
for the forms without an id, vLLM's test_mistral_tool_parser. All forms are read by each of the dialects.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.identity import nine
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import json_calls
from toolrelay.dialects._writing import arguments, json_line, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_value
from toolrelay.parsing.stream_reader import Parse, Reader

_NAME = re.compile(r"[\w.\-]*")


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if (yield from reader.ahead("[{", "[ {", "[\n", "{")):
        yield from json_calls(reader, sink)
        return
    while True:
        yield from reader.blanks()
        name = yield from reader.run(_NAME)
        if not name:
            raise NotACallError
        if (yield from reader.option("[CALL_ID]")):
            yield from reader.word("[ARGS]")
        else:
            yield from reader.option("[ARGS]")
        yield from reader.blanks()
        if (yield from reader.peek()) not in ("{", ""):
            raise NotACallError
        yield from _call(reader, sink, name)
        if not (yield from reader.closing(marker)):
            return


def _call(reader: Reader, sink: CallSink, name: str) -> Parse[None]:
    yield from reader.literal("{")
    reader.unread("{")
    sink.start(name)
    yield from json_value(reader, sink.arguments)
    sink.finish()


def _list_calls(calls: Sequence[Call]) -> str:
    listed = ", ".join(
        f'{{"name": {json_line(call.name)}, "arguments": {arguments(call)}, "id": "{nine(call.id)}"}}' for call in calls
    )
    return f"[TOOL_CALLS][{listed}]"


def _list_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "".join(
        f'[TOOL_RESULTS]{{"content": {json_line(outcome.text)}, "call_id": "{nine(outcome.call.id)}"}}[/TOOL_RESULTS]'
        for outcome in outcomes
    )


def _calls_with_id(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[CALL_ID]{nine(call.id)}[ARGS]{arguments(call)}" for call in calls)


def _outcomes_with_id(outcomes: Sequence[ToolResult]) -> str:
    return "".join(f"[TOOL_RESULTS]{nine(outcome.call.id)}[TOOL_CONTENT]{outcome.text}[/TOOL_RESULTS]" for outcome in outcomes)


def _calls_without_id(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[ARGS]{arguments(call)}" for call in calls)


def _outcomes_without_id(outcomes: Sequence[ToolResult]) -> str:
    return "".join(f"[TOOL_RESULTS]{outcome.text}[/TOOL_RESULTS]" for outcome in outcomes)


def _tools(tools: Sequence[Tool]) -> str:
    return "[AVAILABLE_TOOLS]" + json_line([openai_tool(tool) for tool in tools]) + "[/AVAILABLE_TOOLS]"


DIALECTS = tuple(
    Dialect(
        name=name,
        start_markers=(StartMarker("[TOOL_CALLS]"),),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        render_tools=_tools,
    )
    for name, render_calls, render_results in (
        ("mistral", _list_calls, _list_outcomes),
        ("mistral_v11", _calls_with_id, _outcomes_with_id),
        ("mistral_v13", _calls_without_id, _outcomes_without_id),
    )
)
