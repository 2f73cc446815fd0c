"""`<use_tool><name>f</name><query>…</query></use_tool>`: the XML of Obsidian Copilot up to 3.1, and of prompts modelled on it.

Source: Obsidian Copilot 3.1's own parser: a value is a JSON array or object, a list of `<item>`s, nested tags, or else a string;
entities are not decoded. Numbers and the like are typed by the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.dialects._json_calls import NAME
from toolrelay.dialects._python_value import python_json
from toolrelay.dialects._tags import TagForm, render_parameters, tagged_call
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import quoted
from toolrelay.parsing.stream_reader import NAME_ALONE, Parse, Reader

_NESTED = re.compile(r"\s*<([\w\-]+)>(.*?)</\1>", re.DOTALL)


def _nested(text: str) -> str | None:
    """`<item>a</item><item>b</item>` is a list, other tags are members of an object; their values are strings."""
    found = list(_NESTED.finditer(text))
    if not found or text.strip() != "".join(part.group() for part in found).strip():
        return python_json(text)
    if all(part.group(1) == "item" for part in found):
        return "[" + ", ".join(quoted(part.group(2)) for part in found) + "]"
    return "{" + ", ".join(f"{quoted(part.group(1))}: {quoted(part.group(2))}" for part in found) + "}"


FORM = TagForm(key_open="<", key_close=">", value_close="</{key}>", ends=("</use_tool>",), further=_nested)


def grammar(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.blanks()
    yield from reader.literal("<name>")
    name = (yield from reader.word("</name>", of=NAME_ALONE)).strip()
    if NAME.fullmatch(name) is None:
        raise NotACallError
    yield from tagged_call(reader, sink, FORM, name)


def render_calls(calls: Sequence[Call]) -> str:
    return "\n".join(f"<use_tool>\n<name>{call.name}</name>\n{render_parameters(call, FORM)}</use_tool>" for call in calls)


def render_results(outcomes: Sequence[ToolResult]) -> str:
    return "\n\n".join(f"Tool '{outcome.call.name}' result: {outcome.text}" for outcome in outcomes)


DIALECTS = (
    Dialect(
        name="use_tool",
        start_markers=(StartMarker("<use_tool>"),),
        end_markers=("</use_tool>",),
        grammar=grammar,
        render_calls=render_calls,
        render_results=render_results,
    ),
)
