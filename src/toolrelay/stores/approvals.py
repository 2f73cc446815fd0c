"""Values of questions to people, their answers, and rules."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from toolrelay.core.approvals import QuestionKind, QuestionStatus

ApprovalMode: TypeAlias = Literal["hold", "return"]


class ApprovalRow(Struct, frozen=True, kw_only=True):
    """A question to a person, and its answer.

    owner           whose turn it is
    kind            "run": may the call run? "share": may the model see its result?
    mode            "hold": the turn waits; "return": the turn has ended, and the client answers with its next request
    arguments       what is asked about, as JSON text; `new_arguments` is what a person made of it
    answered_by     the name of the approver, or "rule ID"
    """

    id: str
    turn: str
    owner: str
    model: str
    conversation: str | None
    call_id: str
    kind: QuestionKind
    mode: ApprovalMode
    toolset: str
    tool: str
    arguments: str
    created_at: float
    expires_at: float
    status: QuestionStatus = "pending"
    answered_at: float | None = None
    answered_by: str | None = None
    new_arguments: str | None = None
    reason: str | None = None


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """The answer to the question with this id."""

    id: str
    status: QuestionStatus
    answered_at: float
    answered_by: str | None = None
    new_arguments: str | None = None
    reason: str | None = None


class RuleRow(Struct, frozen=True, kw_only=True):
    """A remembered answer to questions about a tool.

    owner           for whose turns it answers
    definition      a digest of the tool; if the tool changes, the rule no longer applies
    conversation    the only conversation that it is for
    arguments       the only arguments that it is for, as canonical JSON
    new_arguments   those that run instead
    """

    id: str
    owner: str
    toolset: str
    tool: str
    definition: str
    kind: QuestionKind
    verdict: Literal["allow", "deny"]
    created_at: float
    created_by: str
    conversation: str | None = None
    arguments: str | None = None
    new_arguments: str | None = None
    reason: str | None = None
