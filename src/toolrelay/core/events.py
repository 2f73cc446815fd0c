"""Stream events: a model's output as it arrives. They are many, cheap, and never stored one by one.

An answer is

    AnswerStarted (part | call)* (AnswerFinished | AnswerFailed)

where a part is a sequence of TextDelta, RefusalDelta or ReasoningDelta, and a call is CallStarted ArgumentsDelta* CallFinished.
In what a client gets of a turn with gateway tools, GatewayCallStarted and GatewayCallFinished stand between the answers.
Calls of one answer may interleave: `index` identifies a call within the answer and counts from 0 without gaps. `choice` is 0
unless a client asked for n > 1. A call without CallFinished is not a call.

Backends leave `CallStarted.id` empty: the turn sets it.

Deltas cannot be part of a reference cycle. Without tracking by the garbage collector (gc=False) they cost a third less.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import CallKind
from toolrelay.errors import ToolrelayError

Finish: TypeAlias = Literal["stop", "length", "calls", "content_filter"]


MAX_TOKENS = 2**53 - 1  # exact in any JSON; sums of it are within the integers of a database


def limit_tokens(figure: float) -> int:
    """Return a reported figure as one that can be added up and stored, however absurd it is."""
    if type(figure) is int and 0 <= figure <= MAX_TOKENS:
        return figure
    return int(min(max(figure, 0), MAX_TOKENS))


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
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
        has_total = self.total is not None or other.total is not None
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            total=self._known_total() + other._known_total() if has_total else None,
            cached=_sum(self.cached, other.cached),
            cache_written=_sum(self.cache_written, other.cache_written),
            reasoning=_sum(self.reasoning, other.reasoning),
            audio_in=_sum(self.audio_in, other.audio_in),
            audio_out=_sum(self.audio_out, other.audio_out),
            accepted_prediction=_sum(self.accepted_prediction, other.accepted_prediction),
            rejected_prediction=_sum(self.rejected_prediction, other.rejected_prediction),
            estimated=self.estimated or other.estimated,
        )

    def __sub__(self, other: Usage) -> Usage:
        """Return what was added to the other one."""
        has_total = self.total is not None or other.total is not None
        return Usage(
            input=self.input - other.input,
            output=self.output - other.output,
            total=self._known_total() - other._known_total() if has_total else None,
            cached=None if self.cached is None else self.cached - (other.cached or 0),
        )

    def _known_total(self) -> int:
        return self.input + self.output if self.total is None else self.total


_CHARACTERS_PER_TOKEN = 4


def estimate_usage(input_characters: int, output_characters: int) -> Usage:
    """Return the usage of an answer for which none was reported."""
    tokens = input_characters // _CHARACTERS_PER_TOKEN, output_characters // _CHARACTERS_PER_TOKEN
    return Usage(input=tokens[0], output=tokens[1], estimated=True)


def _sum(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else a + b


class AnswerStarted(Struct, frozen=True, kw_only=True):
    """`model` is the provider's name for the model."""

    model: str | None = None
    fingerprint: str | None = None
    service_tier: str | None = None


class MessageStarted(Struct, frozen=True, kw_only=True):
    """The start of a message, from providers that split text into several. Otherwise the first delta starts one.

    `is_separate`: it follows another message with text, from which a client that gets all text as one must be able to tell it.
    """

    phase: str | None = None
    is_separate: bool = False


class TextDelta(Struct, frozen=True, gc=False):
    text: str
    choice: int = 0
    logprobs: list[Json] | None = None


class RefusalDelta(Struct, frozen=True, gc=False):
    text: str
    choice: int = 0


class AnnotationAdded(Struct, frozen=True):
    """A citation or similar that belongs to the text so far, in OpenAI's format."""

    annotation: JsonObject
    choice: int = 0


class ReasoningStarted(Struct, frozen=True, kw_only=True):
    """`id` is the provider's. The gateway keeps it, because encrypted content may depend on it."""

    id: str | None = None


class ReasoningDelta(Struct, frozen=True, gc=False):
    """`part` identifies the summary, or the piece of text, within one reasoning item. It counts from 0 without gaps."""

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


class GatewayCallStarted(Struct, frozen=True, kw_only=True):
    """The gateway runs a call of its own tools, with these arguments. The turn makes this event, not the model."""

    id: str
    name: str
    toolset: str
    arguments: str
    approval: str | None = None


class GatewayCallFinished(Struct, frozen=True, kw_only=True):
    """The result of the gateway's call with this id. `failed`: `output` is an error."""

    id: str
    output: str
    failed: bool = False


class ApprovalRequested(Struct, frozen=True, kw_only=True):
    """The client is asked whether the gateway may run a call. Its next request answers."""

    id: str
    name: str
    toolset: str
    arguments: str


class ItemReceived(Struct, frozen=True, kw_only=True):
    """A whole item that only its own wire can represent."""

    wire: str
    raw: JsonObject


class Noticed(Struct, frozen=True, kw_only=True):
    """An entry for the log, never for the client: something in the answer was invalid, changed or cut."""

    event: str
    rule: str
    tool: str | None = None
    dialect: str | None = None
    split_emitted: bool | None = None


UPSTREAM_FALLBACK = "upstream_fallback"  # the event of a Notice that another model is asked
UPSTREAM_RETRIED = "upstream_retried"  # the event of a Noticed whose rule is why a backend asked its model again


class ChoiceFinished(Struct, frozen=True):
    """The end of a choice other than the first, which ends with the answer."""

    choice: int
    finish: Finish


class AnswerFinished(Struct, frozen=True, kw_only=True):
    """`extra` is what only the provider's wire says about the end. `stop_sequence` in it is the one that was found."""

    finish: Finish
    usage: Usage | None = None
    service_tier: str | None = None
    extra: JsonObject | None = None


class AnswerFailed(Struct, frozen=True):
    """The end of an answer that cannot be completed. The class of `error` tells whose fault it is."""

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
    | GatewayCallStarted
    | GatewayCallFinished
    | ApprovalRequested
    | ItemReceived
    | Noticed
    | ChoiceFinished
    | AnswerFinished
    | AnswerFailed
)
