"""Kimi K2: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`; K3: a tag for each argument.

Sources: llama.cpp's moonshotai-Kimi-K2-Thinking and Kimi-K3 templates. K3 puts its text into a section of its own; its thoughts
are marked `<|open|>think<|sep|>…<|close|>think<|sep|>`, which is for the model's profile to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._json_calls import NAME
from toolrelay.dialects._schema import ANY
from toolrelay.dialects._tags import TagForm, attribute, render_parameters, tagged_call
from toolrelay.dialects._writing import Argument, arguments, json_line, openai_tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import json_value
from toolrelay.parsing.stream_reader import Parse, Reader

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_IDENTIFIER_PART = re.compile(r"\s*[\w.\-:]*\s*")
_IDENTIFIER = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?", re.DOTALL)


def _k2(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker != _CALL:
        yield from reader.blanks()
        yield from reader.literal(_CALL)
    while True:
        found = _IDENTIFIER.fullmatch((yield from reader.word(_ARGUMENTS, of=_IDENTIFIER_PART)).strip())
        if found is None or NAME.fullmatch(found.group(1)) is None:
            raise NotACallError
        sink.start(found.group(1))
        yield from reader.blanks()
        if (yield from reader.peek()) != "<":
            yield from json_value(reader, sink.arguments)
        yield from reader.blanks()
        yield from reader.literal(_CALL_END)
        sink.finish()
        if not (yield from reader.closing(_CALL)):
            break
    yield from reader.closing(_SECTION_END)


def _k2_calls(calls: Sequence[Call]) -> str:
    written = (f"{_CALL}functions.{call.name}:{n}{_ARGUMENTS}{arguments(call)}{_CALL_END}" for n, call in enumerate(calls))
    return _SECTION + "".join(written) + _SECTION_END


def _k2_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(f"## Return of functions.{outcome.call.name}:{outcome.place}\n{outcome.text}" for outcome in outcomes)


def _k2_tools(tools: Sequence[Tool]) -> str:
    return json_line([openai_tool(tool) for tool in tools])


_TOOLS, _TOOLS_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
_RESPONSE, _RESPONSE_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
_MESSAGE_END = "<|close|>message<|sep|>"
_TOOL, _TOOL_END = "<|open|>call ", "<|close|>call<|sep|>"


def _k3_header(text: str) -> tuple[str, frozenset[str] | None]:
    kind = attribute(text, "type") or "string"
    types = frozenset({"number", "integer"} if kind == "number" else {kind})
    return _unescaped(attribute(text, "key") or ""), types if types <= ANY else None


def _k3_written(argument: Argument) -> str:
    kinds = {"{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null", '"': "string"}
    return f'key="{_escaped(argument.name)}" type="{kinds.get(argument.json[0], "number")}"'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unescaped(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


K3 = TagForm(
    key_open="<|open|>argument ",
    key_close="<|sep|>",
    value_close="<|close|>argument<|sep|>",
    ends=(_TOOL_END,),
    header=_k3_header,
    write_header=_k3_written,
)


def _k3(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker == _RESPONSE:
        yield from reader.until(_RESPONSE_END, emit=sink.text, or_end=True)
    if marker != _TOOLS:
        return
    yield from reader.blanks()
    yield from reader.literal(_TOOL)
    while True:
        name = _unescaped(attribute((yield from reader.word("<|sep|>")), "tool") or "")
        if NAME.fullmatch(name) is None:
            raise NotACallError
        if (yield from reader.closing('<|open|>json type="object"<|sep|>')):
            sink.start(name)
            yield from json_value(reader, sink.arguments)
            yield from reader.closing("<|close|>json<|sep|>")
            yield from reader.literal(_TOOL_END)
            sink.finish()
        else:
            yield from tagged_call(reader, sink, K3, name)
        if not (yield from reader.closing(_TOOL)):
            break
    yield from reader.closing(_TOOLS_END)


def _k3_calls(calls: Sequence[Call]) -> str:
    written = (
        f'{_TOOL}tool="{_escaped(call.name)}" index="{n}"<|sep|>{render_parameters(call, K3, "")}{_TOOL_END}'
        for n, call in enumerate(calls, 1)
    )
    return _TOOLS + "".join(written) + _TOOLS_END


def _k3_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "".join(
        f'<|open|>message role="tool" tool="{_escaped(outcome.call.name)}" index="{outcome.place + 1}"<|sep|>'
        f"{outcome.text}{_MESSAGE_END}"
        for outcome in outcomes
    )


def _k3_tools(tools: Sequence[Tool]) -> str:
    listed = json_line([openai_tool(tool) for tool in tools])
    return f"# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{listed}\n```"


DIALECTS = (
    Dialect(
        name="kimi_k2",
        start_markers=(StartMarker(_SECTION), StartMarker("<|tool_call_section_begin|>"), StartMarker(_CALL)),
        end_markers=(_CALL_END, _SECTION_END),
        grammar=_k2,
        render_calls=_k2_calls,
        render_results=_k2_outcomes,
        render_tools=_k2_tools,
    ),
    Dialect(
        name="kimi_k3",
        start_markers=(
            StartMarker(_TOOLS),
            StartMarker(_RESPONSE),
            StartMarker(_RESPONSE_END),
            StartMarker(_MESSAGE_END),
            StartMarker("<|end_of_msg|>"),
        ),
        end_markers=(_TOOLS_END, _TOOL_END),
        grammar=_k3,
        render_calls=_k3_calls,
        render_results=_k3_outcomes,
        render_tools=_k3_tools,
    ),
)
