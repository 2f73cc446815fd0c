"""GLM 4.5, 4.6, 4.7 and 5: a pair of tags for each argument. 4.5 and 4.6 put each part on a line of its own, later ones do not.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Sources: llama.cpp's GLM-4.6 template, SGLang's glm47_moe_detector.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.rendering import framed_results, tools_section
from toolrelay.dialects.tagged_parameters import TagForm, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError, TruncatedCallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

FORM = TagForm(
    key_open="<arg_key>",
    key_close="</arg_key>",
    value_open="<arg_value>",
    value_close="</arg_value>",
    frame=CallFrame(call="<tool_call>", name_ends=("<arg_key>", "\n", "</tool_call>"), ends=("</tool_call>",)),
)


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.skip_blanks()
    name = yield from reader.read_match(NAME)
    yield from reader.skip_blanks()
    if not (yield from reader.peek()):
        raise TruncatedCallError
    if not name or not (yield from reader.is_ahead(FORM.key_open, *FORM.frame.ends)):
        raise NotACallError
    yield from tagged_call(reader, sink, FORM, name)


def _render_calls(calls: Sequence[Call], line: str) -> str:
    form = replace(FORM, value_open=f"{line}{FORM.value_open}")
    return line.join(f"<tool_call>{call.name}{line}{render_parameters(call, form, line)}</tool_call>" for call in calls)


def _render_tools(tools: Sequence[Tool], line: str) -> str:
    form = line.join(
        (
            "<tool_call>{function-name}",
            *(f"<arg_key>{{arg-key-{n}}}</arg_key>{line}<arg_value>{{arg-value-{n}}}</arg_value>" for n in (1, 2)),
            "...",
            "</tool_call>",
        )
    )
    return (
        f"{tools_section(tools)}For each function call, output the function name and arguments within the following XML format:\n"
        + form
    )


def _dialect(name: str, line: str) -> Dialect:
    return Dialect(
        name=name,
        start_markers=(StartMarker("<tool_call>"),),
        end_markers=("</tool_call>",),
        grammar=grammar,
        render_calls=lambda calls: _render_calls(calls, line),
        render_results=framed_results(f"<tool_response>{line}", f"{line}</tool_response>", line),
        render_tools=lambda tools: _render_tools(tools, line),
    )


DIALECTS = (_dialect("glm45", "\n"), _dialect("glm47", ""))
