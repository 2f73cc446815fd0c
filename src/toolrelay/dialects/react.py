"""ReAct prompts, as LangChain and Qwen 1 spread them.

    Action: get_weather
    Action Input: {"city": "Paris"}

An action counts only at the start of a line and with the name of an offered tool. Input that is not JSON becomes the only
parameter of a tool that has one.
Sources: LangChain's hwchase17/react prompt and the ReAct prompt of Qwen 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.parameter_types import Parameters
from toolrelay.dialects.rendering import arguments_json, framed_results
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import encode_string, json_arguments
from toolrelay.parsing.stream_reader import Parse, Reader

_ACTION, _INPUT = "Action:", "Action Input:"
_LINE_LIMIT = 4096
_BEFORE = re.compile(r"[ \t]*[`*]*")
_AFTER = re.compile(r"[`*]*\s*")


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.read_match(_BEFORE)
    name = yield from reader.expect_name(sink.tools)
    yield from reader.read_word("\n", of=_AFTER)
    yield from reader.skip_blanks()
    yield from reader.expect(_INPUT)
    yield from reader.skip_blanks()
    fenced = yield from reader.accept("```json", "```")
    yield from reader.skip_blanks()
    if (yield from reader.peek()) == "{":
        sink.start(name)
        yield from json_arguments(reader, sink.arguments)
        if fenced:
            yield from reader.accept_after_blanks("```")
    else:
        yield from _only_parameter(reader, sink, name)
    sink.finish()


def _only_parameter(reader: Reader, sink: CallSink, name: str) -> Parse[None]:
    names = Parameters(sink.tools[name]).names
    if len(names) > 1:
        raise NotACallError
    line: list[str] = []
    yield from reader.read_until("\n", emit=line.append, limit=_LINE_LIMIT)  # without a line break it may be truncated
    reader.unread("\n")
    sink.start(name)
    if names:
        sink.arguments(f"{{{encode_string(names[0])}: {encode_string(''.join(line).strip())}}}")


def render_calls(calls: Sequence[Call]) -> str:
    return "\n".join(f"{_ACTION} {call.name}\n{_INPUT} {arguments_json(call)}" for call in calls)


DIALECTS = (
    Dialect(
        name="react",
        start_markers=(StartMarker(_ACTION, "line"),),
        grammar=grammar,
        render_calls=render_calls,
        render_results=framed_results("Observation: "),
        stops=("\nObservation:",),
    ),
)
