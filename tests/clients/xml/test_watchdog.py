"""Did an XML client run what it was sent?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.clients.xml import copilot
from toolrelay import log
from toolrelay.clients.xml.watchdog import Awaited, Continued, Expectation, ResultWatchdog, Waited, continued, mark, report_to
from toolrelay.core.messages import Item, Message
from toolrelay.core.request import Request
from toolrelay.runtime.telemetry import Metrics

SEARCH = "<use_tool>\n<name>webSearch</name>\n<query>x</query>\n</use_tool>"
TIME = "<use_tool>\n<name>getTime</name>\n</use_tool>"
SYSTEM = Message(role="system", content="Call tools with <use_tool>. It is 12:00.")
ASK = Message(role="user", content="What is new?")


def request(*items: Item, key: str | None = "obsidian") -> Request:
    return Request(wire="openai_chat", model="m", items=items, key=key)


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def told(*names: str) -> Message:
    return Message(role="user", content=copilot.results(*((name, "…") for name in names)))


FIRST = request(SYSTEM, ASK)
EXPECTED = mark(FIRST.key, FIRST.items, [SEARCH, TIME])


# Which request goes on after which


def test_the_next_request_is_known_by_its_history_and_the_blocks_in_it() -> None:
    later = request(SYSTEM, ASK, said(SEARCH + TIME + "I will look."), told("webSearch", "getTime"))
    assert continued(later) == Continued(mark=EXPECTED, ran=True)


def test_it_does_not_matter_what_the_client_did_with_the_narrative_or_its_system_text() -> None:
    clock = Message(role="system", content="Call tools with <use_tool>. It is 12:01.")
    later = request(clock, ASK, said(f"{SEARCH}\n{TIME}"), told("webSearch"))
    assert continued(later) == Continued(mark=EXPECTED, ran=True)


def test_another_key_question_or_answer_is_another_conversation() -> None:
    other = Message(role="user", content="What is old?")
    for later in (
        request(SYSTEM, ASK, said(SEARCH + TIME), told("getTime"), key="laptop"),
        request(SYSTEM, other, said(SEARCH + TIME), told("getTime")),
        request(SYSTEM, ASK, said(SEARCH), told("getTime")),
        request(SYSTEM, ASK, other, said(SEARCH + TIME), told("getTime")),
    ):
        found = continued(later)
        assert found is not None
        assert found.mark != EXPECTED


def test_a_request_whose_last_answer_has_no_blocks_goes_on_after_none() -> None:
    assert continued(FIRST) is None
    assert continued(request(ASK, said(SEARCH), told("webSearch"), said("Done."), ASK)) is None


def test_a_question_in_the_place_of_results_says_that_nothing_ran() -> None:
    assert continued(request(SYSTEM, ASK, said(SEARCH + TIME), ASK)) == Continued(mark=EXPECTED, ran=False)


# What is waited for


def expectation(turn: str = "t1", since: float = 100, due: float = 105, common: bytes = EXPECTED) -> Expectation:
    return Expectation(mark=common, turn=turn, model="m", tools=("webSearch",), since=since, due=due)


def test_results_in_time_end_the_wait() -> None:
    awaited = Awaited()
    awaited.expect(expectation())
    assert awaited.answer(Continued(mark=EXPECTED, ran=True), 103) == Waited(expectation=expectation(), seconds=3, ran=True)
    assert len(awaited) == 0
    assert awaited.overdue(1000) == []


def test_a_wait_is_overdue_once() -> None:
    awaited = Awaited()
    awaited.expect(expectation())
    awaited.expect(expectation("t2", due=200, common=b"other"))
    assert awaited.next_due() == 105
    assert awaited.overdue(104.9) == []
    assert awaited.overdue(105) == [Waited(expectation=expectation(), seconds=5, ran=False)]
    assert awaited.overdue(106) == []
    assert awaited.next_due() == 200
    assert awaited.answer(Continued(mark=EXPECTED, ran=True), 107) is None


def test_of_waits_that_look_alike_the_oldest_is_answered_first() -> None:
    awaited = Awaited()
    awaited.expect(expectation("t1"))
    awaited.expect(expectation("t2"))
    ended = [awaited.answer(Continued(mark=EXPECTED, ran=True), 101) for _ in range(3)]
    assert [each.expectation.turn if each else None for each in ended] == ["t1", "t2", None]


# With a clock


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def guarded(story: Callable[[ResultWatchdog, Clock], Awaitable[None]]) -> list[Waited]:
    async def tell() -> list[Waited]:
        ended: list[Waited] = []
        clock = Clock()
        guard = ResultWatchdog(ended.append, clock)
        await story(guard, clock)
        guard.close()
        return ended

    return asyncio.run(tell())


def test_the_guard_hears_of_results_from_the_next_request() -> None:
    async def story(guard: ResultWatchdog, clock: Clock) -> None:
        came = guard.expect(FIRST, [SEARCH, TIME], turn="t1", seconds=5)
        clock.now += 2
        guard.saw(FIRST)
        assert not came.done()
        guard.saw(request(SYSTEM, ASK, said(SEARCH + TIME), told("webSearch", "getTime")))
        assert await came

    ended = guarded(story)
    assert [(each.expectation.tools, each.seconds, each.ran) for each in ended] == [(("webSearch", "getTime"), 2, True)]


def test_the_guard_gives_up_when_the_time_is_over() -> None:
    async def story(guard: ResultWatchdog, clock: Clock) -> None:
        came = guard.expect(FIRST, [SEARCH], turn="t1", seconds=5)
        clock.now += 6
        guard.look()
        assert not await came

    assert [(each.seconds, each.ran) for each in guarded(story)] == [(6, False)]


def test_the_guard_wakes_by_itself() -> None:
    async def story() -> list[Waited]:
        ended: list[Waited] = []
        guard = ResultWatchdog(ended.append)
        assert not await guard.expect(FIRST, [SEARCH], turn="t1", seconds=0.01)
        return ended

    assert len(asyncio.run(story())) == 1


def test_a_question_in_the_place_of_results_is_told_at_once() -> None:
    async def story(guard: ResultWatchdog, _clock: Clock) -> None:
        came = guard.expect(FIRST, [SEARCH, TIME], turn="t1", seconds=5)
        guard.saw(request(SYSTEM, ASK, said(SEARCH + TIME), ASK))
        assert not await came

    assert [each.ran for each in guarded(story)] == [False]


# What is told


def test_a_wait_in_vain_is_a_warning_and_a_figure_and_one_with_results_a_time() -> None:
    metrics = Metrics()
    tell = report_to(metrics)
    with log.captured() as lines:
        tell(Waited(expectation=expectation(), seconds=5, ran=False))
        tell(Waited(expectation=expectation(), seconds=1.5, ran=True))
    assert lines == [
        {"level": "warning", "event": "no_result", "turn": "t1", "model": "m", "tools": ["webSearch"], "seconds": 5},
        {"level": "info", "event": "tool_result", "turn": "t1", "model": "m", "tools": ["webSearch"], "seconds": 1.5},
    ]
    shown = metrics.exposition().decode()
    assert 'toolrelay_no_results_total{model="m"} 1.0' in shown
    assert 'toolrelay_result_wait_seconds_sum{model="m"} 1.5' in shown
