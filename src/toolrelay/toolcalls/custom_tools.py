"""Custom tools, which take free text, as functions with that text as their one argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from toolrelay.core.events import AnswerFailed, ArgumentsDelta, CallFinished, CallStarted, StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Result
from toolrelay.core.request import Tool
from toolrelay.errors import ModelError

MAX_HELD = 1024 * 1024  # characters of one call
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class _Arguments(msgspec.Struct):
    input: str


_decode = msgspec.json.Decoder(_Arguments).decode
_encode = msgspec.json.Encoder().encode


def as_function(tool: Tool) -> Tool:
    if tool.kind != "custom":
        return tool
    grammar = tool.format.get("definition") if tool.format is not None else None
    lines = [tool.description or ""]
    if tool.format is not None and isinstance(grammar, str):
        lines.append(f"Its input has to match this grammar ({tool.format.get('syntax', 'lark')}): {grammar}")
    return replace(tool, kind="function", format=None, parameters=_PARAMETERS, description="\n".join(filter(None, lines)) or None)


def as_function_call(call: Call) -> Call:
    if call.kind != "custom":
        return call
    return replace(call, kind="function", arguments=_encode(_Arguments(call.arguments)).decode())


def decode_input(arguments: str) -> str:
    """Return the custom tool's input from the arguments of the function call; invalid arguments are returned as they are."""
    try:
        return _decode(arguments).input
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments


def is_custom(item: Item) -> bool:
    return isinstance(item, Call | Result) and item.kind == "custom"


class CustomCalls:
    """Function calls of custom tools, made custom calls again. Their input is emitted as a whole, when it is complete."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._open: dict[tuple[int, int], list[str]] = {}  # the arguments so far, by choice and index
        self._size = 0  # of all of them

    def restore(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        """Return the events of the client, or the error that ends the answer."""
        out: list[StreamEvent] = []
        for event in events:
            out += self._restore(event)
            if self._size > MAX_HELD:
                return [*out, AnswerFailed(ModelError("The model's input of a custom tool is too long.", code="bad_call"))]
        return out

    def _restore(self, event: StreamEvent) -> Iterator[StreamEvent]:
        if type(event) is CallStarted and event.name in self._names:
            self._open[event.choice, event.index] = []
            yield replace(event, kind="custom")
        elif type(event) is ArgumentsDelta and (event.choice, event.index) in self._open:
            self._open[event.choice, event.index].append(event.text)
            self._size += len(event.text)
        elif type(event) is CallFinished and (pieces := self._open.pop((event.choice, event.index), None)) is not None:
            self._size -= sum(map(len, pieces))
            yield ArgumentsDelta(event.index, decode_input("".join(pieces)), choice=event.choice)
            yield event
        else:
            yield event
