"""Stream events: what a model says, as it says it. Many and cheap, never stored one by one.

An answer is

    AnswerStarted (part | call)* (AnswerFinished | AnswerFailed)

where a part is any run of TextDelta, RefusalDelta or ReasoningDelta, and a call is CallStarted ArgumentsDelta* CallFinished.
Calls of one answer may interleave: `index` tells them apart within the answer and is dense from 0. `choice` is other than 0
only where a client asked for n > 1. A call without its CallFinished is not a call.

Backends leave `CallStarted.id` empty: the turn makes it.

Deltas hold nothing that could refer back to them, so the garbage collector need not know of them (gc=False): that makes them a
third cheaper.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.errors import ToolrelayError

Finish: TypeAlias = Literal["stop", "length", "calls", "content_filter"]


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens. `cached`, `cache_written`, `audio_in` are parts of `input`; `reasoning`, `audio_out`, predictions of `output`."""

    input: int = 0
    output: int = 0
    total: int | None = None
    cached: int | None = None
    cache_written: int | None = None
    reasoning: int | None = None
    audio_in: int | None = None
    audio_out: int | None = None
    accepted_prediction: int | None = None
    rejected_prediction: int | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        told = self.total is not None or other.total is not None
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            total=self._whole() + other._whole() if told else None,
            cached=_sum(self.cached, other.cached),
            cache_written=_sum(self.cache_written, other.cache_written),
            reasoning=_sum(self.reasoning, other.reasoning),
            audio_in=_sum(self.audio_in, other.audio_in),
            audio_out=_sum(self.audio_out, other.audio_out),
            accepted_prediction=_sum(self.accepted_prediction, other.accepted_prediction),
            rejected_prediction=_sum(self.rejected_prediction, other.rejected_prediction),
            estimated=self.estimated or other.estimated,
        )

    def _whole(self) -> int:
        return self.input + self.output if self.total is None else self.total


_CHARACTERS_PER_TOKEN = 4


def estimated_usage(input_characters: int, output_characters: int) -> Usage:
    """For an answer whose usage nobody reported."""
    return Usage(
        input=input_characters // _CHARACTERS_PER_TOKEN, output=output_characters // _CHARACTERS_PER_TOKEN, estimated=True
    )


def _sum(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else a + b


class AnswerStarted(Struct, frozen=True, kw_only=True):
    """`model` is the provider's own name for what answers."""

    model: str | None = None
    fingerprint: str | None = None
    service_tier: str | None = None


class MessageStarted(Struct, frozen=True, kw_only=True):
    """A new message begins, where a provider divides its text into several. Without it the first delta begins one."""

    phase: str | None = None


class TextDelta(Struct, frozen=True, gc=False):
    text: str
    choice: int = 0
    logprobs: list[Json] | None = None


class RefusalDelta(Struct, frozen=True, gc=False):
    text: str
    choice: int = 0


class AnnotationAdded(Struct, frozen=True):
    """A citation or the like that belongs to the text so far, in OpenAI's shape."""

    annotation: JsonObject
    choice: int = 0


class ReasoningStarted(Struct, frozen=True, kw_only=True):
    """`id` is the provider's: it may be bound to the sealed content, so the gateway keeps it."""

    id: str | None = None


class ReasoningDelta(Struct, frozen=True, gc=False):
    """`part` tells the summaries, or the pieces of text, of one run of reasoning apart; it is dense from 0."""

    text: str
    kind: Literal["text", "summary"] = "text"
    part: int = 0
    choice: int = 0


class ReasoningFinished(Struct, frozen=True, kw_only=True):
    encrypted: str | None = None


class CallStarted(Struct, frozen=True):
    index: int
    name: str
    id: str = ""
    kind: CallKind = "function"
    choice: int = 0
    namespace: str | None = None
    extra: JsonObject | None = None


class ArgumentsDelta(Struct, frozen=True, gc=False):
    index: int
    text: str
    choice: int = 0


class CallFinished(Struct, frozen=True):
    index: int
    choice: int = 0


class ItemReceived(Struct, frozen=True, kw_only=True):
    """A whole item that only its own wire understands."""

    wire: str
    raw: JsonObject


class Noticed(Struct, frozen=True, kw_only=True):
    """For the log, never for the client: what was odd about the answer, and what became of it."""

    event: str
    rule: str
    tool: str | None = None
    dialect: str | None = None
    split_emitted: bool | None = None


class ChoiceFinished(Struct, frozen=True):
    """A choice other than the first came to its end. The first one's end is the answer's."""

    choice: int
    finish: Finish


class AnswerFinished(Struct, frozen=True, kw_only=True):
    finish: Finish
    usage: Usage | None = None
    service_tier: str | None = None


class AnswerFailed(Struct, frozen=True):
    """The end of an answer that has none. `error` says who is at fault."""

    error: ToolrelayError


StreamEvent: TypeAlias = (
    AnswerStarted
    | MessageStarted
    | TextDelta
    | RefusalDelta
    | AnnotationAdded
    | ReasoningStarted
    | ReasoningDelta
    | ReasoningFinished
    | CallStarted
    | ArgumentsDelta
    | CallFinished
    | ItemReceived
    | Noticed
    | ChoiceFinished
    | AnswerFinished
    | AnswerFailed
)
