"""An exchange through the pure parts of the gateway: decoder, turn, encoder."""

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
from toolrelay.toolcalls.options import ActiveOptions, ToolCallOptions
from toolrelay.wires.base import Envelope, ProviderWire

TOKEN = "Turn0000000000000000"
CREATED = 1_760_000_000


def decode_all(wire: ProviderWire, *pieces: bytes) -> list[StreamEvent]:
    """Decode a whole stream of a provider."""
    decoder = wire.decoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()


def check_one_end(events: list[StreamEvent]) -> AnswerFinished | AnswerFailed:
    """Return the last event, which must be the only end of the answer."""
    *before, last = events
    assert isinstance(last, AnswerFinished | AnswerFailed)
    assert not any(isinstance(event, AnswerFinished | AnswerFailed) for event in before)
    return last


def run_turn(request: Request, events: Iterable[StreamEvent]) -> tuple[list[StreamEvent], list[Notice]]:
    """Return a turn's events for the client, and its notices."""
    layer = trusting_layer(Turn(token=TOKEN, request=request))
    commands = [*layer.start(), *layer.handle(list(events))]
    emitted = [event for command in commands if isinstance(command, Emit) for event in command.events]
    return emitted, [command for command in commands if isinstance(command, Notice)]


def trusting_layer(turn: Turn) -> ToolCallLayer:
    """Wrap a turn in a layer for a native model whose bad calls pass."""
    options = ToolCallOptions(dialect=discover_dialects()["sealed"], native=True, on_bad_call="pass")
    return ToolCallLayer(turn, ActiveOptions(options))


def envelope(request: Request) -> Envelope:
    return Envelope(token=TOKEN, created=CREATED, model=request.model, request=request)


def fold(events: Iterable[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


class Gist(Struct, frozen=True, kw_only=True):
    """The content of an answer that every wire can encode, however it divides it into messages and parts.

    `usage` is None if nothing was counted: not every wire can leave it out.
    """

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
        usage=None if answer.usage is None or not any(_usage_counts(answer.usage)) else _usage_counts(answer.usage),
    )


def _usage_counts(usage: Usage) -> tuple[int, ...]:
    total = usage.input + usage.output if usage.total is None else usage.total
    return usage.input, usage.output, total, usage.cached or 0, usage.reasoning or 0
