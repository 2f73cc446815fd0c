"""The record of one turn: its steps and messages, written to the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from toolrelay.core.approvals import approval_id
from toolrelay.core.identity import make_conversation_id
from toolrelay.core.messages import Item
from toolrelay.core.steps import (
    AnswerReceived,
    QuestionAsked,
    QuestionClosed,
    StepEvent,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    TurnResumed,
    VerdictGiven,
    status_of,
)
from toolrelay.errors import StoreConflictError
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.stores.approvals import ApprovalAnswer, ApprovalMode, ApprovalRow
from toolrelay.stores.base import Store
from toolrelay.stores.conversations import ConversationItem
from toolrelay.stores.messages import message_rows
from toolrelay.stores.turns import MessageRow, StoredStep, TurnRow, TurnStatus
from toolrelay.wires.responses.request import NAME as RESPONSES

CANCELLED = "cancelled"
_KEY_IN_USE = "Another request with this Idempotency-Key runs tools already. Repeat this request to get the answer to that one."
_CANCELLED = (CANCELLED, "client_gone", "client_stalled")  # the codes of turns that their clients ended
_DURABLE = frozenset({QuestionAsked, VerdictGiven, ToolRunStarted, TurnFinished, TurnFailed})


class TurnLedger:
    """Keeps steps until `flush` writes them in one transaction. See runtime.driver.Ledger.

    Nothing is written before the first step that must survive a crash: a tool is about to run, a person is asked, or the turn
    ends. A turn that can be taken up again, in the background or by its Idempotency-Key, is written from its beginning. Of any
    other a crash loses only what nobody can receive any more (docs/decisions/0011).

    `created` is set once the turn is on record. `steps` are those of a turn that is resumed. `known_items` is the number of items
    of the request that the conversation has already. `client_items` are those of the request as the client sent it. `on_saved` is
    called with each step that was written.
    """

    def __init__(
        self,
        store: Store,
        row: TurnRow,
        *,
        steps: Sequence[StepEvent] = (),
        known_items: int = 0,
        client_items: Sequence[Item] | None = None,
        approval: ApprovalMode = "hold",
        expiry_seconds: float = 3600,
        on_saved: Callable[[StepEvent], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.row = row
        self.steps = [*steps]
        self._store = store
        self.created = asyncio.Event()
        if steps:
            self.created.set()
        self._is_durable = bool(steps) or row.background or row.idempotency_key is not None
        self._known_items = known_items
        self._client_items = client_items
        self._approval: ApprovalMode = approval
        self._expiry_seconds = expiry_seconds
        self._on_saved = on_saved
        self._clock = clock
        self._unsaved: list[StoredStep] = []
        self._messages: list[MessageRow] = []
        self._approvals: list[ApprovalRow | ApprovalAnswer] = []
        self._status: TurnStatus | None = None
        self._has_conflict = False
        self._lock = asyncio.Lock()
        self._added: asyncio.Event | None = None  # set when a step is added; made by who waits for it

    @property
    def has_unsaved_end(self) -> bool:
        """Return whether the turn has ended and its record does not say so."""
        return any(isinstance(each.step, TurnFinished | TurnFailed) for each in self._unsaved)

    @property
    def may_store_frames(self) -> bool:
        """Return whether a stream may be stored up to here: no frame may show an end that is not on record."""
        return not self._has_conflict and not self.has_unsaved_end

    @property
    def unsaved(self) -> tuple[StoredStep, ...]:
        return tuple(self._unsaved)

    async def wait_for_step(self, count: int) -> None:
        """Wait until there are more steps than this."""
        while len(self.steps) <= count:
            if self._added is None:
                self._added = asyncio.Event()
            await self._added.wait()

    @property
    def current_row(self) -> TurnRow:
        """Return the row as it would be if all steps were written."""
        return self.row if self._status is None else replace(self.row, status=self._status)

    def add(self, step: StepEvent) -> None:
        at = self._clock()
        self._unsaved.append(StoredStep(seq=len(self.steps), at=at, step=step))
        self.steps.append(step)
        if self._added is not None:
            self._added.set()
            self._added = None
        kind = type(step)
        self._is_durable = self._is_durable or kind in _DURABLE
        accepted = self.steps[0]
        is_legacy = isinstance(accepted, TurnAccepted) and accepted.request.legacy_functions
        self._messages += message_rows(step, skip=self._known_items, legacy=is_legacy)
        if kind is TurnAccepted or kind is AnswerReceived:  # neither changes what follows
            return
        match step:
            case QuestionAsked():
                self._approvals.append(self._question(step, at))
                self._status = "parked"
            case VerdictGiven() | QuestionClosed():
                self._approvals.append(_answer(step, at))
                self._status = "running"
            case TurnResumed():
                self._status = "running"
            case TurnFinished():
                self._status = "finished"
            case TurnFailed(code=code):
                self._status = "cancelled" if code in _CANCELLED else "failed"

    def replace_finish(self, failed: TurnFailed) -> None:
        """Record that the turn failed instead of its finish, which could not be written."""
        if self._unsaved and isinstance(self._unsaved[-1].step, TurnFinished):
            del self._unsaved[-1], self.steps[-1]
            self.add(failed)

    async def flush(self) -> None:
        """Write the steps. A write that has begun is finished, also if the caller is cancelled: the next must not overtake it.

        What could not be written is written with the next steps, unless another writer was first.
        """
        if self._unsaved and self._is_durable:
            await asyncio.shield(self._save())

    async def _save(self) -> None:
        async with self._lock:
            steps, messages, approvals = [*self._unsaved], [*self._messages], [*self._approvals]
            if not steps:
                return
            try:
                await self._append(steps, messages, approvals)
            except StoreConflictError:
                self._has_conflict = True
                self._drop(steps, messages, approvals)
                del self.steps[steps[0].seq : steps[-1].seq + 1]
                if self.row.idempotency_key is not None and any(isinstance(each.step, ToolRunStarted) for each in steps):
                    raise StoreConflictError(_KEY_IN_USE) from None
                raise
            self._has_conflict = False
            self._drop(steps, messages, approvals)
        for saved in steps:
            self._on_saved(saved.step)

    def _drop(
        self,
        steps: Sequence[StoredStep],
        messages: Sequence[MessageRow],
        approvals: Sequence[ApprovalRow | ApprovalAnswer],
    ) -> None:
        del self._unsaved[: len(steps)]
        del self._messages[: len(messages)]
        del self._approvals[: len(approvals)]

    def _question(self, step: QuestionAsked, at: float) -> ApprovalRow:
        row = self.row
        return ApprovalRow(
            id=approval_id(step.call_id, step.kind),
            turn=row.id,
            owner=row.owner,
            model=row.model,
            conversation=row.conversation,
            call_id=step.call_id,
            kind=step.kind,
            mode=self._approval,
            toolset=step.toolset,
            tool=step.tool,
            arguments=step.arguments,
            created_at=at,
            expires_at=at + self._expiry_seconds,
        )

    async def _append(
        self,
        steps: Sequence[StoredStep],
        messages: Sequence[MessageRow],
        approvals: Sequence[ApprovalRow | ApprovalAnswer],
    ) -> None:
        head, items = self._end_conversation() if self._status == "finished" else (None, [])
        if not self.created.is_set():
            row = self.current_row
            # Any other conversation existed when the turn began. On Responses it has a row only if the client names it.
            creates = row.conversation == make_conversation_id(row.id) and row.wire != RESPONSES
            await self._store.create_turn(
                row, steps, messages, head=head, items=items, creates_conversation=creates, approvals=approvals
            )
            self.created.set()
            return
        await self._store.append_steps(
            self.row.id, steps, status=self._status, messages=messages, head=head, items=items, approvals=approvals
        )

    def _end_conversation(self) -> tuple[str | None, list[ConversationItem]]:
        """Return the head of the conversation, and the turn's items if the client named the conversation."""
        accepted = self.steps[0]
        if self.row.wire == RESPONSES and isinstance(accepted, TurnAccepted) and accepted.request.conversation is None:
            return None, []  # a request that continues it will name it
        past = PastTurn(self.row, self.steps)
        items = [] if past.request.conversation is None else past.conversation_items()
        return past.head(self._client_items), items


def _answer(step: VerdictGiven | QuestionClosed, at: float) -> ApprovalAnswer:
    identifier, status = approval_id(step.call_id, step.kind), status_of(step)
    if isinstance(step, QuestionClosed):
        return ApprovalAnswer(id=identifier, status=status, answered_at=at)
    return ApprovalAnswer(
        id=identifier,
        status=status,
        answered_at=at,
        answered_by=step.by or None,
        new_arguments=step.arguments,
        reason=step.reason,
    )
