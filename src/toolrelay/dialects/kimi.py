"""Kimi K2, with JSON arguments, and Kimi K3, with a tag for each argument.

K2:  <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
     <|tool_call_end|><|tool_calls_section_end|>
K3:  <|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>
     <|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>

(Line breaks added.) K3 puts its text into a section `response`; its reasoning tags are in families.py.
Sources: llama.cpp's moonshotai-Kimi-K2-Thinking and Kimi-K3 templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.parameter_types import ANY
from toolrelay.dialects.rendering import Argument, arguments_json, json_list
from toolrelay.dialects.tagged_parameters import Header, TagForm, attribute, render_parameters, tagged_call
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallFrame, CallSink, StartMarker
from toolrelay.parsing.json import json_arguments
from toolrelay.parsing.stream_reader import NAME, Parse, Reader

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_SECTION_ENDS = (_SECTION_END, "<|tool_call_section_end|>")
_K2 = CallFrame(call=_CALL, name_ends=(_ARGUMENTS,), ends=(_CALL_END,), opens=(_SECTION,), closes=_SECTION_ENDS)
_IDENTIFIER_PART = re.compile(r"\s*[\w.\-:]*\s*")
_IDENTIFIER = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?", re.DOTALL)


def _k2(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker != _CALL:
        yield from reader.skip_blanks()
        if (yield from reader.word_ahead(_CALL)):  # a few words before the call
            yield from reader.read_word(before=(_CALL,))
        yield from reader.expect(_CALL)
    while True:
        found = _IDENTIFIER.fullmatch((yield from reader.read_word(_ARGUMENTS, of=_IDENTIFIER_PART)).strip())
        if found is None or NAME.fullmatch(found.group(1)) is None:
            raise NotACallError
        sink.start(found.group(1))
        yield from reader.skip_blanks()
        if (yield from reader.peek()) != "<":
            yield from json_arguments(reader, sink.arguments)
        yield from _K2.end_call(reader)
        sink.finish()
        if not (yield from reader.accept_after_blanks(_CALL)):
            break
    yield from reader.accept_after_blanks(*_K2.closes)


def _k2_calls(calls: Sequence[Call]) -> str:
    written = (f"{_CALL}functions.{call.name}:{n}{_ARGUMENTS}{arguments_json(call)}{_CALL_END}" for n, call in enumerate(calls))
    return _SECTION + "".join(written) + _SECTION_END


def _k2_results(results: Sequence[ToolResult]) -> str:
    return "\n".join(f"## Return of functions.{result.call.name}:{result.place}\n{result.text}" for result in results)


_END = "<|end_of_msg|>"


def _parse_header(text: str) -> Header:
    kind = attribute(text, "type") or "string"
    types = frozenset({"number", "integer"} if kind == "number" else {kind})
    return _unescape(attribute(text, "key") or ""), types if types <= ANY else None


def _render_header(argument: Argument) -> str:
    kinds = {"{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null", '"': "string"}
    return f'key="{_escape(argument.name)}" type="{kinds.get(argument.json[0], "number")}"'


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unescape(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


class K3Form(Struct, frozen=True, kw_only=True):
    """The marks of Kimi K3. `blank`: stands around the name of each mark, after a server has detokenized them so."""

    blank: str = ""

    def opening(self, name: str) -> str:
        return f"<|open|>{self.blank}{name}{self.blank}<|sep|>"

    def closing(self, name: str) -> str:
        return f"<|close|>{self.blank}{name}{self.blank}<|sep|>"

    @property
    def call(self) -> str:
        return f"<|open|>{self.blank}call "

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks around sections: of calls, of text, and of the message."""
        return (self.opening("tools"), self.opening("response"), self.closing("response"), self.closing("message"))

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.closing("tools"), self.closing("call"))

    @property
    def form(self) -> TagForm:
        return TagForm(
            key_open=f"<|open|>{self.blank}argument ",
            key_close="<|sep|>",
            value_close=self.closing("argument"),
            frame=CallFrame(
                call=f'{self.call}tool="',
                name_ends=('"',),
                ends=(self.closing("call"),),
                opens=(self.opening("tools"),),
                closes=(self.closing("tools"), self.closing("message")),
            ),
            parse_header=_parse_header,
            render_header=_render_header,
        )

    def calls(self, reader: Reader, sink: CallSink) -> Parse[None]:
        yield from reader.skip_blanks()
        yield from reader.expect(self.call)
        form = self.form
        while True:
            name = _unescape(attribute((yield from reader.read_word("<|sep|>")), "tool") or "")
            if NAME.fullmatch(name) is None:
                raise NotACallError
            if (yield from reader.accept_after_blanks(self.opening('json type="object"'))):
                sink.start(name)
                yield from json_arguments(reader, sink.arguments)
                yield from reader.accept_after_blanks(self.closing("json"))
                yield from form.frame.end_call(reader)
                sink.finish()
            else:
                yield from tagged_call(reader, sink, form, name)
            if not (yield from reader.accept_after_blanks(self.call)):
                break
        yield from reader.accept_after_blanks(self.closing("tools"))


_K3 = K3Form()
_K3_VARIANTS = (_K3, K3Form(blank=" "))
_K3_TOOLS = {form.opening("tools"): form for form in _K3_VARIANTS}
_K3_CALLS = {form.form.frame.call: form for form in _K3_VARIANTS}
_K3_RESPONSES = tuple(form.opening("response") for form in _K3_VARIANTS)
_K3_RESPONSE_ENDS = (*(mark for form in _K3_VARIANTS for mark in (form.closing("response"), form.closing("message"))), _END)
_K3_ENDS = tuple(mark for form in _K3_VARIANTS for mark in form.ends)
K3 = _K3.form


def _k3(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    if marker in _K3_TOOLS:
        yield from _K3_TOOLS[marker].calls(reader, sink)
    elif marker in _K3_CALLS:  # outside of its section
        if (yield from reader.word_ahead('"')) not in sink.tools:
            raise NotACallError
        reader.unread(marker)
        yield from _K3_CALLS[marker].calls(reader, sink)
    elif marker in _K3_RESPONSES:
        ends = (*_K3_RESPONSE_ENDS, *_K3_TOOLS)
        mark = marker
        while mark and mark not in ends:
            mark = yield from reader.read_until(*ends, *_K3_RESPONSES, *_K3_ENDS, emit=sink.text, or_end=True)
        if mark in _K3_TOOLS:  # the section was left open
            reader.unread(mark)


def _k3_calls(calls: Sequence[Call]) -> str:
    written = (
        f'{_K3.call}tool="{_escape(call.name)}" index="{n}"<|sep|>{render_parameters(call, K3, "")}{_K3.closing("call")}'
        for n, call in enumerate(calls, 1)
    )
    return _K3.opening("tools") + "".join(written) + _K3.closing("tools")


def _k3_results(results: Sequence[ToolResult]) -> str:
    return "".join(
        f'<|open|>message role="tool" tool="{_escape(result.call.name)}" index="{result.place + 1}"<|sep|>'
        f"{result.text}{_K3.closing('message')}"
        for result in results
    )


def _k3_tools(tools: Sequence[Tool]) -> str:
    return f"# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{json_list(tools)}\n```"


DIALECTS = (
    Dialect(
        name="kimi_k2",
        start_markers=(StartMarker(_SECTION), StartMarker("<|tool_call_section_begin|>"), StartMarker(_CALL)),
        end_markers=(_CALL_END, *_SECTION_ENDS),
        grammar=_k2,
        render_calls=_k2_calls,
        render_results=_k2_results,
        render_tools=json_list,
    ),
    Dialect(
        name="kimi_k3",
        start_markers=(
            *(StartMarker(mark) for form in _K3_VARIANTS for mark in form.marks),
            *(StartMarker(mark, "line") for mark in _K3_CALLS),
            StartMarker(_END),
        ),
        end_markers=_K3_ENDS,
        grammar=_k3,
        render_calls=_k3_calls,
        render_results=_k3_results,
        render_tools=_k3_tools,
    ),
)
