"""The executor: time-outs, cancellation, progress and the limit on concurrent runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.runtime import toolsets
from tests.runtime.toolsets import Play, context, failure, once, run
from toolrelay import ToolContext, log, tool
from toolrelay.runtime.executor import Executor
from toolrelay.toolsets.base import Progress

# pytest finds fixtures by the names of the module.
play = toolsets.play


def test_tool_that_hangs_is_told_to_stop(play: Play) -> None:
    stopped = threading.Event()

    @tool(timeout_seconds=0.02)
    def hang(context: ToolContext) -> str:
        while not context.cancelled:
            pass
        stopped.set()
        return "too late"

    assert once(play, hang) == failure("Error: the tool did not finish within 0.02 s. Its outcome is unknown.")
    assert stopped.wait(30)


def test_coroutine_that_hangs_is_cancelled_and_tried_again_if_idempotent(play: Play) -> None:
    cancelled: list[bool] = []

    @tool(timeout_seconds=0.02, idempotent=True)
    async def hang(context: ToolContext) -> str:
        if len(cancelled) == 2:
            return "third time"
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(context.cancelled)
        return "never"

    async def pause(seconds: float) -> None:
        pass

    assert once(play, hang, pause=pause).output == "third time"
    assert cancelled == [True, True]


STUBBORN = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, ROOT)
from tests.runtime.toolsets import executing, run, settings_for
from toolrelay.settings import Environment

Path("stubborn_tools.py").write_text('''
import asyncio
from toolrelay import tool

@tool(timeout_seconds=0.02)
async def stubborn() -> str:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
''')

async def main():
    settings = settings_for("stubborn_tools", Environment(data_dir=Path(), config_dir=Path.cwd()))
    async with executing(settings, stuck_seconds=0.02) as executor:
        print((await run(executor, "stubborn")).output)

asyncio.run(main())
print("end")
"""


def test_coroutine_that_ignores_its_cancellation_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    program = [sys.executable, "-c", f"ROOT = {str(root)!r}\n{STUBBORN}"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "Error: the tool did not finish within 0.02 s. Its outcome is unknown.\nend\n"
    assert done.returncode == 0


def test_stuck_runs_count_and_further_calls_fail_at_once(play: Play) -> None:
    release = threading.Event()

    @tool(timeout_seconds=0.02)
    def stuck() -> str:
        release.wait()
        return "late"

    @tool
    def quick() -> str:
        return "quick"

    async def story(executor: Executor) -> None:
        waiting = [asyncio.ensure_future(run(executor, "stuck")) for _ in range(2)]
        await asyncio.wait(waiting)
        late = await run(executor, "quick")  # begins before the two count as stuck, and is told as soon as they do
        again = await run(executor, "quick")
        message = "Error: the tool cannot run: all 2 runs of its toolset are stuck. Do not call it again."
        assert late == again == failure(message)
        release.set()
        while (after := await run(executor, "quick")).failed:
            pass
        assert after.output == "quick"

    play(story, stuck, quick, max_concurrent=2, stuck_seconds=0.02)


def test_waiting_for_a_slot_counts_against_the_timeout(play: Play) -> None:
    async def story(executor: Executor) -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        events.update(entered=entered, leave=leave)
        first = asyncio.ensure_future(run(executor, "hold"))
        await entered.wait()
        assert await run(executor, "quick") == failure("Error: the tool did not run: its toolset was busy for 0.02 s.")
        leave.set()
        assert (await first).output == "held"
        assert (await run(executor, "quick")).output == "quick"

    events: dict[str, asyncio.Event] = {}

    @tool
    async def hold() -> str:
        events["entered"].set()
        await events["leave"].wait()
        return "held"

    @tool(timeout_seconds=0.02)
    async def quick() -> str:
        return "quick"

    play(story, hold, quick, max_concurrent=1)


def test_runs_of_a_toolset_are_limited_and_served_in_order(play: Play) -> None:
    running: list[int] = []
    most: list[int] = []

    @tool
    async def count(number: int) -> int:
        running.append(number)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)
        return number

    async def story(executor: Executor) -> None:
        runs = [run(executor, "count", json.dumps({"number": number})) for number in range(50)]
        assert [finished.output for finished in await asyncio.gather(*runs)] == [str(number) for number in range(50)]

    play(story, count, max_concurrent=3)
    assert max(most) == 3


def test_cancelling_the_call_cancels_the_tool(play: Play) -> None:  # bug 44
    contexts: list[ToolContext] = []
    ended: list[bool] = []

    @tool
    async def wait(context: ToolContext) -> str:
        contexts.append(context)
        context.progress(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(context.cancelled)
        return "never"

    async def story(executor: Executor) -> None:
        reported: asyncio.Queue[Progress] = asyncio.Queue()
        task = asyncio.ensure_future(run(executor, "wait", context=context(report=reported.put_nowait)))
        await reported.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with log.captured() as lines:
        play(story, wait)
    assert ended == [True]
    assert [(line["outcome"], line["failed"]) for line in lines if line["event"] == "tool_run"] == [("cancelled", True)]


def test_cancelled_waiter_gives_its_slot_to_the_next(play: Play) -> None:
    events: dict[str, asyncio.Event] = {}

    @tool
    async def hold() -> str:
        events["entered"].set()
        await events["leave"].wait()
        return "held"

    async def story(executor: Executor) -> None:
        events.update(entered=asyncio.Event(), leave=asyncio.Event())
        runs = [asyncio.ensure_future(run(executor, "hold")) for _ in range(3)]
        await events["entered"].wait()
        await asyncio.sleep(0)
        runs[1].cancel()
        events["leave"].set()
        assert [(await runs[0]).output, (await runs[2]).output] == ["held", "held"]
        with pytest.raises(asyncio.CancelledError):
            await runs[1]

    play(story, hold, max_concurrent=1)


def test_progress_of_a_thread_arrives_on_the_loop(play: Play) -> None:
    threads: list[threading.Thread] = []

    @tool
    def work(context: ToolContext) -> str:
        context.progress(1, 2, "half")
        return "done"

    async def story(executor: Executor) -> None:
        reported: asyncio.Queue[Progress] = asyncio.Queue()

        def report(progress: Progress) -> None:
            threads.append(threading.current_thread())
            reported.put_nowait(progress)

        assert (await run(executor, "work", context=context(report=report))).output == "done"
        assert await reported.get() == Progress(done=1, total=2, message="half")

    play(story, work)
    assert threads == [threading.current_thread()]
