"""Obsidian Copilot's XML up to version 3.1, and prompts modelled on it.

    <use_tool>
    <name>get_weather</name>
    <city>Paris</city>
    </use_tool>

A value is a JSON array or object, a list of `<item>` tags, nested tags, or a string; the tool's schema decides about numbers and
the like. Entities are not decoded.
Source: the parser of Obsidian Copilot 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.python_calls import python_to_json
from toolrelay.dialects.tagged_parameters import TagForm, render_parameters, tagged_call
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.json import encode_string
from toolrelay.parsing.stream_reader import Parse, Reader

_NESTED = re.compile(r"\s*<([\w\-]+)>(.*?)</\1>", re.DOTALL)


def _parse_nested(text: str) -> str | None:
    """Encode `<item>a</item><item>b</item>` as a list, other tags as an object, with strings as values."""
    found = list(_NESTED.finditer(text))
    if not found or text.strip() != "".join(part.group() for part in found).strip():
        return python_to_json(text)
    if all(part.group(1) == "item" for part in found):
        return "[" + ", ".join(encode_string(part.group(2)) for part in found) + "]"
    return "{" + ", ".join(f"{encode_string(part.group(1))}: {encode_string(part.group(2))}" for part in found) + "}"


FORM = TagForm(
    key_open="<",
    key_close=">",
    value_close="</{key}>",
    frame=CallFrame(call="<use_tool>", name_ends=("</name>",), ends=("</use_tool>",)),
    parse_value=_parse_nested,
)


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.skip_blanks()
    yield from reader.expect("<name>")
    name = yield from reader.read_name("</name>")
    yield from tagged_call(reader, sink, FORM, name)


def render_calls(calls: Sequence[Call]) -> str:
    return "\n".join(f"<use_tool>\n<name>{call.name}</name>\n{render_parameters(call, FORM)}</use_tool>" for call in calls)


def render_results(results: Sequence[ToolResult]) -> str:
    return "\n\n".join(f"Tool '{result.call.name}' result: {result.text}" for result in results)


DIALECTS = (
    Dialect(
        name="use_tool",
        start_markers=(StartMarker("<use_tool>", quotable=True),),
        end_markers=("</use_tool>",),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
    ),
)
