"""The record of one turn: its steps and messages, written to the store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from toolrelay.core.steps import StepEvent, TurnAccepted, TurnFailed, TurnFinished
from toolrelay.errors import StoreConflictError
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.stores.base import MessageRow, Store, StoredStep, TurnRow, TurnStatus
from toolrelay.stores.messages import message_rows

CANCELLED = "cancelled"
_CANCELLED = (CANCELLED, "client_gone", "client_stalled")  # the codes of turns that their clients ended


class TurnLedger:
    """Keeps steps until `flush` writes them in one transaction. See runtime.driver.Ledger.

    `steps` are those of a turn that is resumed. `known_items` is the number of items of the request that the conversation has
    already.
    """

    def __init__(
        self,
        store: Store,
        row: TurnRow,
        *,
        steps: Sequence[StepEvent] = (),
        known_items: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.row = row
        self.steps = [*steps]
        self._store = store
        self._is_created = bool(steps)
        self._known_items = known_items
        self._clock = clock
        self._unsaved: list[StoredStep] = []
        self._messages: list[MessageRow] = []
        self._status: TurnStatus | None = None
        self._write: asyncio.Task[None] | None = None

    def add(self, step: StepEvent) -> None:
        self._unsaved.append(StoredStep(seq=len(self.steps), at=self._clock(), step=step))
        self.steps.append(step)
        accepted = self.steps[0]
        is_legacy = isinstance(accepted, TurnAccepted) and accepted.request.legacy_functions
        self._messages += message_rows(step, skip=self._known_items, legacy=is_legacy)
        match step:
            case TurnFinished():
                self._status = "finished"
            case TurnFailed(code=code):
                self._status = "cancelled" if code in _CANCELLED else "failed"

    async def flush(self) -> None:
        """A write that has begun is finished, also if the caller is cancelled: the next one must not overtake it."""
        if self._write is not None:
            await asyncio.shield(self._write)
        if not self._unsaved:
            return
        steps, messages = self._unsaved, self._messages
        self._unsaved, self._messages = [], []
        self._write = asyncio.ensure_future(self._append(steps, messages))
        await asyncio.shield(self._write)
        self._write = None

    async def _append(self, steps: Sequence[StoredStep], messages: Sequence[MessageRow]) -> None:
        if not self._is_created:
            self._is_created = True
            row = self.row if self._status is None else replace(self.row, status=self._status)
            await self._store.create_turn(row, steps, messages)
            return
        head = await self._end_conversation() if self._status == "finished" else None
        await self._store.append_steps(self.row.id, steps, status=self._status, messages=messages, head=head)

    async def _end_conversation(self) -> str | None:
        """Add the turn's items to the conversation that the client named. Return the head of the conversation."""
        past = PastTurn(self.row, self.steps)
        if past.request.conversation is not None:
            with contextlib.suppress(StoreConflictError):  # they were added before a crash
                await self._store.add_items(past.request.conversation, self.row.owner, past.conversation_items())
        return past.head()
