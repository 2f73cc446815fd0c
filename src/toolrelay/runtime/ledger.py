"""The record of one turn: its steps and messages, written to the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from toolrelay.core.identity import make_conversation_id
from toolrelay.core.messages import Item
from toolrelay.core.steps import QuestionAsked, StepEvent, ToolRunStarted, TurnAccepted, TurnFailed, TurnFinished, TurnResumed
from toolrelay.errors import StoreConflictError
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.stores.base import ConversationItem, MessageRow, Store, StoredStep, TurnRow, TurnStatus
from toolrelay.stores.messages import message_rows
from toolrelay.wires.responses.request import NAME as RESPONSES

CANCELLED = "cancelled"
_KEY_IN_USE = "Another request with this Idempotency-Key runs tools already. Repeat this request to get the answer to that one."
_CANCELLED = (CANCELLED, "client_gone", "client_stalled")  # the codes of turns that their clients ended
_DURABLE = (QuestionAsked, ToolRunStarted, TurnFinished, TurnFailed)


class TurnLedger:
    """Keeps steps until `flush` writes them in one transaction. See runtime.driver.Ledger.

    Nothing is written before the first step that must survive a crash: a tool is about to run, a person is asked, or the turn
    ends. A turn that can be taken up again, in the background or by its Idempotency-Key, is written from its beginning. Of any
    other a crash loses only what nobody can receive any more (docs/decisions/0011).

    `created` is set once the turn is on record. `steps` are those of a turn that is resumed. `known_items` is the number of items
    of the request that the conversation has already. `client_items` are those of the request as the client sent it.
    """

    def __init__(
        self,
        store: Store,
        row: TurnRow,
        *,
        steps: Sequence[StepEvent] = (),
        known_items: int = 0,
        client_items: Sequence[Item] | None = None,
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
        self._clock = clock
        self._unsaved: list[StoredStep] = []
        self._messages: list[MessageRow] = []
        self._status: TurnStatus | None = None
        self._lock = asyncio.Lock()

    def add(self, step: StepEvent) -> None:
        self._unsaved.append(StoredStep(seq=len(self.steps), at=self._clock(), step=step))
        self.steps.append(step)
        self._is_durable = self._is_durable or isinstance(step, _DURABLE)
        accepted = self.steps[0]
        is_legacy = isinstance(accepted, TurnAccepted) and accepted.request.legacy_functions
        self._messages += message_rows(step, skip=self._known_items, legacy=is_legacy)
        match step:
            case TurnResumed():
                self._status = "running"
            case TurnFinished():
                self._status = "finished"
            case TurnFailed(code=code):
                self._status = "cancelled" if code in _CANCELLED else "failed"

    async def flush(self) -> None:
        """Write the steps. A write that has begun is finished, also if the caller is cancelled: the next must not overtake it.

        What could not be written is written with the next steps, unless another writer was first.
        """
        if self._unsaved and self._is_durable:
            await asyncio.shield(self._save())

    async def _save(self) -> None:
        async with self._lock:
            steps, messages = [*self._unsaved], [*self._messages]
            if not steps:
                return
            try:
                await self._append(steps, messages)
            except StoreConflictError:
                self._drop(steps, messages)
                del self.steps[steps[0].seq : steps[-1].seq + 1]
                if self.row.idempotency_key is not None and any(isinstance(each.step, ToolRunStarted) for each in steps):
                    raise StoreConflictError(_KEY_IN_USE) from None
                raise
            self._drop(steps, messages)

    def _drop(self, steps: Sequence[StoredStep], messages: Sequence[MessageRow]) -> None:
        del self._unsaved[: len(steps)]
        del self._messages[: len(messages)]

    async def _append(self, steps: Sequence[StoredStep], messages: Sequence[MessageRow]) -> None:
        head, items = self._end_conversation() if self._status == "finished" else (None, [])
        if not self.created.is_set():
            row = self.row if self._status is None else replace(self.row, status=self._status)
            begins = row.conversation == make_conversation_id(row.id)  # any other conversation existed when the turn began
            await self._store.create_turn(row, steps, messages, head=head, items=items, creates_conversation=begins)
            self.created.set()
            return
        await self._store.append_steps(self.row.id, steps, status=self._status, messages=messages, head=head, items=items)

    def _end_conversation(self) -> tuple[str | None, list[ConversationItem]]:
        """Return the head of the conversation, and the turn's items if the client named the conversation."""
        accepted = self.steps[0]
        if self.row.wire == RESPONSES and isinstance(accepted, TurnAccepted) and accepted.request.conversation is None:
            return None, []  # a request that continues it will name it
        past = PastTurn(self.row, self.steps)
        items = [] if past.request.conversation is None else past.conversation_items()
        return past.head(self._client_items), items
