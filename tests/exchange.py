"""An exchange through the gateway's pure parts: a client's request to the provider, and the provider's bytes to the client."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.commands import Emit, Notice
from toolrelay.core.events import AnswerFailed, AnswerFinished, StreamEvent, Usage
from toolrelay.core.messages import Call, Message, Reasoning, Refusal, Text
from toolrelay.core.request import Request
from toolrelay.core.turn import Turn
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.toolcalls.layer import ToolCallLayer
from toolrelay.toolcalls.options import ModelMode, ToolCallOptions
from toolrelay.wires.base import Envelope, Wire

TOKEN = "Turn0000000000000000"
CREATED = 1_760_000_000


def decoded(wire: Wire, *pieces: bytes) -> list[StreamEvent]:
    """What a provider says, from the first byte to the end of the connection."""
    decoder = wire.decoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()


def check_one_end(events: list[StreamEvent]) -> AnswerFinished | AnswerFailed:
    """The last event, which must be the only one of its kind."""
    *before, last = events
    assert isinstance(last, AnswerFinished | AnswerFailed)
    assert not any(isinstance(event, AnswerFinished | AnswerFailed) for event in before)
    return last


def turned(request: Request, said: Iterable[StreamEvent]) -> tuple[list[StreamEvent], list[Notice]]:
    """What the client is to get of it, and what the log says."""
    layer = trusting_layer(Turn(token=TOKEN, request=request))
    commands = [*layer.start(), *layer.handle(list(said))]
    emitted = [event for command in commands if isinstance(command, Emit) for event in command.events]
    return emitted, [command for command in commands if isinstance(command, Notice)]


def trusting_layer(turn: Turn) -> ToolCallLayer:
    """The turn behind the layer, with a native model whose calls pass unchecked."""
    options = ToolCallOptions(dialect=discover_dialects()["sealed"], native=True, on_bad_call="pass")
    return ToolCallLayer(turn, ModelMode(options))


def envelope(request: Request) -> Envelope:
    return Envelope(token=TOKEN, created=CREATED, model=request.model, request=request)


def fold(events: Iterable[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


class Gist(Struct, frozen=True, kw_only=True):
    """What every wire can say of an answer, however it divides it into messages and parts."""

    text: str
    refusal: str
    reasoning: str
    calls: tuple[tuple[str, str, str], ...]
    finish: str
    usage: tuple[int, ...] | None


def gist(answer: Answer) -> Gist:
    parts = [
        part for item in answer.items if isinstance(item, Message) and isinstance(item.content, tuple) for part in item.content
    ]
    return Gist(
        text="".join(part.text for part in parts if isinstance(part, Text)),
        refusal="".join(part.text for part in parts if isinstance(part, Refusal)),
        reasoning="".join("".join((*item.summary, *item.text)) for item in answer.items if isinstance(item, Reasoning)),
        calls=tuple((item.kind, item.name, item.arguments) for item in answer.items if isinstance(item, Call)),
        finish=answer.finish,
        usage=None if answer.usage is None else _counted(answer.usage),
    )


def _counted(usage: Usage) -> tuple[int, ...]:
    total = usage.input + usage.output if usage.total is None else usage.total
    return usage.input, usage.output, total, usage.cached or 0, usage.reasoning or 0
