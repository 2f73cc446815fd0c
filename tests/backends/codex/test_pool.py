"""The pool: turns get a place in the order in which they came, and processes come and go without anyone noticing."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
import uvloop

from tests.backends.codex.fake_codex import faked
from tests.backends.codex.stage import answer, begun, heard, homes, pids, pool_at, said, settled, until, when
from tests.backends.codex.upstream import holds, says, texts
from tests.backends.http.pools import Run
from tests.upstream import Gate, Upstream
from toolrelay.backends.codex.pool import Pool
from toolrelay.backends.codex.process import CodexError


def test_processes_are_started_when_they_are_needed_and_as_many_as_are_needed(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream, size=2) as pool:
                await settled(pool)
                assert pids(pool) == []
                for _ in range(3):
                    async with pool.lease() as lease:
                        assert await answer(lease) == "Hi"
                await settled(pool)
                assert len(pids(pool)) == 1
                async with pool.lease() as one, pool.lease() as two:
                    await settled(pool)
                    async with pool.lease() as three:
                        assert one._process is two._process
                        assert three._process is not one._process
                        await settled(pool)
                        assert len(pids(pool)) == 2

    asyncio.run(main())


def test_fifty_turns_at_once_all_come_through(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(*(says("answer ", "no. ", str(number)) for number in range(50))) as upstream:
            async with pool_at(tmp_path, upstream, size=2) as pool:

                async def turn(number: int) -> str:
                    async with pool.lease() as lease:
                        return await answer(lease, f"question {number}")

                answers = await asyncio.gather(*map(turn, range(50)))
                asked = [texts(received) for received in upstream.requests]
                assert sorted(asked) == sorted([f"question {number}"] for number in range(50))
                assert answers == [f"answer no. {asked.index([f'question {number}'])}" for number in range(50)]
                assert [seat.turns for seat in pool._seats] == [0, 0]
                assert [seat.process.channels for seat in pool._seats] == [{}, {}]
                await when(lambda: not any(seat.process._calls for seat in pool._seats))

    uvloop.run(main())


def test_whoever_comes_first_gets_the_next_place_first(tmp_path: Path) -> None:
    async def main() -> None:
        pool = Pool(faked(tmp_path), size=1, most_turns=2)
        order: list[int] = []
        ends = [asyncio.Event() for _ in range(8)]

        async def turn(number: int) -> None:
            async with pool.lease():
                order.append(number)
                await ends[number].wait()

        turns = [asyncio.create_task(turn(number)) for number in range(8)]
        await when(lambda: len(order) == 2)
        assert order == [0, 1]
        turns[3].cancel()
        for number in (1, 2, 0, 4, 5, 6, 7):
            ends[number].set()
            await turns[number]
        assert order == [0, 1, 2, 4, 5, 6, 7]
        await pool.close()

    asyncio.run(main())


def test_a_place_that_was_given_to_someone_who_left_is_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        pool = Pool(faked(tmp_path), size=1, most_turns=1)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(pool.lease())
            waiting = asyncio.create_task(pool.lease().__aenter__())
            await asyncio.sleep(0)
        waiting.cancel()  # in the very moment in which the place became free
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        async with pool.lease():
            pass
        await pool.close()

    asyncio.run(main())


def test_a_process_that_has_had_its_threads_is_replaced_without_disturbing_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b"), says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream, most_threads=2) as pool:
                async with pool.lease() as slow:
                    channel = await begun(slow)
                    await until(channel, "item/agentMessage/delta")
                    async with pool.lease() as quick:
                        assert quick._process is slow._process
                        assert await answer(quick) == "Hi"
                    await settled(pool)
                    async with pool.lease() as quick:
                        assert quick._process is not slow._process
                        assert await answer(quick) == "Hi"
                    assert len(homes(tmp_path)) == 2
                    assert slow._process.ended is None
                    gate.open()
                    assert said(await heard(channel)) == "b"
                await settled(pool)
                assert not psutil.pid_exists(slow._process.pid)
                assert len(homes(tmp_path)) == 1

    asyncio.run(main())


def test_a_process_that_holds_too_much_memory_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream, most_resident=1) as pool:
                found = []
                for _ in range(3):
                    async with pool.lease() as lease:
                        assert await answer(lease) == "Hi"
                        found.append(lease._process.pid)
                    await settled(pool)
                    assert len(pids(pool)) == 1
                assert len(set(found)) == 3

    asyncio.run(main())


def test_a_process_that_died_is_replaced_before_anyone_asks(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    assert await answer(lease) == "Hi"
                [dead] = pids(pool)
                os.kill(dead, signal.SIGKILL)
                await when(lambda: dead not in pids(pool))
                await settled(pool)
                [alive] = pids(pool)
                assert alive != dead
                async with pool.lease() as lease:
                    assert lease._process.pid == alive
                    assert await answer(lease) == "Hi"
                assert len(homes(tmp_path)) == 1

    run(main())


def test_all_turns_of_a_dead_process_hear_of_it_and_those_of_another_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b")) as upstream:
            async with pool_at(tmp_path, upstream, size=2) as pool, AsyncExitStack() as stack:
                first = await stack.enter_async_context(pool.lease())
                second = await stack.enter_async_context(pool.lease())
                await settled(pool)
                third = await stack.enter_async_context(pool.lease())
                channels = [await begun(lease) for lease in (first, second, third)]
                for channel in channels:
                    await until(channel, "item/agentMessage/delta")
                os.kill(first._process.pid, signal.SIGKILL)
                for channel in channels[:2]:
                    with pytest.raises(CodexError):
                        await heard(channel)
                gate.open()
                assert said(await heard(channels[2])) == "b"

    asyncio.run(main())


def test_closing_ends_every_turn_and_every_process(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b")) as upstream:
            async with pool_at(tmp_path, upstream, most_turns=1) as pool:
                async with pool.lease() as lease:
                    channel = await begun(lease)
                    await until(channel, "item/agentMessage/delta")
                    queued = asyncio.create_task(pool.lease().__aenter__())
                    await asyncio.sleep(0)
                    process = psutil.Process(lease._process.pid)
                    await pool.close()
                    assert not process.is_running()
                    for waiting in (heard(channel), queued):
                        with pytest.raises(CodexError) as closed:
                            await waiting
                        assert closed.value.gone
                with pytest.raises(CodexError):
                    async with pool.lease():
                        pass

    run(main())


@pytest.mark.parametrize("state", ["surveying", "spawning"])
def test_closing_while_a_process_starts_leaves_nothing(tmp_path: Path, run: Run, state: str) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream, size=2) as pool:
                if state == "surveying":
                    pool._binary = None
                waiting = asyncio.create_task(pool.lease().__aenter__())
                await when(lambda: homes(tmp_path))
            with pytest.raises(CodexError):
                await waiting
        assert psutil.Process().children() == []

    run(main())
