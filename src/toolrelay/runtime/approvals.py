"""Approvals: questions that wait for a person, their answers, and rules that answer for people.

A question is a row of the store. While its turn waits, it is also open here: an answer wakes the turn, and is given to the
approver once the turn has recorded it. Of two answers the second is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolrelay import log
from toolrelay.core.approvals import (
    NO_FILES,
    PATHS,
    QuestionStatus,
    approval_id,
    canonical_json,
    is_empty_selection,
)
from toolrelay.core.commands import AskPerson
from toolrelay.core.identity import make_token
from toolrelay.core.json import JsonObject
from toolrelay.core.steps import QuestionClosed, QuestionLeft, StepEvent, VerdictGiven, status_of
from toolrelay.core.validation import validate
from toolrelay.errors import ClientError, InternalError, StoreConflictError, StoreError
from toolrelay.runtime.gateway_tools import GatewayTools, OpenTool
from toolrelay.runtime.limits import TurnSlot
from toolrelay.runtime.telemetry import Metrics
from toolrelay.settings import LOCAL
from toolrelay.stores.approvals import ApprovalMode, ApprovalRow, RuleRow
from toolrelay.stores.base import Store

Remember: TypeAlias = Literal["once", "conversation", "always"]
EventName: TypeAlias = Literal["asked", "answered", "withdrawn", "expired"]

MAX_REASON = 1000  # characters
MAX_LISTENERS = 100
MAX_UNREAD_EVENTS = 1000  # of a listener; one that reads less is dropped
RULE_ENTROPY = 10  # bytes
OPENING_SECONDS = 5.0  # from the record of a question until its turn waits for the answer


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's answer. `arguments` replace those of the question; `remember` makes a rule of it.

    Unknown members are refused: a misspelt `arguments` would allow the call as it was asked.
    """

    verdict: Literal["allow", "deny"]
    arguments: JsonObject | None = None
    reason: str | None = None
    remember: Remember = "once"
    remember_arguments: Literal["any", "same"] = "any"


class ApprovalEvent(Struct, frozen=True):
    name: EventName
    row: ApprovalRow


class _OpenQuestion:
    """A question that its turn waits for. `answer` wakes the turn, `recorded` is set when the answer is on record.

    `definition` is the digest of the tool that it asks about.
    """

    def __init__(self, row: ApprovalRow, definition: str | None) -> None:
        loop = asyncio.get_running_loop()
        self.row = row
        self.definition = definition
        self.answer: asyncio.Future[VerdictGiven | None] = loop.create_future()  # None: it has expired
        self.recorded: asyncio.Future[QuestionStatus] = loop.create_future()


class Approvals:
    def __init__(
        self,
        store: Store,
        tools: GatewayTools,
        metrics: Metrics | None = None,
        *,
        entropy: Callable[[int], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self._tools = tools
        self._metrics = metrics or Metrics()
        self._entropy = entropy
        self._clock = clock
        self._open: dict[str, _OpenQuestion] = {}
        self._opened = asyncio.Event()  # set, and replaced, when a question is opened
        self.is_closed = False
        self._listeners: set[asyncio.Queue[ApprovalEvent | None]] = set()

    # Asking

    async def ask(self, approval: str, mode: ApprovalMode, slot: TurnSlot) -> VerdictGiven | QuestionClosed | QuestionLeft:
        """Wait for the answer to a question that is on record. The turn does not count as running in the meantime."""
        row = await self.store.load_approval(approval)
        if row is None:
            raise InternalError(f"The question {approval} is not on record.")
        tool = self.find_tool(row)
        rule = None if tool is None else await self._find_rule(row, tool)
        if rule is not None:
            return _apply(rule, row)
        if mode == "return" and row.kind == "run":
            return QuestionLeft(call_id=row.call_id)
        with slot.paused():
            return await self._wait(row)

    async def _wait(self, row: ApprovalRow) -> VerdictGiven | QuestionClosed:
        question = self._open[row.id] = _OpenQuestion(row, self._definition_of(row))
        self._opened.set()
        self._opened = asyncio.Event()
        log.info("approval", status="pending", **self._fields(row))
        self._publish("asked", row)
        seconds = max(0.0, row.expires_at - self._clock())
        await asyncio.wait([question.answer], timeout=seconds)
        verdict = question.answer.result() if question.answer.done() else None
        if verdict is not None:
            return verdict
        question.answer.cancel()
        return QuestionClosed(call_id=row.call_id, status="expired", kind=row.kind)

    def note_step(self, step: StepEvent) -> None:
        """Take note of a step that was recorded: the answer to a question, or its end without one."""
        if not isinstance(step, VerdictGiven | QuestionClosed):
            return
        status = status_of(step)
        self._metrics.approvals[status] += 1
        question = self._open.pop(approval_id(step.call_id, step.kind), None)
        if question is None:
            return
        row = msgspec.structs.replace(question.row, status=status, answered_at=self._clock())
        if isinstance(step, VerdictGiven):
            row = msgspec.structs.replace(row, answered_by=step.by or None, new_arguments=step.arguments, reason=step.reason)
        waited = row.answered_at - row.created_at if row.answered_at is not None else 0.0
        log.info("approval", status=status, by=self._name_of(row.answered_by), seconds=round(waited, 3), **self._fields(row))
        self._publish(status if status in ("expired", "withdrawn") else "answered", row)
        if not question.recorded.done():
            question.recorded.set_result(status)

    def end_turn(self, turn: str) -> None:
        """Give up the questions of a turn that has stopped: one that was suspended asks again after the next start."""
        for approval in [key for key, question in self._open.items() if question.row.turn == turn]:
            question = self._open.pop(approval)
            question.answer.cancel()
            if not question.recorded.done():
                question.recorded.set_exception(StoreError("The turn stopped before the answer was recorded. Try again."))
                question.recorded.exception()  # nobody may wait for it

    # Answering

    async def answer(self, approval: str, decision: Decision, by: str) -> ApprovalRow:
        """Answer a question, and return it when the answer is on record."""
        question = self._open.get(approval) or await self._await_opening(approval)
        if question is None or question.answer.done():
            raise await self._refusal(approval)
        if question.row.expires_at < self._clock():  # the machine was asleep: its timers stood still
            question.answer.set_result(None)
            raise ClientError(f"The question {approval!r} has expired.", status=409, code="already_answered")
        verdict = self._verdict(question.row, decision, by)
        if decision.remember != "once" and not self._is_unchanged(question):
            message = f"The answer cannot be remembered: the tool {question.row.tool!r} no longer exists, or was changed."
            raise ClientError(message, status=422, code="cannot_remember", param="remember")
        question.answer.set_result(verdict)
        status = await asyncio.shield(question.recorded)
        if status == "withdrawn":
            raise await self._refusal(approval)
        if decision.remember != "once":
            await self._remember(question.row, decision, verdict)
        row = await self.store.load_approval(approval)
        if row is None:
            raise _unknown(approval)
        return row

    async def _await_opening(self, approval: str) -> _OpenQuestion | None:
        """Wait for a question that is on record and not open yet: its turn is about to ask."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OPENING_SECONDS):
                while approval not in self._open:
                    opened = self._opened
                    row = await self.store.load_approval(approval)
                    if row is None or row.status != "pending" or row.mode == "return":
                        return self._open.get(approval)
                    await opened.wait()
        return self._open.get(approval)

    async def _refusal(self, approval: str) -> ClientError:
        row = await self.store.load_approval(approval)
        if row is None:
            return _unknown(approval)
        if row.mode == "return" and row.status == "pending":
            message = f"The question {approval!r} was returned to the client, which answers it with its next request."
        elif row.status == "pending":
            message = f"The question {approval!r} is being answered, or its turn is not running."
        else:
            who = f" by {self._name_of(row.answered_by)}" if row.answered_by else ""
            message = f"The question {approval!r} is {row.status}{who} already."
        return ClientError(message, status=409, code="already_answered")

    def _verdict(self, row: ApprovalRow, decision: Decision, by: str) -> VerdictGiven:
        """Check a decision like a new call."""
        reason = None if decision.reason is None else decision.reason.strip()[:MAX_REASON] or None
        denial = VerdictGiven(call_id=row.call_id, verdict="deny", kind=row.kind, reason=reason, by=by)
        if decision.verdict == "deny":
            return denial
        tool = self.find_tool(row)
        if tool is None and row.kind == "run":
            raise ClientError(f"The tool {row.tool!r} no longer exists. The question can only be denied.", status=409)
        arguments = None
        if decision.arguments is not None:
            arguments = msgspec.json.encode(decision.arguments).decode()
            _check_arguments(row, tool, decision.arguments, arguments)
            files = PATHS if tool is None or row.kind == "share" else tool.definition.files_argument
            if is_empty_selection(arguments, files):
                return msgspec.structs.replace(denial, reason=reason or NO_FILES)
            if canonical_json(arguments) == canonical_json(row.arguments):
                arguments = None
        return VerdictGiven(call_id=row.call_id, verdict="allow", kind=row.kind, arguments=arguments, reason=reason, by=by)

    # Rules

    def _definition_of(self, row: ApprovalRow) -> str | None:
        tool = self.find_tool(row)
        return None if tool is None else self._rule_definition(row, tool)

    def _is_unchanged(self, question: _OpenQuestion) -> bool:
        """Return whether the tool is still the one that was asked about."""
        definition = self._definition_of(question.row)
        return definition is not None and definition == question.definition

    async def _remember(self, row: ApprovalRow, decision: Decision, verdict: VerdictGiven) -> None:
        tool = self.find_tool(row)
        if tool is None:
            return
        rule = RuleRow(
            id=f"rule_{make_token(self._entropy(RULE_ENTROPY))}",
            owner=row.owner,
            toolset=row.toolset,
            tool=row.tool,
            definition=self._rule_definition(row, tool),
            kind=row.kind,
            verdict=verdict.verdict,
            created_at=self._clock(),
            created_by=verdict.by,
            conversation=row.conversation if decision.remember == "conversation" else None,
            arguments=canonical_json(row.arguments) if decision.remember_arguments == "same" else None,
            new_arguments=verdict.arguments,
            reason=verdict.reason,
        )
        try:
            await self.store.add_rule(rule)
        except StoreConflictError:
            log.warning("rule_not_kept", conversation=row.conversation)  # it was deleted in the meantime

    async def _find_rule(self, row: ApprovalRow, tool: OpenTool) -> RuleRow | None:
        """Return the rule that answers a question: the newest, of this conversation before those for always."""
        rules = await self.store.find_rules(row.owner, row.tool)
        definition = self._rule_definition(row, tool)
        matching = [rule for rule in rules if _matches(rule, row, definition)]
        return next((rule for rule in matching if rule.conversation is not None), matching[0] if matching else None)

    def _rule_definition(self, row: ApprovalRow, tool: OpenTool) -> str:
        """Return what a rule is bound to: the tool, and whether its result stays on this machine."""
        return tool.gateway_tool.definition + (" local" if self._tools.is_local(row.model) else "")

    # Reading

    def _name_of(self, owner: str | None) -> str | None:
        """Return the name of a key, for people. Who answered may also be a person or a rule."""
        return None if owner is None else self._tools.keys.name_of(owner)

    def _fields(self, row: ApprovalRow) -> dict[str, str | None]:
        """Return what the log says about a question."""
        return {
            "id": row.id,
            "turn": row.turn,
            "call_id": row.call_id,
            "kind": row.kind,
            "tool": row.tool,
            "model": row.model,
            "key": self._name_of(row.owner),
        }

    def find_tool(self, row: ApprovalRow) -> OpenTool | None:
        return self._tools.find(row.tool, model=row.model, key=None if row.owner == LOCAL else row.owner)

    async def list(self, status: QuestionStatus | None, *, limit: int) -> list[ApprovalRow]:
        """Return questions, the newest first. Those that a client answers are not listed as pending."""
        return await self.store.list_approvals(status, limit=limit)

    async def events(self) -> AsyncGenerator[ApprovalEvent | None, None]:
        """Yield what happens from now on. The first value is None: the listener is there."""
        if len(self._listeners) >= MAX_LISTENERS:
            raise ClientError("Too many listeners.", status=503, type="server_error", code="overloaded", retry_after=5)
        queue: asyncio.Queue[ApprovalEvent | None] = asyncio.Queue(MAX_UNREAD_EVENTS)
        self._listeners.add(queue)
        try:
            yield None
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """End the streams of events: the gateway stops, and nobody can answer any more."""
        self.is_closed = True
        for queue in [*self._listeners]:
            self._drop_listener(queue)

    def _publish(self, name: EventName, row: ApprovalRow) -> None:
        for queue in [*self._listeners]:
            try:
                queue.put_nowait(ApprovalEvent(name, row))
            except asyncio.QueueFull:
                self._drop_listener(queue)

    def _drop_listener(self, queue: asyncio.Queue[ApprovalEvent | None]) -> None:
        self._listeners.discard(queue)
        with suppress(asyncio.QueueEmpty):
            if queue.full():
                queue.get_nowait()
        queue.put_nowait(None)


class TurnQuestions:
    """Asks the questions of one turn. See driver.Asker. `outlives`: the turn goes on after the next start of the gateway."""

    def __init__(self, approvals: Approvals, *, mode: ApprovalMode, slot: TurnSlot, outlives: bool) -> None:
        self._approvals = approvals
        self._mode: ApprovalMode = mode
        self._slot = slot
        self._outlives = outlives

    async def ask(self, command: AskPerson) -> VerdictGiven | QuestionClosed | QuestionLeft:
        if self._approvals.is_closed and not self._outlives:
            raise InternalError("The gateway is shutting down.", status=503, code="shutting_down")
        return await self._approvals.ask(approval_id(command.call.id, command.kind), self._mode, self._slot)


def _matches(rule: RuleRow, row: ApprovalRow, definition: str) -> bool:
    return (
        rule.kind == row.kind
        and rule.toolset == row.toolset
        and rule.definition == definition
        and rule.conversation in (None, row.conversation)
        and rule.arguments in (None, canonical_json(row.arguments))
    )


def _apply(rule: RuleRow, row: ApprovalRow) -> VerdictGiven:
    return VerdictGiven(
        call_id=row.call_id,
        verdict=rule.verdict,
        kind=row.kind,
        arguments=rule.new_arguments,
        reason=rule.reason,
        by=f"rule {rule.id}",
    )


def _check_arguments(row: ApprovalRow, tool: OpenTool | None, arguments: JsonObject, text: str) -> None:
    if row.kind == "share":
        problem = _check_paths(row, arguments)
    else:
        problem = None if tool is None else validate(tool.gateway_tool.tool, text)
    if problem is not None:
        message = f"These arguments cannot be approved: {problem}."
        raise ClientError(message, status=422, code="invalid_arguments", param="arguments")


def _check_paths(row: ApprovalRow, arguments: JsonObject) -> str | None:
    asked: Mapping[str, list[str]] = msgspec.json.decode(row.arguments)
    paths = arguments.get(PATHS)
    if set(arguments) != {PATHS} or not isinstance(paths, list):
        return f"they must be an object with the list '{PATHS}'"
    return None if all(path in asked[PATHS] for path in paths) else "only paths of the result can be shared"


def _unknown(approval: str) -> ClientError:
    return ClientError(f"There is no question {approval[:100]!r}.", status=404, code="approval_not_found")
