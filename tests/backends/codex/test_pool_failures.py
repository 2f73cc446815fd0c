"""The pool when a process misbehaves: overloaded, silent, stubborn, unreadable, or unable to start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.backends.codex.fake_codex import faked
from tests.backends.codex.stage import homes, pids, settled, when
from toolrelay import log
from toolrelay.backends.codex.pool import Lease, Pool
from toolrelay.backends.codex.process import CodexError
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError


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
    monkeypatch.setattr("toolrelay.backends.codex.process.Process.interrupt.__defaults__", ((0.0, 0.0, 0.0),))
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
    monkeypatch.setattr("toolrelay.backends.codex.process.BACKOFF", (0.0, 0.0))
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
    monkeypatch.setattr("toolrelay.backends.codex.process.LEAVE_SECONDS", 0.05)
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
