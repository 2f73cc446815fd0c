"""FunctionGemma `call:f{k:<escape>v<escape>}`, Gemma 4 `call:f{k:<|"|>v<|"|>}`, Gemma 3 Python in a fence of its own.

Sources: Google's page on FunctionGemma's format, llama.cpp's gemma4 template and vLLM's gemma4_tool_parser. Gemma 3 has no form
of its own; a fence `tool_code` that is answered by one named `tool_output` is what Google's examples for it use, and it counts
only with the name of a tool that was offered: the model writes other code there, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call
from toolrelay.core.request import Tool
from toolrelay.dialects._python import python_calls
from toolrelay.dialects._schema import ANY, Parameters, meant
from toolrelay.dialects._writing import JSON_WORDS, arguments, python_call
from toolrelay.dialects.base import Dialect, ToolResult
from toolrelay.parsing.errors import NotACallError
from toolrelay.parsing.grammar import CallSink, StartMarker
from toolrelay.parsing.json import escaping, quoted
from toolrelay.parsing.literals import LiteralSyntax
from toolrelay.parsing.stream_reader import Emit, Parse, Reader

_NAME = re.compile(r"[\w.\-]*")
_BARE = re.compile(r"[^,{}\[\]<]*")
_KEY = re.compile(r"[^:,{}\[\]<]*")


class _Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around strings, and before and after the rest."""

    string: str
    call: tuple[str, str]
    response: tuple[str, str]
    declaration: tuple[str, str]

    # Reading

    def grammar(self, reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
        yield from reader.blanks()
        yield from reader.literal("call:")
        name = yield from reader.run(_NAME)
        if not name:
            raise NotACallError
        yield from reader.literal("{")
        sink.start(name)
        parameters = Parameters(sink.tools.get(name))
        yield from self._members(reader, sink.arguments, parameters)
        yield from reader.closing(self.call[1])
        sink.finish()

    def _members(self, reader: Reader, emit: Emit, parameters: Parameters) -> Parse[None]:
        emit("{")
        first = True
        while True:
            yield from reader.blanks()
            yield from reader.option(",")
            yield from reader.blanks()
            if (yield from reader.option("}")):
                break
            if (yield from reader.option(self.string)):
                key = yield from reader.word(self.string)
                yield from reader.blanks()
                yield from reader.literal(":")
            else:
                key = (yield from reader.word(":")).strip()
            emit(("" if first else ", ") + quoted(key) + ": ")
            first = False
            yield from reader.blanks()
            yield from self._value(reader, emit, parameters.types(key))
        emit("}")

    def _value(self, reader: Reader, emit: Emit, types: frozenset[str]) -> Parse[None]:
        if (yield from reader.option(self.string)):
            yield from self._string(reader, emit, types)
        elif (yield from reader.peek()) in ("{", "["):
            yield from _NESTED[self.string].read(reader, emit)
        else:
            word = (yield from reader.run(_BARE)).strip()
            reader.unread((yield from reader.literal(",", "}", "]")))
            emit(meant(word, types) or quoted(word))

    def _string(self, reader: Reader, emit: Emit, types: frozenset[str]) -> Parse[None]:
        if "string" in types:
            emit('"')
            yield from reader.until(self.string, emit=escaping(emit))
            emit('"')
            return
        pieces: list[str] = []
        yield from reader.until(self.string, emit=pieces.append)
        text = "".join(pieces)
        emit(meant(text, types) or quoted(text))

    # Writing

    def calls(self, calls: Sequence[Call]) -> str:
        return "".join(f"call:{call.name}{self._arguments(call)}".join(self.call) for call in calls)

    def _arguments(self, call: Call) -> str:
        try:
            return self._written(msgspec.json.decode(arguments(call).encode(errors="replace")))
        except (msgspec.MsgspecError, RecursionError):
            return self._written({"arguments": call.arguments})

    def _written(self, value: Json) -> str:
        match value:
            case str():  # the mark that ends strings cannot stand in one
                return self.string + value.replace(self.string, f"{self.string[0]} {self.string[1:]}") + self.string
            case None | bool():
                return JSON_WORDS[value]
            case list():
                return "[" + ",".join(map(self._written, value)) + "]"
            case dict():
                members = sorted(value.items(), key=lambda member: member[0].lower())
                return "{" + ",".join(f"{self._key(key)}:{self._written(item)}" for key, item in members) + "}"
            case _:
                return repr(value)

    def _key(self, key: str) -> str:
        return key if _NAME.fullmatch(key) and key else self._written(key)

    def outcomes(self, outcomes: Sequence[ToolResult]) -> str:
        return "".join(f"response:{one.call.name}{self._written({'value': one.text})}".join(self.response) for one in outcomes)

    def tools(self, tools: Sequence[Tool]) -> str:
        written = (f"declaration:{tool.name}{self._written(_declared(tool))}".replace("\n", " ") for tool in tools)
        return "".join(one.join(self.declaration) for one in written)


def _declared(tool: Tool) -> JsonObject:
    return {"description": tool.description or "", "parameters": _shouted(tool.parameters or {"type": "object"})}


def _shouted(schema: Json) -> Json:
    """A schema with its types in capitals."""
    if isinstance(schema, list):
        return [_shouted(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: item.upper() if key == "type" and isinstance(item, str) else _shouted(item) for key, item in schema.items()}


_FUNCTION_GEMMA = _Marks(
    string="<escape>",
    call=("<start_function_call>", "<end_function_call>"),
    response=("<start_function_response>", "<end_function_response>"),
    declaration=("<start_function_declaration>", "<end_function_declaration>"),
)
_GEMMA_4 = _Marks(
    string='<|"|>',
    call=("<|tool_call>", "<tool_call|>"),
    response=("<|tool_response>", "<tool_response|>"),
    declaration=("<|tool>", "<tool|>"),
)
_NESTED = {
    marks.string: LiteralSyntax(
        quotes=(marks.string,),
        brackets="[{",
        word=_BARE,
        key=_KEY,
        encode_word=lambda word: meant(word.strip(), ANY) or quoted(word.strip()),
    )
    for marks in (_FUNCTION_GEMMA, _GEMMA_4)
}


def _tool_code(reader: Reader, sink: CallSink, _marker: str) -> Parse[None]:
    yield from reader.blanks()
    printed = "print" not in sink.tools and (yield from reader.option("print("))
    yield from python_calls(reader, sink, offered_only=True)
    if printed:
        yield from reader.closing(")")
    yield from reader.closing("```")


def _code_calls(calls: Sequence[Call]) -> str:
    return "```tool_code\n" + "\n".join(python_call(call, '"') for call in calls) + "\n```"


def _code_outcomes(outcomes: Sequence[ToolResult]) -> str:
    return "\n".join(f"```tool_output\n{outcome.text}\n```" for outcome in outcomes)


DIALECTS = (
    *(
        Dialect(
            name=name,
            start_markers=(StartMarker(marks.call[0]),),
            end_markers=(marks.call[1],),
            grammar=marks.grammar,
            render_calls=marks.calls,
            render_results=marks.outcomes,
            render_tools=marks.tools,
            stops=(marks.response[0],),
        )
        for name, marks in (("functiongemma", _FUNCTION_GEMMA), ("gemma4", _GEMMA_4))
    ),
    Dialect(
        name="gemma3",
        start_markers=(StartMarker("```tool_code", "line"),),
        end_markers=("\n```",),
        grammar=_tool_code,
        render_calls=_code_calls,
        render_results=_code_outcomes,
        stops=("```tool_output",),
    ),
)
