"""Tags named after tools, as prompts of the AI SDK's tool-call middleware ask for. The body is tags, YAML or JSON.

    <get_weather>                    <get_weather>
    <city>Paris</city>               city: Paris
    </get_weather>                   </get_weather>

A tag counts only if it names an offered tool and its body begins with a declared parameter.
Source: the npm package @ai-sdk-tool/parser, protocols morph-xml and yaml-xml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.parameter_types import Parameters
from toolrelay.dialects.tagged_parameters import TagForm, render_parameters, tagged_call
from toolrelay.dialects.yaml_body import yaml_to_json
from toolrelay.parsing.call_parser import HELD_LIMIT
from toolrelay.parsing.errors import MalformedCallError, NotACallError, TruncatedCallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

_BLANKS = re.compile(r"[ \t\r\n]*")


def form_of(name: str) -> TagForm:
    """Return the form of the calls of a tool."""
    close = f"</{name}>"
    frame = CallFrame(call=close, name_ends=(">",), ends=(close,))
    return TagForm(key_open="<", key_close=">", value_close="</{key}>", frame=frame, nested="")


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    name = yield from reader.expect_name(sink.tools)
    if (yield from reader.expect(">", "/>", " />")) != ">":
        sink.start(name)
        sink.finish()
        return
    form, names = form_of(name), Parameters(sink.tools[name]).names
    blanks = yield from reader.read_match(_BLANKS)
    match (yield from reader.peek()):
        case "{":
            pass
        case "<":
            key = yield from reader.word_ahead(">", after=1)
            if key is None and reader.closed:
                raise TruncatedCallError
            if key != f"/{name}" and key not in names:
                raise NotACallError
        case "":
            raise TruncatedCallError
        case _:
            yield from _yaml_call(reader, sink, name, blanks)
            return
    yield from tagged_call(reader, sink, form, name)


def _yaml_call(reader: Reader, sink: CallSink, name: str, blanks: str) -> Parse[None]:
    """Parse a body of YAML. `blanks` precede it and show the indentation of its first line."""
    parameters = Parameters(sink.tools[name])
    quote = yield from reader.accept('"', "'")
    key = quote + (yield from reader.expect_name(parameters.names)) + quote
    if quote:
        yield from reader.expect(quote)
    yield from reader.expect(":")
    pieces = [f"{blanks}{key}:"]
    yield from reader.read_until(f"</{name}>", emit=pieces.append, limit=HELD_LIMIT)
    arguments = yaml_to_json("".join(pieces), parameters.root)
    if arguments is None:
        raise MalformedCallError("invalid_yaml")
    sink.start(name)
    sink.arguments(arguments)
    sink.finish()


def render_calls(calls: Sequence[Call]) -> str:
    return "\n".join(f"<{call.name}>\n{render_parameters(call, form_of(call.name))}</{call.name}>" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(
        f"<tool_response>\n  <tool_name>{result.call.name}</tool_name>\n  <result>{result.text}</result>\n</tool_response>"
        for result in results
    )


DIALECTS = (
    Dialect(
        name="tool_tags",
        start_markers=(StartMarker("<"),),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
    ),
)
