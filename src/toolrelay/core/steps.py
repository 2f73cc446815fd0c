"""Step events: the history of a turn, in order. The store keeps them; a turn's state is a fold over them (core/progress.py).

Default values are not stored, which halves the record. So the default of a member must never change, here and in the values
that steps contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from toolrelay.core.approvals import TRANSITIONS, QuestionAnswer, QuestionKind, QuestionStatus
from toolrelay.core.events import Finish, Usage
from toolrelay.core.json import Json, JsonObject
from toolrelay.core.messages import Call, Content, Item
from toolrelay.core.request import Request

Owner: TypeAlias = Literal["client", "gateway"]


class _Step(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    pass


class TurnAccepted(_Step, frozen=True):
    """A request was accepted. It has the client's items only, not those of a conversation that it continues.

    Of a conversation that the client named, the request continues the items whose positions are below `context_end`.
    """

    request: Request
    context_end: int | None = None


class AnswerReceived(_Step, frozen=True):
    """The assembled answer.

    `cut`: a call whose start the client has seen never finished, so the turn ends here. `call_count` is the number of calls in
    the turn so far. `extra` is that of AnswerFinished. `raw` is what the model printed, if a dialect read it.

    For the record only: `retries` are the reasons for which the request was sent to the model's server again. `first_ms` and `ms`
    are the milliseconds from calling the model to its first event and to the end of the answer; the driver sets them.
    """

    items: tuple[Item, ...]
    finish: Finish
    usage: Usage | None = None
    cut: bool = False
    call_count: int = 0
    service_tier: str | None = None
    extra: JsonObject | None = None
    raw: str | None = None
    retries: tuple[str, ...] = ()
    first_ms: float | None = None
    ms: float | None = None


class AnswerRejected(_Step, frozen=True):
    """The model's output was rejected by this rule. The model is asked again within the same answer."""

    rule: str
    raw: str | None = None


class CallPlanned(_Step, frozen=True):
    """A call of the answer, and who runs it. `toolset` has the gateway's tool."""

    call: Call
    owner: Owner
    toolset: str = ""


class QuestionAsked(_Step, frozen=True):
    """A person is asked whether the call may run with these arguments, or which paths of its result the model may see.

    `definition` is the digest of the tool that may run. Records of earlier versions have none.
    """

    call_id: str
    kind: QuestionKind = "run"
    tool: str = ""
    toolset: str = ""
    arguments: str = ""
    definition: str = ""


class QuestionLeft(_Step, frozen=True):
    """The turn ends with the question: the client answers it with its next request."""

    call_id: str


class VerdictGiven(_Step, frozen=True):
    """A person's answer, or that of a rule. `arguments`, if any, replace those of the question.

    `by` is who answered. `digest` is that of what may run, `output` the part of a result that is shared; the turn sets them.
    """

    call_id: str
    verdict: Literal["allow", "deny"]
    kind: QuestionKind = "run"
    arguments: str | None = None
    reason: str | None = None
    by: str = ""
    digest: str = ""
    output: Content | None = None


class QuestionClosed(_Step, frozen=True):
    """A question that nobody answered: in time, or before the turn ended."""

    call_id: str
    status: Literal["expired", "withdrawn"]
    kind: QuestionKind = "run"


class ToolRunStarted(_Step, frozen=True):
    """Written before the tool runs, with the arguments that it gets."""

    call_id: str
    arguments: str


class ToolRunFinished(_Step, frozen=True):
    """The result of a call. Without a ToolRunStarted before it, the call was not run.

    `private`: only a local model may see it. `withheld`: nobody gets it before a person has decided which part to share.
    """

    call_id: str
    output: Content
    failed: bool = False
    private: bool = False
    withheld: bool = False


class TakenCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gateway call of an earlier turn. `output` is its result, if it has one already."""

    call: Call
    toolset: str
    arguments: str
    output: Content | None = None
    private: bool = False


class CallsTakenUp(_Step, frozen=True):
    """The gateway calls of an earlier turn that ended with questions, which this turn's request answers."""

    calls: tuple[TakenCall, ...]


class CallsHandedOver(_Step, frozen=True):
    """The turn ends with calls for the client to run."""

    call_ids: tuple[str, ...]


class TurnFinished(_Step, frozen=True):
    finish: Finish
    usage: Usage | None = None


class TurnFailed(_Step, frozen=True):
    """The members are those of the error, from which the wires derive what they show."""

    code: str | None
    message: str
    status: int = 500
    error_type: str = "server_error"
    param: str | None = None
    detail: Json = None


class TurnResumed(_Step, frozen=True):
    """A turn that had failed goes on: its client had left, or the gateway had stopped, and the request was repeated."""


StepEvent: TypeAlias = (
    TurnAccepted
    | AnswerReceived
    | AnswerRejected
    | CallPlanned
    | QuestionAsked
    | QuestionLeft
    | VerdictGiven
    | QuestionClosed
    | ToolRunStarted
    | ToolRunFinished
    | CallsTakenUp
    | CallsHandedOver
    | TurnFinished
    | TurnFailed
    | TurnResumed
)

ReceivedStep: TypeAlias = QuestionLeft | VerdictGiven | QuestionClosed | ToolRunFinished
"""Steps that a turn does not make itself: answers of people, and results of tools."""


def status_of(step: VerdictGiven | QuestionClosed) -> QuestionStatus:
    """Return the status of a question after this step."""
    if isinstance(step, QuestionClosed):
        answer: QuestionAnswer = "expire" if step.status == "expired" else "withdraw"
    elif step.verdict == "deny":
        answer = "deny"
    else:
        answer = "allow" if step.arguments is None else "edit"
    return TRANSITIONS["pending", answer]


def has_asked(steps: Sequence[StepEvent]) -> bool:
    """Return whether a person was asked in the turn. Its client may have left in the meantime, and come back for the answer."""
    return any(isinstance(step, QuestionAsked) for step in steps)
