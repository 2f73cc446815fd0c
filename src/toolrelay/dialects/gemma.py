"""Gemma: FunctionGemma and Gemma 4 with strings between marks, Gemma 3 with Python in a fence.

FunctionGemma:  <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>
Gemma 4:        <|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>
Gemma 3:        ```tool_code
                get_weather(city="Paris")
                ```

Gemma 3 has no form of its own: this one is from Google's examples, with results in a fence `tool_output`. The model writes other
code there, too, so only calls of offered tools count.
Sources: Google's page on FunctionGemma's format, llama.cpp's gemma4 template and vLLM's gemma4_tool_parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.dialects.parameter_types import ANY, Parameters, coerce
from toolrelay.dialects.python_calls import python_calls
from toolrelay.dialects.rendering import JSON_CONSTANTS, arguments_json, framed_results, render_python_call
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import encode_string, escaping
from toolrelay.parsing.literals import LiteralSyntax
from toolrelay.parsing.stream_reader import NAME, Emit, Parse, Reader

_CHANNEL, _CHANNEL_END, _THOUGHT = "<|channel>", "<channel|>", "thought\n"
_TURN = ("<|turn>", "<turn|>")
_THOUGHT_LIMIT = 16 * 1024  # characters that are held
_WORD = re.compile(r"[^,{}\[\]<]*")
_WORD_IN_PARENTHESES = re.compile(r"[^,{}\[\]<)]*")
_KEY = re.compile(r"[^:,{}\[\]<]*")


class _Markup(msgspec.Struct, frozen=True, kw_only=True):
    """The marks around strings, calls, results and declarations."""

    string: str
    call: tuple[str, str]
    response: tuple[str, str]
    declaration: tuple[str, str]
    thoughts: tuple[StartMarker, ...] = ()
    stray_marks: tuple[str, ...] = ()

    def grammar(self, reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
        if marker in (_CHANNEL, _THOUGHT):
            yield from _thought(reader, sink, marker)
            return
        yield from reader.skip_blanks()
        yield from reader.expect("call:", ":")
        name = yield from reader.read_match(NAME)
        if not name:
            raise NotACallError
        closing = "}" if (yield from reader.expect("{", "(")) == "{" else ")"
        sink.start(name)
        parameters = Parameters(sink.tools.get(name))
        yield from self._members(reader, sink.arguments, parameters, closing)
        yield from reader.accept_after_blanks(self.call[1])
        sink.finish()

    def _members(self, reader: Reader, emit: Emit, parameters: Parameters, closing: str) -> Parse[None]:
        emit("{")
        first = True
        while True:
            yield from reader.skip_blanks()
            yield from reader.accept(",")
            yield from reader.skip_blanks()
            if (yield from reader.accept(closing)):
                break
            if (yield from reader.accept(self.string)):
                key = yield from reader.read_word(self.string)
                yield from reader.skip_blanks()
                yield from reader.expect(":")
            else:
                key = (yield from reader.read_word(":")).strip()
            emit(("" if first else ", ") + encode_string(key) + ": ")
            first = False
            yield from reader.skip_blanks()
            yield from self._value(reader, emit, parameters.types(key), closing)
        emit("}")

    def _value(self, reader: Reader, emit: Emit, types: frozenset[str], closing: str) -> Parse[None]:
        if (yield from reader.accept(self.string)):
            yield from self._string(reader, emit, types)
        elif (yield from reader.peek()) in ("{", "["):
            yield from _NESTED[self.string].read(reader, emit)
        else:
            word = (yield from reader.read_match(_WORD if closing == "}" else _WORD_IN_PARENTHESES)).strip()
            reader.unread((yield from reader.expect(",", closing)))
            emit(coerce(word, types) or encode_string(word))

    def _string(self, reader: Reader, emit: Emit, types: frozenset[str]) -> Parse[None]:
        if "string" in types:
            emit('"')
            yield from reader.read_until(self.string, emit=escaping(emit))
            emit('"')
            return
        pieces: list[str] = []
        yield from reader.read_until(self.string, emit=pieces.append)
        text = "".join(pieces)
        emit(coerce(text, types) or encode_string(text))

    def render_calls(self, calls: Sequence[Call]) -> str:
        return "".join(f"call:{call.name}{self._arguments(call)}".join(self.call) for call in calls)

    def _arguments(self, call: Call) -> str:
        try:
            return self._encode(msgspec.json.decode(arguments_json(call).encode(errors="replace")))
        except (msgspec.MsgspecError, RecursionError):
            return self._encode({"arguments": call.arguments})

    def _encode(self, value: Json) -> str:
        match value:
            case str():  # a string cannot contain the mark that ends it
                return self.string + value.replace(self.string, f"{self.string[0]} {self.string[1:]}") + self.string
            case None | bool():
                return JSON_CONSTANTS[value]
            case list():
                return "[" + ",".join(map(self._encode, value)) + "]"
            case dict():
                members = sorted(value.items(), key=lambda member: member[0].lower())
                return "{" + ",".join(f"{self._key(key)}:{self._encode(item)}" for key, item in members) + "}"
            case _:
                return repr(value)

    def _key(self, key: str) -> str:
        return key if NAME.fullmatch(key) else self._encode(key)

    def render_results(self, results: Sequence[ToolResult]) -> str:
        return "".join(
            f"response:{result.call.name}{self._encode({'value': result.text})}".join(self.response) for result in results
        )

    def render_tools(self, tools: Sequence[Tool]) -> str:
        declarations = (f"declaration:{tool.name}{self._encode(_declaration(tool))}".replace("\n", " ") for tool in tools)
        return "".join(declaration.join(self.declaration) for declaration in declarations)


def _thought(reader: Reader, sink: CallSink, marker: str) -> Parse[None]:
    """Parse reasoning without the beginning that families.py names. It must have an end. Before another mark, none begins."""
    if (yield from reader.is_ahead(*_GEMMA_4.call, *_GEMMA_4.response, *_TURN)):
        return
    if not (yield from reader.may_come(_CHANNEL_END, _THOUGHT_LIMIT)):
        if marker == _CHANNEL and (yield from reader.is_at_end()):
            return
        raise NotACallError
    while (yield from reader.accept_after_blanks(_CHANNEL)):
        pass
    if (yield from reader.is_ahead(*_GEMMA_4.call, *_GEMMA_4.response, *_TURN)):
        return
    if marker == _CHANNEL:
        yield from reader.accept(_THOUGHT)
    yield from reader.skip_blanks()
    yield from reader.read_until(_CHANNEL_END, emit=sink.reasoning, or_end=True)


def _declaration(tool: Tool) -> JsonObject:
    return {"description": tool.description or "", "parameters": _uppercase(tool.parameters or {"type": "object"})}


def _uppercase(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_uppercase(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: item.upper() if key == "type" and isinstance(item, str) else _uppercase(item) for key, item in schema.items()}


_FUNCTION_GEMMA = _Markup(
    string="<escape>",
    call=("<start_function_call>", "<end_function_call>"),
    response=("<start_function_response>", "<end_function_response>"),
    declaration=("<start_function_declaration>", "<end_function_declaration>"),
)
_GEMMA_4 = _Markup(
    string='<|"|>',
    call=("<|tool_call>", "<tool_call|>"),
    response=("<|tool_response>", "<tool_response|>"),
    declaration=("<|tool>", "<tool|>"),
    thoughts=(StartMarker(_CHANNEL), StartMarker(_THOUGHT, "start")),
    stray_marks=(_CHANNEL, _CHANNEL_END, *_TURN, "<|tool_response>", "<tool_response|>"),
)
_NESTED = {
    markup.string: LiteralSyntax(
        quotes=(markup.string,),
        brackets="[{",
        word=_WORD,
        key=_KEY,
        encode_word=lambda word: coerce(word.strip(), ANY) or encode_string(word.strip()),
    )
    for markup in (_FUNCTION_GEMMA, _GEMMA_4)
}


def _tool_code(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.skip_blanks()
    printed = "print" not in sink.tools and (yield from reader.accept("print("))
    yield from python_calls(reader, sink, offered_only=True)
    if printed:
        yield from reader.accept_after_blanks(")")
    yield from reader.accept_after_blanks("```")


def _code_calls(calls: Sequence[Call]) -> str:
    return "```tool_code\n" + "\n".join(render_python_call(call, '"') for call in calls) + "\n```"


DIALECTS = (
    *(
        Dialect(
            name=name,
            start_markers=(StartMarker(markup.call[0]), *markup.thoughts),
            end_markers=(markup.call[1],),
            grammar=markup.grammar,
            render_calls=markup.render_calls,
            render_results=markup.render_results,
            render_tools=markup.render_tools,
            stray_marks=markup.stray_marks,
            stops=(markup.response[0],),
        )
        for name, markup in (("functiongemma", _FUNCTION_GEMMA), ("gemma4", _GEMMA_4))
    ),
    Dialect(
        name="gemma3",
        start_markers=(StartMarker("```tool_code", "line"),),
        end_markers=("\n```",),
        grammar=_tool_code,
        render_calls=_code_calls,
        render_results=framed_results("```tool_output\n", "\n```"),
        stops=("```tool_output",),
    ),
)
