"""The durable state of a turn: a fold over its step events. Replaying the steps gives the same state."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from toolrelay.core.approvals import NOT_ANSWERED, NOT_ANSWERED_SHARE, canonical_json, denial_text, describe_edit
from toolrelay.core.events import Usage
from toolrelay.core.messages import Call, Content, Item, Message, Result
from toolrelay.core.policy import MAX_IDENTICAL_CALLS
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    CallsTakenUp,
    QuestionAsked,
    QuestionClosed,
    QuestionLeft,
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
    run for another reason, goes to DONE at once. If a person decides what is shared of the result: RUNNING -> RAN ->
    SHARE_ASKED -> DONE. LEFT: the turn ends with the question.
    """

    PLANNED = auto()
    ASKED = auto()
    LEFT = auto()
    ALLOWED = auto()
    RUNNING = auto()
    RAN = auto()
    SHARE_ASKED = auto()
    DONE = auto()


class PendingGatewayCall(Struct, eq=False):
    """A gateway call of the current answer. `arguments` are those that run: a person may have changed the model's.

    `definition` is the digest of the tool that a person was asked about, `digest` that of what they have approved.
    """

    call: Call
    arguments: str
    toolset: str
    attempt: int  # the how-manieth call of the turn with this name and these arguments
    state: CallState = CallState.PLANNED
    output: Content = ""
    was_asked: bool = False
    definition: str = ""
    digest: str = ""
    private: bool = False

    @property
    def is_done(self) -> bool:
        return self.state is CallState.DONE

    def result(self) -> Result:
        """Return what the model gets. If a person changed the arguments, it is told."""
        output = self.output
        if self.digest and canonical_json(self.arguments) != canonical_json(self.call.arguments):
            output = describe_edit(self.arguments, output)
        return Result(call_id=self.call.id, output=output, kind=self.call.kind, private=self.private)


_ASKED = (CallState.ASKED, CallState.SHARE_ASKED)
_ACTIVE = (*_ASKED, CallState.RUNNING)


class TurnProgress:
    """`history` is what the turn adds to the conversation: the model's answers and the results of gateway calls.

    `answer` is the latest answer, until its gateway calls are done and the model is asked again. Its results are added to the
    history together, in the order of the calls. `inherited` are the results of calls that an earlier turn made: their place is
    after those calls.
    """

    def __init__(self) -> None:
        self.history: list[Item] = []
        self.inherited: list[Result] = []
        self.has_taken_up = False  # the pending calls are those of an earlier turn
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
            case AnswerReceived():  # the steps of every turn come first
                self._receive(step)
            case TurnFinished() | TurnFailed():
                self.has_ended = True
            case CallPlanned():
                self._plan(step)
            case QuestionAsked(call_id=call_id, kind=kind):
                pending = self.pending[call_id]
                pending.state = CallState.ASKED if kind == "run" else CallState.SHARE_ASKED
                pending.was_asked = True
                pending.definition = step.definition
            case QuestionLeft(call_id=call_id):
                self.pending[call_id].state = CallState.LEFT
            case VerdictGiven(call_id=call_id):
                self._decide(self.pending[call_id], step)
            case QuestionClosed(call_id=call_id):
                self._close(self.pending[call_id], step)
            case ToolRunStarted(call_id=call_id, arguments=arguments):
                pending = self.pending[call_id]
                pending.state = CallState.RUNNING
                pending.arguments = arguments
                self.runs += 1
            case ToolRunFinished(call_id=call_id):
                self._finish_run(self.pending[call_id], step)
            case CallsTakenUp():
                self._take_up(step)
            case CallsHandedOver():
                self.handed_over = True
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
        return [pending for pending in self.pending.values() if pending.state in _ACTIVE]

    def asked(self) -> list[PendingGatewayCall]:
        """Return the calls about which a person is being asked."""
        return [pending for pending in self.pending.values() if pending.state in _ASKED]

    @property
    def left(self) -> list[PendingGatewayCall]:
        """Return the calls with whose questions the turn ends."""
        return [pending for pending in self.pending.values() if pending.state is CallState.LEFT]

    def withdrawals(self) -> list[QuestionClosed]:
        """Return the steps that close all open questions of a turn that fails, also those to the client."""
        run = [each for each in self.pending.values() if each.state in (CallState.ASKED, CallState.LEFT)]
        share = [each for each in self.pending.values() if each.state is CallState.SHARE_ASKED]
        return [
            *[QuestionClosed(call_id=each.call.id, status="withdrawn") for each in run],
            *[QuestionClosed(call_id=each.call.id, status="withdrawn", kind="share") for each in share],
        ]

    @property
    def has_only_left(self) -> bool:
        """Return whether nothing but questions to the client is open."""
        done = all(pending.state in (CallState.DONE, CallState.LEFT) for pending in self.pending.values())
        return done and not self.unplanned and bool(self.left)

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
        self.has_taken_up = False
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
            key = call.name, canonical_json(call.arguments)
            self._attempts[key] = attempt = self._attempts.get(key, 0) + 1
            self.pending[call.id] = PendingGatewayCall(call, call.arguments, step.toolset, attempt)
            self.repeats = self.repeats or attempt > MAX_IDENTICAL_CALLS
        else:
            self.client_calls.append(call)

    def _decide(self, pending: PendingGatewayCall, step: VerdictGiven) -> None:
        if step.verdict == "deny":
            self._complete(pending, denial_text(step.kind, step.reason))
        elif step.kind == "share":
            self._complete(pending, pending.output if step.output is None else step.output)
        else:
            pending.state = CallState.ALLOWED
            pending.digest = step.digest
            if step.arguments is not None:
                pending.arguments = step.arguments

    def _close(self, pending: PendingGatewayCall, step: QuestionClosed) -> None:
        """Make an expired question the result. One that was withdrawn is asked again, if the turn ever goes on."""
        if step.status == "expired":
            self._complete(pending, NOT_ANSWERED if step.kind == "run" else NOT_ANSWERED_SHARE)
        else:
            pending.state = CallState.PLANNED if step.kind == "run" else CallState.RAN

    def _finish_run(self, pending: PendingGatewayCall, step: ToolRunFinished) -> None:
        pending.private = step.private
        if step.withheld:
            pending.state = CallState.RAN
            pending.output = step.output
        else:
            self._complete(pending, step.output)

    def _take_up(self, step: CallsTakenUp) -> None:
        self.has_taken_up = True
        self.answer = AnswerReceived(items=(), finish="calls")
        for taken in step.calls:
            state = CallState.ASKED if taken.output is None else CallState.DONE
            pending = PendingGatewayCall(taken.call, taken.arguments, taken.toolset, 1, state, taken.output or "")
            pending.was_asked, pending.private = taken.output is None, taken.private
            self.pending[taken.call.id] = pending

    def _complete(self, pending: PendingGatewayCall, output: Content) -> None:
        pending.state = CallState.DONE
        pending.output = output
        if not self.is_settled:
            return
        results = [each.result() for each in self.pending.values()]
        if self.has_taken_up:
            self.inherited += results
        else:
            self.history += results
        self.rounds += 1
