"""Open questions: answers that come before their turn waits, and listeners."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.rows import ACCEPTED, ASKED, steps, turn
from tests.stores.test_approvals import QUESTION
from toolrelay.core.steps import QuestionClosed, VerdictGiven
from toolrelay.errors import ClientError
from toolrelay.runtime import approvals as module
from toolrelay.runtime.approvals import Approvals, Decision
from toolrelay.runtime.gateway_tools import GatewayTools
from toolrelay.runtime.limits import TurnSlot
from toolrelay.settings import Settings, StoreSettings
from toolrelay.stores.base import open_store

DENY = Decision(verdict="deny")
NOW = 2000.0


async def open_approvals(folder: Path, times: list[float]) -> Approvals:
    """Return approvals with one question on record that nobody waits for yet. The clock shows the last of the times."""
    store = open_store(StoreSettings(record="none"), folder)
    await store.open()
    question = replace(QUESTION, expires_at=NOW + 3600)
    await store.create_turn(turn(), steps(ACCEPTED, ASKED), approvals=[question])
    return Approvals(store, GatewayTools(Settings()), entropy=bytes, clock=lambda: times[-1])


def test_answer_waits_for_the_turn_that_is_about_to_ask(tmp_path: Path) -> None:
    async def story() -> None:
        approvals = await open_approvals(tmp_path, [NOW])
        answering = asyncio.ensure_future(approvals.answer("appr_1", DENY, "anna"))
        await asyncio.sleep(0)
        verdict = await approvals.ask("appr_1", "hold", TurnSlot())
        assert verdict == VerdictGiven(call_id="call_1", verdict="deny", by="anna")
        approvals.note_step(verdict)
        assert (await answering).id == "appr_1"
        await approvals.store.close()

    asyncio.run(story())


def test_answer_to_a_question_that_nobody_waits_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENING_SECONDS", 0.01)

    async def story() -> None:
        approvals = await open_approvals(tmp_path, [NOW])
        with pytest.raises(ClientError, match="its turn is not running") as caught:
            await approvals.answer("appr_1", DENY, "anna")
        assert caught.value.status == 409
        await approvals.store.close()

    asyncio.run(story())


def test_answer_after_the_expiry_is_refused_although_the_timer_stood_still(tmp_path: Path) -> None:
    async def story() -> None:
        times = [NOW]
        approvals = await open_approvals(tmp_path, times)
        events = approvals.events()
        await anext(events)
        asking = asyncio.ensure_future(approvals.ask("appr_1", "hold", TurnSlot()))
        await anext(events)  # it asks
        times.append(NOW + 3601)  # the machine was asleep
        with pytest.raises(ClientError, match="has expired") as caught:
            await approvals.answer("appr_1", DENY, "anna")
        assert caught.value.status == 409
        assert await asking == QuestionClosed(call_id="call_1", status="expired")
        await events.aclose()
        await approvals.store.close()

    asyncio.run(story())
