"""The pool: turns get a place in the order in which they came, and processes come and go without anyone noticing."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from tests.backends.codex_stage import answer, begun, heard, homes, pool_at, said, until, when
from tests.backends.codex_upstream import holds, says, texts
from tests.backends.fake_codex import fake_codex
from tests.backends.pools import Run
from tests.upstream import Gate, Upstream
from toolrelay import log
from toolrelay.backends._codex_home import Place
from toolrelay.backends._codex_pool import Lease, Pool
from toolrelay.backends._codex_process import CodexError
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError


def faked(folder: Path, behaviour: str = "pass", *, before: str = "", after: str = "", version: str = "0.166.0") -> Place:
    folder.mkdir(exist_ok=True)
    binary = fake_codex(folder, behaviour, before=before, after=after, version=version)
    return Place(folder=str(folder / "homes"), binary=binary, model="m", base_url="http://127.0.0.1:9/v1")


def pids(pool: Pool) -> list[int]:
    return [seat.process.pid for seat in pool._seats]


async def settled(pool: Pool) -> None:
    """Whatever the pool does in the background is done."""
    while tasks := pool._starts | pool._farewells:
        await asyncio.gather(*tasks, return_exceptions=True)


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


def test_an_overloaded_process_is_asked_again(tmp_path: Path) -> None:
    behaviour = """
        if count < 4:
            say({"id": id, "error": {"code": -32001, "message": "Server overloaded; retry later."}})
        else:
            say({"id": id, "result": {"tries": count}})
    """

    async def main() -> None:
        pool = Pool(faked(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            assert await lease.call("thread/start", {}) == {"tries": 4}
        await pool.close()

    asyncio.run(main())


def test_an_interrupt_is_repeated_until_it_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends._codex_process.Process.interrupt.__defaults__", ((0.0, 0.0, 0.0),))
    behaviour = """
        if method == "thread/start":
            say({"id": id, "result": {"thread": {"id": "t"}}})
        elif method == "turn/start":
            say({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u"}}})
            say({"id": id, "result": {"turn": {"id": "u"}}})
        elif method == "turn/interrupt" and count < 5:
            say({"id": id, "error": {"code": -32001, "message": "Server overloaded; retry later."}})
        elif method == "turn/interrupt":
            heard = params
            say({"id": id, "result": {}})
        else:
            say({"id": id, "result": {"heard": globals().get("heard")}})
    """

    async def main() -> None:
        pool = Pool(faked(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            await lease.call("thread/start", {})
            await lease.call("turn/start", {"threadId": "t"})
            await lease.listen("t").next()
        process = lease._process
        await when(lambda: not process._calls)
        found: JsonObject = {"heard": None}
        while not found["heard"]:
            found = await process.call("anything", {}, within=30)
        assert found["heard"] == {"threadId": "t", "turnId": "u"}
        await pool.close()

    asyncio.run(main())


def test_a_turn_that_was_left_before_its_first_message_is_interrupted(tmp_path: Path) -> None:  # bug 44
    behaviour = """
        if method == "thread/start":
            say({"id": id, "result": {"thread": {"id": "t"}}})
        elif method == "turn/start":
            say({"id": id, "result": {"turn": {"id": "u"}}})
        elif method == "turn/interrupt":
            heard = params
            say({"id": id, "result": {}})
        else:
            say({"id": id, "result": {"heard": globals().get("heard")}})
    """

    async def main() -> None:
        pool = Pool(faked(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            await lease.call("thread/start", {})
            await lease.call("turn/start", {"threadId": "t"})
        found = await lease._process.call("anything", {}, within=30)
        assert found["heard"] == {"threadId": "t", "turnId": "u"}
        await pool.close()

    asyncio.run(main())


def test_one_that_stays_overloaded_is_an_error_with_that_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends._codex_process.BACKOFF", (0.0, 0.0))
    behaviour = 'say({"id": id, "error": {"code": -32001, "message": f"Overloaded {count}"}})'

    async def main() -> None:
        pool = Pool(faked(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            with pytest.raises(CodexError, match="Overloaded 3") as overloaded:
                await lease.call("thread/start", {})
            assert overloaded.value.code == -32001
        await pool.close()

    asyncio.run(main())


def test_a_process_that_does_not_answer_in_time_gets_no_more_turns(tmp_path: Path) -> None:
    async def main() -> None:
        pool = Pool(faked(tmp_path), size=1)
        async with pool.lease() as lease:
            with pytest.raises(CodexError, match=r"did not answer thread/start within 0.05 seconds") as late:
                await lease.call("thread/start", {}, within=0.05)
            assert not late.value.gone
            silent = lease._process
        await settled(pool)
        async with pool.lease() as lease:
            assert lease._process is not silent
        assert not psutil.pid_exists(silent.pid)
        await pool.close()

    asyncio.run(main())


def test_one_that_does_not_leave_when_it_is_told_to_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends._codex_process.LEAVE_SECONDS", 0.05)
    before = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nchild = os.fork()"
    place = faked(tmp_path, before=before, after="time.sleep(1000)")

    async def main() -> None:
        pool = Pool(place, size=1)
        async with pool.lease() as lease:
            process = psutil.Process(lease._process.pid)
            family = [process, *process.children()]
        await pool.close()
        assert len(family) == 2
        psutil.wait_procs(family, timeout=30)
        assert [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []

    asyncio.run(main())


def test_lines_that_are_no_messages_are_told_and_passed_over(tmp_path: Path) -> None:
    behaviour = 'sys.stdout.write("{garbage\\n\\n[]\\n"); say({"id": 99, "result": {}}); say({"id": id, "result": {"fine": 1}})'

    async def main() -> list[dict[str, Any]]:
        pool = Pool(faked(tmp_path, behaviour), size=1)
        with log.captured() as lines:
            async with pool.lease() as lease:
                assert await lease.call("thread/start", {}) == {"fine": 1}
        await pool.close()
        return lines

    assert [line["bytes"] for line in asyncio.run(main()) if line["event"] == "codex_line_malformed"] == [8, 2]


def test_a_request_of_no_thread_that_anyone_listens_to_is_refused_at_once(tmp_path: Path) -> None:
    behaviour = """
        say({"id": 0, "method": "item/fileChange/requestApproval", "params": {"threadId": "other"}})
        answer = json.loads(sys.stdin.readline())
        say({"id": "b", "method": "attestation/generate"})
        say({"id": id, "result": {"first": answer, "second": json.loads(sys.stdin.readline())}})
    """

    async def main() -> None:
        pool = Pool(faked(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            found: Any = await lease.call("thread/start", {})
        assert found["first"] == {"id": 0, "result": {"decision": "decline"}}
        assert found["second"]["id"] == "b"
        assert found["second"]["error"]["code"] == -32601
        await pool.close()

    asyncio.run(main())


def test_one_that_cannot_start_fails_everyone_who_waits_and_is_tried_again_by_the_next(tmp_path: Path) -> None:
    marker = tmp_path / "works"
    before = f"if not os.path.exists({str(marker)!r}):\n    sys.exit('Error: out of order\\n\\nStack backtrace: 0')"

    async def main() -> None:
        pool = Pool(faked(tmp_path, before=before), size=1)
        waiting = [asyncio.create_task(pool.lease().__aenter__()) for _ in range(3)]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, CodexError)
            assert error.message == "Codex did not start: Error: out of order"
            assert error.gone
        assert homes(tmp_path / "homes") == []
        marker.touch()
        async with pool.lease() as lease:
            assert isinstance(lease, Lease)
        await pool.close()

    asyncio.run(main())


def test_one_that_dies_before_it_served_anyone_is_not_started_over_and_over(tmp_path: Path) -> None:
    async def main() -> None:
        pool = Pool(faked(tmp_path), size=2)
        async with pool.lease(), pool.lease():
            await settled(pool)
            idle = next(seat for seat in pool._seats if not seat.turns)
            os.kill(idle.process.pid, signal.SIGKILL)
            await when(lambda: idle not in pool._seats)
            await settled(pool)
            assert len(pids(pool)) == 1
        await pool.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("version", "said_of_it"),
    [
        ("0.162.9", r"Codex 0\.162\.9 is too old; this version of Toolrelay was tested with 0\.163 to 0\.166"),
        ("x", "does not look like Codex"),
    ],
)
def test_a_binary_that_is_of_no_use_is_a_fault_of_the_configuration(tmp_path: Path, version: str, said_of_it: str) -> None:
    async def main() -> None:
        pool = Pool(faked(tmp_path, version=version), size=1)
        with pytest.raises(ConfigurationError, match=said_of_it):
            async with pool.lease():
                pass
        await pool.close()

    asyncio.run(main())
