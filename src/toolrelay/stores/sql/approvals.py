"""Questions to people, their answers, and remembered answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from toolrelay.core.approvals import QuestionStatus
from toolrelay.errors import StoreConflictError
from toolrelay.stores.approvals import ApprovalAnswer, ApprovalRow, RuleRow
from toolrelay.stores.sql.conversations import use_conversation
from toolrelay.stores.sql.database import Connection

R = TypeVar("R", ApprovalRow, RuleRow)

APPROVAL_COLUMNS = ", ".join(ApprovalRow.__struct_fields__)
RULE_COLUMNS = ", ".join(RuleRow.__struct_fields__)
# A question that was withdrawn may be asked again, when its turn is resumed.
_INSERT_APPROVAL = f"""
    INSERT INTO approvals ({APPROVAL_COLUMNS}) VALUES ({", ".join("?" * len(ApprovalRow.__struct_fields__))})
    ON CONFLICT (id) DO UPDATE SET
        status = 'pending', created_at = excluded.created_at, expires_at = excluded.expires_at, answered_at = NULL
    WHERE approvals.status = 'withdrawn'"""
_ANSWER = """
    UPDATE approvals SET status = ?, answered_at = ?, answered_by = ?, new_arguments = ?, reason = ?
    WHERE id = ? AND status = 'pending'"""
_SELECT_APPROVAL = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = ?"
# Not those that a client is to answer.
_SELECT_APPROVALS = f"""
    SELECT {APPROVAL_COLUMNS} FROM approvals
    WHERE (? IS NULL OR status = ?) AND (mode = 'hold' OR status <> 'pending')
    ORDER BY created_at DESC, id DESC LIMIT ?"""
_INSERT_RULE = f"INSERT INTO rules ({RULE_COLUMNS}) VALUES ({', '.join('?' * len(RuleRow.__struct_fields__))})"
_SELECT_RULES = f"SELECT {RULE_COLUMNS} FROM rules ORDER BY created_at DESC, id DESC"
_SELECT_RULES_OF_TOOL = f"SELECT {RULE_COLUMNS} FROM rules WHERE owner = ? AND tool = ? ORDER BY created_at DESC, id DESC"
_DELETE_RULE = "DELETE FROM rules WHERE id = ?"
# A conversation that no client has named has no row until one is needed. Its id is that of its first turn.
_SELECT_FIRST_TURN = "SELECT 1 FROM turns WHERE id = ? AND conversation = ? AND owner = ? AND deleted = FALSE"
_SELECT_CONVERSATION = "SELECT 1 FROM conversations WHERE id = ?"


def save_approvals(connection: Connection, changes: Sequence[ApprovalRow | ApprovalAnswer]) -> None:
    """Add questions and answers. A second answer is a conflict."""
    for change in changes:
        if isinstance(change, ApprovalRow):
            count = connection.execute(_INSERT_APPROVAL, msgspec.structs.astuple(change)).rowcount
        else:
            count = connection.execute(_ANSWER, _answer_values(change)).rowcount
        if count == 0 and not (isinstance(change, ApprovalAnswer) and change.status == "withdrawn"):
            raise StoreConflictError(f"The question {change.id} was answered already, or does not exist.")


def _answer_values(answer: ApprovalAnswer) -> tuple[object, ...]:
    return answer.status, answer.answered_at, answer.answered_by, answer.new_arguments, answer.reason, answer.id


def load_approval(connection: Connection, approval: str) -> ApprovalRow | None:
    values = connection.execute(_SELECT_APPROVAL, (approval,)).fetchone()
    return None if values is None else _decode(ApprovalRow, values)


def list_approvals(connection: Connection, status: QuestionStatus | None, limit: int) -> list[ApprovalRow]:
    rows = connection.execute(_SELECT_APPROVALS, (status, status, limit)).fetchall()
    return [_decode(ApprovalRow, values) for values in rows]


def add_rule(connection: Connection, rule: RuleRow) -> None:
    if rule.conversation is not None and connection.execute(_SELECT_CONVERSATION, (rule.conversation,)).fetchone() is None:
        token = rule.conversation.removeprefix("conv_")
        if connection.execute(_SELECT_FIRST_TURN, (token, rule.conversation, rule.owner)).fetchone() is None:
            raise StoreConflictError(f"The conversation {rule.conversation} does not exist, or was deleted.")
        use_conversation(connection, rule.conversation, rule.owner, rule.created_at)
    connection.execute(_INSERT_RULE, msgspec.structs.astuple(rule))


def list_rules(connection: Connection) -> list[RuleRow]:
    return [_decode(RuleRow, values) for values in connection.execute(_SELECT_RULES).fetchall()]


def find_rules(connection: Connection, owner: str, tool: str) -> list[RuleRow]:
    return [_decode(RuleRow, values) for values in connection.execute(_SELECT_RULES_OF_TOOL, (owner, tool)).fetchall()]


def delete_rule(connection: Connection, rule: str) -> bool:
    return connection.execute(_DELETE_RULE, (rule,)).rowcount > 0


def _decode(kind: type[R], values: Sequence[object]) -> R:
    return msgspec.convert(dict(zip(kind.__struct_fields__, values, strict=True)), kind)
