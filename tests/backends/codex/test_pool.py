"""The process pool: leases in order of arrival, processes started and replaced in the background."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
import uvloop

from tests.backends.codex.app_server import (
    homes,
    pids,
    read_turn,
    run_turn,
    running_pool,
    settle,
    start_turn,
    turn_text,
    wait_for_message,
    wait_until,
)
from tests.backends.codex.fake_codex import fake_location
from tests.backends.codex.upstream import holds, says, texts
from tests.backends.http.pools import Run
from tests.upstream import Gate, Upstream
from toolrelay.backends.codex.errors import CodexError
from toolrelay.backends.codex.pool import ProcessPool


def test_processes_are_started_on_demand(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, size=2) as pool:
                await settle(pool)
                assert pids(pool) == []
                for _ in range(3):
                    async with pool.lease() as lease:
                        assert await run_turn(lease) == "Hi"
                await settle(pool)
                assert len(pids(pool)) == 1
                async with pool.lease() as one, pool.lease() as two:
                    await settle(pool)
                    async with pool.lease() as three:
                        assert one.process is two.process
                        assert three.process is not one.process
                        await settle(pool)
                        assert len(pids(pool)) == 2

    asyncio.run(main())


def test_fifty_concurrent_turns_all_succeed(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(*(says("answer ", "no. ", str(number)) for number in range(50))) as upstream:
            async with running_pool(tmp_path, upstream, size=2) as pool:

                async def turn(number: int) -> str:
                    async with pool.lease() as lease:
                        return await run_turn(lease, f"question {number}")

                answers = await asyncio.gather(*map(turn, range(50)))
                asked = [texts(received) for received in upstream.requests]
                assert sorted(asked) == sorted([f"question {number}"] for number in range(50))
                assert answers == [f"answer no. {asked.index([f'question {number}'])}" for number in range(50)]
                assert [pooled.turns for pooled in pool.processes] == [0, 0]
                assert [pooled.process.channels for pooled in pool.processes] == [{}, {}]
                await wait_until(lambda: not any(pooled.process._calls for pooled in pool.processes))

    uvloop.run(main())


def test_leases_are_granted_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path), size=1, max_turns=2)
        order: list[int] = []
        ends = [asyncio.Event() for _ in range(8)]

        async def turn(number: int) -> None:
            async with pool.lease():
                order.append(number)
                await ends[number].wait()

        turns = [asyncio.create_task(turn(number)) for number in range(8)]
        await wait_until(lambda: len(order) == 2)
        assert order == [0, 1]
        turns[3].cancel()
        for number in (1, 2, 0, 4, 5, 6, 7):
            ends[number].set()
            await turns[number]
        assert order == [0, 1, 2, 4, 5, 6, 7]
        await pool.close()

    asyncio.run(main())


def test_lease_granted_to_a_cancelled_waiter_is_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path), size=1, max_turns=1)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(pool.lease())
            waiting = asyncio.create_task(pool.lease().__aenter__())
            await asyncio.sleep(0)
        waiting.cancel()  # in the same iteration in which the lease is granted
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        async with pool.lease():
            pass
        await pool.close()

    asyncio.run(main())


def test_process_with_too_many_threads_is_replaced_after_its_turns(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b"), says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, max_threads=2) as pool:
                async with pool.lease() as slow:
                    channel = await start_turn(slow)
                    await wait_for_message(channel, "item/agentMessage/delta")
                    async with pool.lease() as quick:
                        assert quick.process is slow.process
                        assert await run_turn(quick) == "Hi"
                    await settle(pool)
                    async with pool.lease() as quick:
                        assert quick.process is not slow.process
                        assert await run_turn(quick) == "Hi"
                    assert len(homes(tmp_path)) == 2
                    assert slow.process.end_reason is None
                    gate.open()
                    assert turn_text(await read_turn(channel)) == "b"
                await settle(pool)
                assert not psutil.pid_exists(slow.process.pid)
                assert len(homes(tmp_path)) == 1

    asyncio.run(main())


def test_process_with_too_much_memory_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, max_resident_bytes=1) as pool:
                found = []
                for _ in range(3):
                    async with pool.lease() as lease:
                        assert await run_turn(lease) == "Hi"
                        found.append(lease.process.pid)
                    await settle(pool)
                    assert len(pids(pool)) == 1
                assert len(set(found)) == 3

    asyncio.run(main())


def test_killed_process_is_replaced_in_the_background(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    assert await run_turn(lease) == "Hi"
                [dead] = pids(pool)
                os.kill(dead, signal.SIGKILL)
                await wait_until(lambda: dead not in pids(pool))
                await settle(pool)
                [alive] = pids(pool)
                assert alive != dead
                async with pool.lease() as lease:
                    assert lease.process.pid == alive
                    assert await run_turn(lease) == "Hi"
                assert len(homes(tmp_path)) == 1

    run(main())


def test_killed_process_fails_only_its_own_turns(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b")) as upstream:
            async with running_pool(tmp_path, upstream, size=2) as pool, AsyncExitStack() as stack:
                first = await stack.enter_async_context(pool.lease())
                second = await stack.enter_async_context(pool.lease())
                await settle(pool)
                third = await stack.enter_async_context(pool.lease())
                channels = [await start_turn(lease) for lease in (first, second, third)]
                for channel in channels:
                    await wait_for_message(channel, "item/agentMessage/delta")
                os.kill(first.process.pid, signal.SIGKILL)
                for channel in channels[:2]:
                    with pytest.raises(CodexError):
                        await read_turn(channel)
                gate.open()
                assert turn_text(await read_turn(channels[2])) == "b"

    asyncio.run(main())


def test_closing_ends_every_turn_and_every_process(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b")) as upstream:
            async with running_pool(tmp_path, upstream, max_turns=1) as pool:
                async with pool.lease() as lease:
                    channel = await start_turn(lease)
                    await wait_for_message(channel, "item/agentMessage/delta")
                    queued = asyncio.create_task(pool.lease().__aenter__())
                    await asyncio.sleep(0)
                    process = psutil.Process(lease.process.pid)
                    await pool.close()
                    assert not process.is_running()
                    for waiting in (read_turn(channel), queued):
                        with pytest.raises(CodexError) as closed:
                            await waiting
                        assert closed.value.is_gone
                with pytest.raises(CodexError):
                    async with pool.lease():
                        pass

    run(main())


@pytest.mark.parametrize("state", ["surveying", "spawning"])
def test_closing_while_a_process_starts_leaves_nothing(tmp_path: Path, run: Run, state: str) -> None:
    before = psutil.Process().children()

    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, size=2) as pool:
                if state == "surveying":
                    pool._binary = None
                waiting = asyncio.create_task(pool.lease().__aenter__())
                await wait_until(lambda: homes(tmp_path))
            with pytest.raises(CodexError):
                await waiting
        assert psutil.Process().children() == before

    run(main())
