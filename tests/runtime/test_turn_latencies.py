"""Which time counts as a turn's latency, and what counts as a denial."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.approving import Approver, Asking
from tests.durable import Workshop
from tests.tool_rounds import Round, play
from tests.upstream import Upstream
from toolrelay import log
from toolrelay.core.commands import RecordStep
from toolrelay.core.steps import QuestionAsked, QuestionClosed, QuestionLeft, StepEvent, ToolRunStarted, VerdictGiven
from toolrelay.runtime.telemetry import Metrics, QuestionTimer, TurnLog
from toolrelay.stores.usage import UsageRow

ONE = Round(calls=(("once", {"number": 1}),))
DONE = Round(text=("Done.",))


def asked(call: str = "a") -> QuestionAsked:
    return QuestionAsked(call_id=call)


def allowed(call: str = "a") -> VerdictGiven:
    return VerdictGiven(call_id=call, verdict="allow")


def denied(call: str = "a") -> VerdictGiven:
    return VerdictGiven(call_id=call, verdict="deny")


@pytest.mark.parametrize(
    ("steps", "seconds", "denials"),
    [
        ([(1, asked()), (4, allowed())], 3, 0),
        ([(1, asked()), (4, denied())], 3, 1),
        ([(1, asked())], 9, 0),  # the turn ends at 10 with the question
        ([(1, asked()), (3, QuestionClosed(call_id="a", status="expired"))], 2, 0),
        ([(1, asked()), (1, QuestionLeft(call_id="a"))], 0, 0),
        ([(1, asked("a")), (2, asked("b")), (3, allowed("a")), (6, denied("b"))], 5, 1),  # counts once
        ([(1, asked("a")), (2, allowed("a")), (5, asked("b")), (7, allowed("b"))], 3, 0),
        ([(4, denied())], 0, 1),  # asked in an earlier turn
    ],
)
def test_time_in_which_a_question_is_open(steps: Sequence[tuple[float, StepEvent]], seconds: float, denials: int) -> None:
    timer = QuestionTimer()
    for now, step in steps:
        timer.note(step, now)
    assert (timer.seconds(10), timer.denials) == (seconds, denials)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[..., UsageRow]:
    """Return what is counted of a turn that begins at 100, has its first event at 101, these steps, and its end."""

    def count(*steps: tuple[float, StepEvent], end: float, status: int = 200, is_continued: bool = False) -> UsageRow:
        async def rows() -> Sequence[UsageRow]:
            async with metrics.usage.unwritten() as found:
                return found

        metrics = Metrics()
        turn_log = TurnLog(metrics.model("m"), {}, "openai_chat", 100.0, owner="me", with_content=False)
        if is_continued:
            turn_log.continue_turn()
        turn_log.mark_first_event(101.0)
        with log.captured(), monkeypatch.context() as patch:
            for now, step in steps:
                patch.setattr(time, "monotonic", lambda now=now: now)
                turn_log.record(RecordStep(step))
            turn_log.finish_turn(end, status=status, finish="stop", code=None, usage=None)
        (row,) = asyncio.run(rows())
        return row

    return count


def only(seconds: float) -> str:
    timer = Metrics().usage
    timer.add_turn("m", "me", failed=False, usage=None, tool_runs=0, seconds=seconds)

    async def text() -> str:
        async with timer.unwritten() as rows:
            return rows[0].turn_latencies

    return asyncio.run(text())


def test_latency_is_from_the_request_to_the_end(count: Callable[..., UsageRow]) -> None:
    row = count(end=104.0)
    assert (row.first_latencies, row.turn_latencies, row.denials) == (only(1), only(4), 0)


def test_time_that_a_person_thinks_does_not_count(count: Callable[..., UsageRow]) -> None:
    tool = ToolRunStarted(call_id="a", arguments="{}")
    row = count((102.0, asked()), (3702.0, allowed()), (3702.0, tool), end=3704.0)
    assert (row.first_latencies, row.turn_latencies, row.tool_runs) == (only(1), only(4), 1)


@pytest.mark.parametrize("options", [{"status": 502}, {"is_continued": True}])
def test_turn_that_failed_or_began_earlier_has_no_latency(count: Callable[..., UsageRow], options: dict[str, int]) -> None:
    row = count((102.0, denied()), end=104.0, **options)
    assert (row.turns, row.first_latencies, row.turn_latencies, row.denials) == (1, "", "", 1)


@pytest.mark.parametrize("background", [False, True])
def test_denial_and_both_latencies_of_a_real_turn_are_counted(tmp_path: Path, *, background: bool) -> None:
    with Upstream(play(ONE, DONE)) as upstream:
        workshop = Workshop(tmp_path, upstream, approval="always")
        with workshop.start() as gateway:
            approver = Approver(gateway)
            sent = Asking(gateway).responses(background=background)
            approver.deny("once")
            assert sent.result(60).status_code == 200

            def total() -> dict[str, int]:
                found: dict[str, int] = approver.get("/api/usage").json()["total"]
                return found

            workshop.await_that(lambda: total()["turns"] == 1, total)
            found = total()
            assert (found["denials"], found["tool_runs"], found["failed"]) == (1, 0, 0)
            assert 0 < found["first_p50"] <= found["turn_p50"]
