"""`<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`: GLM 4.5 to 4.7 and 5.

Sources: llama.cpp's GLM-4.6 template (4.5 and 4.6 put each part on a line of its own), SGLang's glm47_moe_detector (4.7 does
not).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._tags import TagForm, tagged_call
from toolrelay.dialects._writing import json_line, listed, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError, TruncatedCallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader

_NAME = re.compile(r"[\w.\-]*")
FORM = TagForm(
    key_open="<arg_key>",
    key_close="</arg_key>",
    value_open="<arg_value>",
    value_close="</arg_value>",
    ends=("</tool_call>",),
)


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.blanks()
    name = yield from reader.run(_NAME)
    yield from reader.blanks()
    if not (yield from reader.peek()):
        raise TruncatedCallError
    if not name or not (yield from reader.ahead(FORM.key_open, *FORM.ends)):
        raise NotACallError
    yield from tagged_call(reader, sink, FORM, name)


def _calls(calls: Sequence[Call], line: str) -> str:
    return line.join(
        f"<tool_call>{call.name}{line}"
        + "".join(
            f"<arg_key>{argument.name}</arg_key>{line}<arg_value>{argument.plain}</arg_value>{line}" for argument in listed(call)
        )
        + "</tool_call>"
        for call in calls
    )


def _outcomes(outcomes: Sequence[ToolResult], line: str) -> str:
    return line.join(f"<tool_response>{line}{outcome.text}{line}</tool_response>" for outcome in outcomes)


def _tools(tools: Sequence[Tool], line: str) -> str:
    declared = "\n".join(json_line(openai_tool(tool)) for tool in tools)
    form = line.join(
        (
            "<tool_call>{function-name}",
            *(f"<arg_key>{{arg-key-{n}}}</arg_key>{line}<arg_value>{{arg-value-{n}}}</arg_value>" for n in (1, 2)),
            "...",
            "</tool_call>",
        )
    )
    return f"""# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{declared}
</tools>

For each function call, output the function name and arguments within the following XML format:
{form}"""


def _dialect(name: str, line: str) -> Dialect:
    return Dialect(
        name=name,
        start_markers=(StartMarker("<tool_call>"),),
        end_markers=("</tool_call>",),
        grammar=grammar,
        render_calls=lambda calls: _calls(calls, line),
        render_results=lambda outcomes: _outcomes(outcomes, line),
        render_tools=lambda tools: _tools(tools, line),
    )


DIALECTS = (_dialect("glm45", "\n"), _dialect("glm47", ""))
