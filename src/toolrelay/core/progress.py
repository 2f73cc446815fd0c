"""The durable state of a turn: a fold over its step events. Replaying the steps gives the same state."""

from __future__ import annotations

from enum import Enum, auto

import msgspec
from msgspec import Struct

from toolrelay.core.events import Usage
from toolrelay.core.messages import Call, Content, Item, Message, Result
from toolrelay.core.policy import MAX_IDENTICAL_CALLS
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    QuestionAsked,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnFailed,
    TurnFinished,
    TurnResumed,
    VerdictGiven,
)


class CallState(Enum):
    """The state of a gateway call.

    PLANNED -> ASKED -> ALLOWED -> RUNNING -> DONE; without approval from PLANNED to RUNNING; a denied call, or one that is not
    run for another reason, goes to DONE at once.
    """

    PLANNED = auto()
    ASKED = auto()
    ALLOWED = auto()
    RUNNING = auto()
    DONE = auto()


class PendingGatewayCall(Struct, eq=False):
    """A gateway call of the current answer. `arguments` are those that run: a person may have changed the model's."""

    call: Call
    arguments: str
    toolset: str
    attempt: int  # the how-manieth call of the turn with this name and these arguments
    state: CallState = CallState.PLANNED
    output: Content = ""


class TurnProgress:
    """`history` is what the turn adds to the conversation: the model's answers and the results of gateway calls.

    `answer` is the latest answer, until its gateway calls are done and the model is asked again. Its results are added to the
    history together, in the order of the calls.
    """

    def __init__(self) -> None:
        self.history: list[Item] = []
        self.usage: Usage | None = None
        self._counted_usage: Usage | None = None
        self.answer: AnswerReceived | None = None
        self.unplanned: list[Call] = []
        self.pending: dict[str, PendingGatewayCall] = {}
        self.client_calls: list[Call] = []
        self.rounds = 0  # answers whose gateway calls are done
        self.runs = 0  # gateway tools that were started
        self.repeats = False  # a call was made too often with the same arguments
        self.call_count = 0
        self.handed_over = False  # the client's calls
        self.has_ended = False
        self._attempts: dict[tuple[str, str], int] = {}  # gateway calls so far, by name and arguments

    def apply(self, step: StepEvent) -> None:
        match step:
            case AnswerReceived():
                self._receive(step)
            case CallPlanned():
                self._plan(step)
            case QuestionAsked(call_id=call_id):
                self.pending[call_id].state = CallState.ASKED
            case VerdictGiven(call_id=call_id):
                self._decide(self.pending[call_id], step)
            case ToolRunStarted(call_id=call_id, arguments=arguments):
                pending = self.pending[call_id]
                pending.state = CallState.RUNNING
                pending.arguments = arguments
                self.runs += 1
            case ToolRunFinished(call_id=call_id, output=output):
                self._complete(self.pending[call_id], output)
            case CallsHandedOver():
                self.handed_over = True
            case TurnFinished() | TurnFailed():
                self.has_ended = True
            case TurnResumed():
                if self.has_ended:
                    self._counted_usage = self.usage
                self.has_ended = False
            case _:  # steps that only the record needs
                pass

    @property
    def uncounted_usage(self) -> Usage | None:
        """Return the usage since the turn was resumed: that of before was counted when the turn had ended."""
        counted = self._counted_usage
        return self.usage if self.usage is None or counted is None else self.usage - counted

    def active(self) -> list[PendingGatewayCall]:
        """Return the calls that are waited for."""
        return [pending for pending in self.pending.values() if pending.state in (CallState.ASKED, CallState.RUNNING)]

    @property
    def has_text(self) -> bool:
        """Return whether an answer of the turn has text."""
        return any(isinstance(item, Message) and item.content for item in self.history)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing is left to do for the gateway calls of the answer."""
        return not self.unplanned and all(each.state is CallState.DONE for each in self.pending.values())

    def _receive(self, step: AnswerReceived) -> None:
        self.answer = step
        self.history += step.items
        self.call_count = step.call_count
        self.unplanned = [item for item in step.items if type(item) is Call]
        self.pending = {}
        self.client_calls = []
        if step.usage is not None:
            self.usage = step.usage if self.usage is None else self.usage + step.usage

    def _plan(self, step: CallPlanned) -> None:
        call = step.call
        del self.unplanned[0]
        if step.owner == "gateway":
            key = call.name, _canonical(call.arguments)
            self._attempts[key] = attempt = self._attempts.get(key, 0) + 1
            self.pending[call.id] = PendingGatewayCall(call, call.arguments, step.toolset, attempt)
            self.repeats = self.repeats or attempt > MAX_IDENTICAL_CALLS
        else:
            self.client_calls.append(call)

    def _decide(self, pending: PendingGatewayCall, step: VerdictGiven) -> None:
        if step.verdict == "allow":
            pending.state = CallState.ALLOWED
            if step.arguments is not None:
                pending.arguments = step.arguments
            return
        why = f" Reason: {step.reason}" if step.reason else ""
        self._complete(pending, f"The user denied this call. It was not run.{why}")

    def _complete(self, pending: PendingGatewayCall, output: Content) -> None:
        pending.state = CallState.DONE
        pending.output = output
        if not self.is_settled:
            return
        for each in self.pending.values():
            self.history.append(Result(call_id=each.call.id, output=each.output, kind=each.call.kind))
        self.rounds += 1


def _canonical(arguments: str) -> str:
    """Return the arguments without differences that do not matter: spaces and the order of members."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
