"""`Action: f` and `Action Input: {…}` on lines of their own: ReAct prompts, as LangChain and the first Qwen spread them.

Source: LangChain's hwchase17/react prompt and the ReAct prompt of Qwen 1. It counts only at a line's beginning and with the name
of a tool that was offered. Input that is not JSON is the only parameter of a tool that has one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.dialects._schema import Parameters
from toolrelay.dialects._writing import arguments
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_value, quoted
from toolrelay.parsing.stream_reader import Parse, Reader

_ACTION, _INPUT = "Action:", "Action Input:"
_BEFORE = re.compile(r"[ \t]*[`*]*")
_AFTER = re.compile(r"[`*]*\s*")


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.run(_BEFORE)
    name = yield from reader.known(sink.tools)
    yield from reader.word("\n", of=_AFTER)
    yield from reader.blanks()
    yield from reader.literal(_INPUT)
    yield from reader.blanks()
    fenced = yield from reader.option("```json", "```")
    yield from reader.blanks()
    if (yield from reader.peek()) == "{":
        sink.start(name)
        yield from json_value(reader, sink.arguments)
        if fenced:
            yield from reader.closing("```")
    else:
        yield from _only_parameter(reader, sink, name)
    sink.finish()


def _only_parameter(reader: Reader, sink: CallSink, name: str) -> Parse[None]:
    names = Parameters(sink.tools[name]).names
    if len(names) > 1:
        raise NotACallError
    line: list[str] = []
    yield from reader.until("\n", emit=line.append, limit=4096)  # at the stream's end it may have been cut
    reader.unread("\n")
    sink.start(name)
    if names:
        sink.arguments(f"{{{quoted(names[0])}: {quoted(''.join(line).strip())}}}")


def render_calls(calls: Sequence[Call]) -> str:
    return "\n".join(f"{_ACTION} {call.name}\n{_INPUT} {arguments(call)}" for call in calls)


def render_results(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(f"Observation: {outcome.text}" for outcome in outcomes)


DIALECTS = (
    Dialect(
        name="react",
        start_markers=(StartMarker(_ACTION, "line"),),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
        stops=("\nObservation:",),
    ),
)
