"""Finds traces: of the store, and of turns that run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from msgspec.structs import replace

from toolrelay.core.json import JsonObject
from toolrelay.core.steps import QuestionAsked, StepEvent, ToolRunFinished
from toolrelay.errors import ToolrelayError
from toolrelay.runtime.models import Model
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.runtime.service import TurnService
from toolrelay.runtime.traces.timeline import TraceEntry
from toolrelay.runtime.traces.told import ToldInputs, describe_told
from toolrelay.stores.turn_lists import TurnRecord

HIDDEN = "[withheld: an approver decides who sees it]"


def hide_withheld(record: TurnRecord) -> TurnRecord:
    """Leave out results of which a person shares a part, and the question about them, for those who may not approve."""
    return replace(record, steps=tuple([replace(stored, step=_hide(stored.step)) for stored in record.steps]))


def _hide(step: StepEvent) -> StepEvent:
    match step:
        case ToolRunFinished(withheld=True):
            return replace(step, output=HIDDEN)
        case QuestionAsked(kind="share"):
            return replace(step, arguments=HIDDEN)
        case _:
            return step


class TraceFinder:
    def __init__(self, service: TurnService, models: Mapping[str, Model]) -> None:
        self._service = service
        self._models = models

    async def load(self, token: str, owner: str) -> TurnRecord | None:
        """Return a turn with the steps that are not written yet. None: the owner has no such turn."""
        running = self._service.turns.find(token, owner)
        ledger = self._service.turns.find_unrecorded(token, owner) if running is None else running.parts.ledger
        unsaved = () if ledger is None else ledger.unsaved  # before reading: they may be written in the meantime
        was_created = ledger is not None and ledger.created.is_set()
        record = await self._service.store.load_record(token, owner)
        if ledger is None:
            return record
        if record is None:
            return None if was_created else TurnRecord(row=ledger.current_row, steps=unsaved)  # deleted, or not written yet
        known = {step.seq for step in record.steps}
        more = tuple([step for step in unsaved if step.seq not in known])
        return replace(record, row=replace(record.row, status=ledger.current_row.status), steps=(*record.steps, *more))

    async def follow(self, token: str, owner: str) -> AsyncGenerator[int, None]:
        """Yield the number of steps, now and after each further one. It ends with the turn."""
        running = self._service.turns.find(token, owner)
        if running is None:
            return
        ledger = running.parts.ledger
        ended = asyncio.ensure_future(running.wait_for_end())
        added: asyncio.Future[None] | None = None
        try:
            while not ended.done():
                count = len(ledger.steps)
                added = asyncio.ensure_future(ledger.wait_for_step(count))
                yield count
                await asyncio.wait([ended, added], return_when=asyncio.FIRST_COMPLETED)
                added.cancel()
        finally:
            for each in (ended, added):
                if each is not None:
                    each.cancel()

    async def describe_told(self, record: TurnRecord, entry: TraceEntry) -> JsonObject:
        """Return what the model was told in a model call, or why that is not known."""
        model = self._models.get(record.row.model)
        if model is None:
            return {"unknown": f"The model {record.row.model!r} is no longer configured."}
        if record.unreadable:
            return {"unknown": "Steps of this turn cannot be read."}
        try:
            past = PastTurn(record.row, [stored.step for stored in record.steps])
            policy, context = await self._service.replay_inputs(past, model)
            inputs = ToldInputs(token=record.row.id, policy=policy, context=context, options=model.mode.options)
            told = await asyncio.to_thread(describe_told, record.steps, entry.steps[0], inputs)
        except ToolrelayError as error:
            return {"unknown": error.message}
        except Exception as error:  # noqa: BLE001 -- a record that another version wrote may not fit this one
            return {"unknown": f"It cannot be computed again: {type(error).__name__}."}
        return told or {"unknown": "The record has no such call."}
