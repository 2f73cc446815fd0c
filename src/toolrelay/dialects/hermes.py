"""Hermes: a JSON object in tags. Also Qwen 2.5 and 3, Granite 4, Ernie 4.5 and many more; LongCat with a tag of its own.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Calls as in Qwen3-Coder are read, too, because models of one name print either.
Sources: the chat templates of Qwen3 and Hermes-2-Pro; for LongCat vLLM's test_longcat_tool_parser.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects import qwen3_coder
from toolrelay.dialects.base import Dialect
from toolrelay.dialects.json_calls import json_calls
from toolrelay.dialects.rendering import framed_results, render_json_call, tools_section
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.stream_reader import Parse, Reader


def grammar(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    marker = marker.replace(" ", "")  # some models write a blank into the tag
    close = f"</{marker[1:]}"
    yield from reader.skip_blanks()
    if (yield from reader.peek()) not in ("{", "[", "<", "`", ""):
        raise NotACallError
    if (yield from reader.accept(marker)):  # some models repeat it
        yield from reader.skip_blanks()
    if (yield from reader.is_ahead(qwen3_coder.FUNCTION)):
        yield from qwen3_coder.grammar(reader, sink, marker, qwen3_coder.form_in(marker[1:-1]))
        return
    fenced = yield from reader.accept("```json", "```")
    yield from json_calls(reader, sink, closed=True)
    if fenced:
        yield from reader.accept_after_blanks("```")
    yield from reader.accept_after_blanks(close, "}" + close, "}\n" + close)
    yield from reader.accept_after_blanks(close)


def render_calls(calls: Sequence[Call], tag: str = "tool_call") -> str:
    return "\n".join(f"<{tag}>\n{render_json_call(call)}\n</{tag}>" for call in calls)


render_results = framed_results("<tool_response>\n", "\n</tool_response>")


def render_tools(tools: Sequence[Tool], tag: str = "tool_call") -> str:
    return f"""{tools_section(tools)}\
For each function call, return a json object with function name and arguments within <{tag}></{tag}> XML tags:
<{tag}>
{{"name": <function-name>, "arguments": <args-json-object>}}
</{tag}>"""


def dialect(name: str, tag: str) -> Dialect:
    """Return the same form with another tag."""
    return Dialect(
        name=name,
        start_markers=(StartMarker(f"<{tag}>"), StartMarker(f"<{tag} >")),
        end_markers=(f"</{tag}>",),
        stray_marks=("<|im_end|>",),
        grammar=grammar,
        render_calls=lambda calls: render_calls(calls, tag),
        render_results=render_results,
        render_tools=lambda tools: render_tools(tools, tag),
    )


DIALECTS = (dialect("hermes", "tool_call"), dialect("longcat", "longcat_tool_call"))
