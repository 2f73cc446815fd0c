"""The watchdog of XML clients' results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.clients.xml import copilot
from toolrelay import log
from toolrelay.clients.xml.watchdog import FollowUp, ResultWatchdog, find_follow_up, fingerprint
from toolrelay.core.messages import Item, Message
from toolrelay.core.request import Request
from toolrelay.runtime.telemetry import Metrics

SEARCH = "<use_tool>\n<name>webSearch</name>\n<query>x</query>\n</use_tool>"
TIME = "<use_tool>\n<name>getTime</name>\n</use_tool>"
SYSTEM = Message(role="system", content="Call tools with <use_tool>. It is 12:00.")
ASK = Message(role="user", content="What is new?")


def request(*items: Item, key: str | None = "obsidian") -> Request:
    return Request(wire="openai_chat", model="m", items=items, key=key)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def results(*names: str) -> Message:
    return Message(role="user", content=copilot.results(*((name, "…") for name in names)))


FIRST = request(SYSTEM, ASK)
EXPECTED = fingerprint(FIRST.key, FIRST.items, [SEARCH, TIME])
WITH_RESULTS = request(SYSTEM, ASK, assistant(SEARCH + TIME), results("webSearch", "getTime"))
WITHOUT_RESULTS = request(SYSTEM, ASK, assistant(SEARCH + TIME), ASK)


# Recognition of the next request


def test_next_request_is_recognised_by_history_and_blocks() -> None:
    later = request(SYSTEM, ASK, assistant(SEARCH + TIME + "I will look."), results("webSearch", "getTime"))
    assert find_follow_up(later) == FollowUp(fingerprint=EXPECTED, has_results=True)


def test_changed_text_and_system_prompt_do_not_matter() -> None:
    clock = Message(role="system", content="Call tools with <use_tool>. It is 12:01.")
    later = request(clock, ASK, assistant(f"{SEARCH}\n{TIME}"), results("webSearch"))
    assert find_follow_up(later) == FollowUp(fingerprint=EXPECTED, has_results=True)


def test_other_key_question_or_blocks_have_another_fingerprint() -> None:
    other = Message(role="user", content="What is old?")
    for later in (
        request(SYSTEM, ASK, assistant(SEARCH + TIME), results("getTime"), key="laptop"),
        request(SYSTEM, other, assistant(SEARCH + TIME), results("getTime")),
        request(SYSTEM, ASK, assistant(SEARCH), results("getTime")),
        request(SYSTEM, ASK, other, assistant(SEARCH + TIME), results("getTime")),
    ):
        found = find_follow_up(later)
        assert found is not None
        assert found.fingerprint != EXPECTED


def test_request_whose_last_answer_has_no_blocks_is_no_follow_up() -> None:
    assert find_follow_up(FIRST) is None
    assert find_follow_up(request(ASK, assistant(SEARCH), results("webSearch"), assistant("Done."), ASK)) is None


def test_question_instead_of_results_has_no_results() -> None:
    assert find_follow_up(WITHOUT_RESULTS) == FollowUp(fingerprint=EXPECTED, has_results=False)


# Waiting


def watch(story: Callable[[ResultWatchdog], Awaitable[None]]) -> tuple[list[dict[str, Any]], str]:
    """Return the log lines and the metrics of a story."""
    metrics = Metrics()

    async def run() -> None:
        watchdog = ResultWatchdog(metrics)
        await story(watchdog)
        watchdog.close()

    with log.captured() as lines:
        asyncio.run(run())
    return lines, metrics.exposition().decode()


def test_results_in_the_next_request_end_the_wait() -> None:
    async def story(watchdog: ResultWatchdog) -> None:
        outcome = watchdog.expect(FIRST, [SEARCH, TIME], turn="t1", seconds=1000)
        watchdog.observe(FIRST)
        assert not outcome.done()
        watchdog.observe(WITH_RESULTS)
        assert await outcome

    [line], metrics = watch(story)
    assert 0 <= line.pop("seconds") < 100
    assert line == {"level": "info", "event": "tool_result", "turn": "t1", "model": "m", "tools": ["webSearch", "getTime"]}
    assert 'toolrelay_result_wait_seconds_count{model="m"} 1.0' in metrics
    assert 'toolrelay_no_results_total{model="m"} 0.0' in metrics


def test_wait_without_results_ends_after_its_time() -> None:
    async def story(watchdog: ResultWatchdog) -> None:
        later = watchdog.expect(FIRST, [TIME], turn="t2", seconds=1000)
        assert not await watchdog.expect(FIRST, [SEARCH], turn="t1", seconds=0.01)
        assert not later.done()
        watchdog.observe(request(SYSTEM, ASK, assistant(SEARCH), results("webSearch")))

    [line], metrics = watch(story)
    assert line.pop("seconds") >= 0.009
    assert line == {"level": "warning", "event": "no_result", "turn": "t1", "model": "m", "tools": ["webSearch"]}
    assert 'toolrelay_no_results_total{model="m"} 1.0' in metrics
    assert 'toolrelay_result_wait_seconds_count{model="m"} 0.0' in metrics


def test_question_instead_of_results_ends_the_wait_at_once() -> None:
    async def story(watchdog: ResultWatchdog) -> None:
        outcome = watchdog.expect(FIRST, [SEARCH, TIME], turn="t1", seconds=1000)
        watchdog.observe(WITHOUT_RESULTS)
        assert not await outcome

    assert [line["event"] for line in watch(story)[0]] == ["no_result"]


def test_oldest_of_equal_waits_ends_first() -> None:
    async def story(watchdog: ResultWatchdog) -> None:
        for turn in ("t1", "t2"):
            watchdog.expect(FIRST, [SEARCH, TIME], turn=turn, seconds=1000)
        for _ in range(3):
            watchdog.observe(WITH_RESULTS)

    assert [line["turn"] for line in watch(story)[0]] == ["t1", "t2"]


def test_cancelled_stream_does_not_stop_the_wait() -> None:
    async def story(watchdog: ResultWatchdog) -> None:
        watchdog.expect(FIRST, [SEARCH, TIME], turn="t1", seconds=1000).cancel()
        watchdog.observe(WITH_RESULTS)

    assert [line["event"] for line in watch(story)[0]] == ["tool_result"]


def test_closed_watchdog_reports_nothing() -> None:
    async def story(watchdog: ResultWatchdog) -> None:
        watchdog.expect(FIRST, [SEARCH], turn="t1", seconds=0)
        watchdog.close()
        await asyncio.sleep(0)

    assert watch(story)[0] == []
