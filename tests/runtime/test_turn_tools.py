"""The time that the tools of one turn may take together."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime import toolsets
from tests.runtime.toolsets import Play
from toolrelay import tool
from toolrelay.core.messages import Call, Message
from toolrelay.core.request import Request
from toolrelay.core.turn import Turn
from toolrelay.runtime import turns
from toolrelay.runtime.executor import Executor
from toolrelay.runtime.turns import OUT_OF_TIME, STOPPED, TurnTools
from toolrelay.settings import ModelSettings

play = toolsets.play


def tools_of(executor: Executor, seconds: float) -> TurnTools:
    turn = Turn(token="t" * 20, request=Request(wire="openai_chat", model="fast", items=(Message(role="user", content="Hi"),)))
    return TurnTools(
        executor, turn, ModelSettings(name="fast", provider="demo", timeout_seconds=seconds, max_tool_result_bytes=1000)
    )


def call(name: str, number: int = 1) -> Call:
    return Call(id=f"call_{number}", name=name, arguments="{}")


def test_runs_beside_each_other_count_once(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    monkeypatch.setattr(turns, "time", Clock)

    @tool
    async def take_six_seconds() -> str:
        """Move the clock once all three runs have begun."""
        nonlocal now
        barrier.append(None)
        if len(barrier) == 3:
            now += 6
            begun.set()
        await begun.wait()
        return "done"

    @tool
    async def quick() -> str:
        """Return at once."""
        return "done"

    barrier: list[None] = []
    begun = asyncio.Event()

    async def story(executor: Executor) -> list[str]:
        tools = tools_of(executor, 10)
        results = await asyncio.gather(*(tools.run(call("take_six_seconds", number)) for number in range(3)))
        results.append(await tools.run(call("quick")))
        nonlocal now
        now += 100  # between runs no time counts
        results.append(await tools.run(call("quick")))
        return [str(result.output) for result in results]

    assert play(story, take_six_seconds, quick) == ["done"] * 5


def test_run_is_stopped_and_later_ones_do_not_begin(play: Play) -> None:
    ran: list[str] = []

    @tool
    async def hang() -> str:
        """Never return."""
        ran.append("hang")
        await asyncio.Event().wait()
        return ""

    async def story(executor: Executor) -> list[tuple[object, bool]]:
        tools = tools_of(executor, 0.01)
        results = [await tools.run(call("hang")), await tools.run(call("hang"))]
        return [(result.output, result.failed) for result in results]

    assert play(story, hang) == [(STOPPED, True), (OUT_OF_TIME, True)]
    assert ran == ["hang"]


def test_timer_that_fires_early_leaves_no_time(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        @staticmethod
        def monotonic() -> float:
            return 0.0  # as if no time had passed when the timer fires

    monkeypatch.setattr(turns, "time", Clock)

    @tool
    async def hang() -> str:
        """Never return."""
        await asyncio.Event().wait()
        return ""

    async def story(executor: Executor) -> list[str]:
        tools = tools_of(executor, 0.01)
        return [str((await tools.run(call("hang", number))).output) for number in range(2)]

    assert play(story, hang) == [STOPPED, OUT_OF_TIME]
