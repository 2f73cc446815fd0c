"""Stream events from the recorded steps of a turn: what its client was shown, without the boundaries between deltas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.gateway_calls import shown_end, shown_request, shown_start
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Item, Message, OpaqueItem, Reasoning, Refusal, Text
from toolrelay.core.policy import BREAK
from toolrelay.core.progress import CallState, TurnProgress
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    QuestionClosed,
    QuestionLeft,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    TurnResumed,
    VerdictGiven,
)
from toolrelay.errors import InternalError


def shown_events(steps: Sequence[StepEvent], *, joins_answers: bool = False) -> list[StreamEvent]:
    """Return the events of a turn, without the end if it has none yet. `joins_answers` is that of its policy."""
    client_calls = [step.call.id for step in steps if isinstance(step, CallPlanned) and step.owner == "client"]
    player = _Player(frozenset(client_calls), joins_answers=joins_answers)
    return [event for step in _without_interruptions(steps) for event in player.play(step)]


def _without_interruptions(steps: Sequence[StepEvent]) -> list[StepEvent]:
    """Return the steps without failures after which the turn was resumed: who follows it now has not seen them."""
    following = [*steps[1:], None]
    pairs = zip(steps, following, strict=True)
    return [step for step, later in pairs if not (isinstance(step, TurnFailed) and isinstance(later, TurnResumed))]


class _Player:
    def __init__(self, client_calls: frozenset[str], *, joins_answers: bool) -> None:
        self._joins_answers = joins_answers
        self._progress = TurnProgress()
        self._client_calls = client_calls
        self._call_index = 0
        self._tier: str | None = None
        self._extra: JsonObject | None = None

    def play(self, step: StepEvent) -> Iterator[StreamEvent]:
        started_before = {key for key, each in self._progress.pending.items() if each.state is CallState.RUNNING}
        needs_break = self._joins_answers and self._progress.has_text
        self._progress.apply(step)
        pending = self._progress.pending
        match step:
            case TurnAccepted():
                yield AnswerStarted()
            case AnswerReceived():
                self._tier, self._extra = step.service_tier, step.extra
                for event in self._answer(step.items):
                    if self._joins_answers and isinstance(event, MessageStarted) and event.is_separate:
                        needs_break = True
                    if needs_break and isinstance(event, TextDelta) and event.text:
                        needs_break = False
                        yield replace(event, text=BREAK + event.text)
                    else:
                        yield event
            case ToolRunStarted(call_id=call_id):
                yield shown_start(pending[call_id])
            case ToolRunFinished(call_id=call_id, withheld=False):
                if call_id not in started_before:
                    yield shown_start(pending[call_id])
                yield shown_end(pending[call_id], failed=step.failed)
            case VerdictGiven(call_id=call_id, kind="share"):
                yield shown_end(pending[call_id], failed=step.verdict == "deny")
            case QuestionClosed(call_id=call_id, kind="share", status="expired"):
                yield shown_end(pending[call_id], failed=True)
            case VerdictGiven(call_id=call_id, verdict="deny") | QuestionClosed(call_id=call_id, status="expired"):
                yield shown_start(pending[call_id])
                yield shown_end(pending[call_id], failed=True)
            case QuestionLeft(call_id=call_id):
                yield shown_request(pending[call_id])
            case TurnFinished():
                yield AnswerFinished(finish=step.finish, usage=step.usage, service_tier=self._tier, extra=self._extra)
            case TurnFailed():
                error = InternalError(step.message, status=step.status, type=step.error_type, code=step.code, param=step.param)
                yield AnswerFailed(error)
            case _:
                pass

    def _answer(self, items: Sequence[Item]) -> Iterator[StreamEvent]:
        for item in items:
            if not isinstance(item, Call):
                yield from _item_events(item)
            elif item.id in self._client_calls:
                yield from self._client_call(item)

    def _client_call(self, call: Call) -> Iterator[StreamEvent]:
        index = self._call_index
        self._call_index += 1
        yield CallStarted(index, call.name, call.id, call.kind, 0, call.namespace, call.extra)
        yield ArgumentsDelta(index, call.arguments)
        yield CallFinished(index)


def _item_events(item: object) -> Iterator[StreamEvent]:
    match item:
        case Message(content=content):
            yield MessageStarted(phase=item.phase, is_separate=item.is_separate)
            for part in (Text(text=content),) if isinstance(content, str) else content:
                if isinstance(part, Text):
                    yield TextDelta(part.text, 0, list(part.logprobs) or None)
                    for annotation in part.annotations:
                        if isinstance(annotation, dict):
                            yield AnnotationAdded(annotation)
                elif isinstance(part, Refusal):
                    yield RefusalDelta(part.text)
        case Reasoning():
            yield ReasoningStarted(id=item.id)
            for number, text in enumerate(item.text):
                yield ReasoningDelta(text, "text", number)
            for number, text in enumerate(item.summary):
                yield ReasoningDelta(text, "summary", number)
            yield ReasoningFinished(encrypted=item.encrypted)
        case OpaqueItem():
            yield ItemReceived(wire=item.wire, raw=item.raw)
        case _:
            pass
