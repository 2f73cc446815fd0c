"""The process pool with a process that is overloaded, silent, stubborn, malformed or unable to start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.backends.codex.app_server import homes, pids, settle, wait_until
from tests.backends.codex.fake_codex import fake_location
from toolrelay import log
from toolrelay.backends.codex.errors import CodexError
from toolrelay.backends.codex.pool import Lease, ProcessPool
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError


def test_overloaded_process_is_retried(tmp_path: Path) -> None:
    behaviour = """
        if count < 4:
            say({"id": id, "error": {"code": -32001, "message": "Server overloaded; retry later."}})
        else:
            say({"id": id, "result": {"tries": count}})
    """

    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            assert await lease.call("thread/start", {}) == {"tries": 4}
        await pool.close()

    asyncio.run(main())


def test_interrupt_is_retried_while_overloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends.codex.process.AppServerProcess.interrupt.__defaults__", ((0.0, 0.0, 0.0),))
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
        pool = ProcessPool(fake_location(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            await lease.call("thread/start", {})
            await lease.call("turn/start", {"threadId": "t"})
            await lease.open_channel("t").next()
        process = lease.process
        await wait_until(lambda: not process._calls)
        found: JsonObject = {"heard": None}
        while not found["heard"]:
            found = await process.call("anything", {}, within=30)
        assert found["heard"] == {"threadId": "t", "turnId": "u"}
        await pool.close()

    asyncio.run(main())


def test_turn_is_interrupted_even_before_its_first_message(tmp_path: Path) -> None:  # bug 44
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
        pool = ProcessPool(fake_location(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            await lease.call("thread/start", {})
            await lease.call("turn/start", {"threadId": "t"})
        found = await lease.process.call("anything", {}, within=30)
        assert found["heard"] == {"threadId": "t", "turnId": "u"}
        await pool.close()

    asyncio.run(main())


def test_permanent_overload_is_an_error_with_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends.codex.process.RETRY_DELAYS", (0.0, 0.0))
    behaviour = 'say({"id": id, "error": {"code": -32001, "message": f"Overloaded {count}"}})'

    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            with pytest.raises(CodexError, match="Overloaded 3") as overloaded:
                await lease.call("thread/start", {})
            assert overloaded.value.code == -32001
        await pool.close()

    asyncio.run(main())


def test_unresponsive_process_gets_no_more_turns(tmp_path: Path) -> None:
    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path), size=1)
        async with pool.lease() as lease:
            with pytest.raises(CodexError, match=r"did not answer thread/start within 0.05 seconds") as late:
                await lease.call("thread/start", {}, within=0.05)
            assert not late.value.is_gone
            silent = lease.process
        await settle(pool)
        async with pool.lease() as lease:
            assert lease.process is not silent
        assert not psutil.pid_exists(silent.pid)
        await pool.close()

    asyncio.run(main())


def test_process_that_does_not_exit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolrelay.backends.codex.process.EXIT_SECONDS", 0.05)
    before = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nchild = os.fork()"
    location = fake_location(tmp_path, before=before, after="time.sleep(1000)")

    async def main() -> None:
        pool = ProcessPool(location, size=1)
        async with pool.lease() as lease:
            process = psutil.Process(lease.process.pid)
            family = [process, *process.children()]
        await pool.close()
        assert len(family) == 2
        psutil.wait_procs(family, timeout=30)
        assert [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []

    asyncio.run(main())


def test_malformed_lines_are_logged_and_skipped(tmp_path: Path) -> None:
    behaviour = 'sys.stdout.write("{garbage\\n\\n[]\\n"); say({"id": 99, "result": {}}); say({"id": id, "result": {"fine": 1}})'

    async def main() -> list[dict[str, Any]]:
        pool = ProcessPool(fake_location(tmp_path, behaviour), size=1)
        with log.captured() as lines:
            async with pool.lease() as lease:
                assert await lease.call("thread/start", {}) == {"fine": 1}
        await pool.close()
        return lines

    assert [line["bytes"] for line in asyncio.run(main()) if line["event"] == "codex_line_malformed"] == [8, 2]


def test_request_without_a_channel_is_refused(tmp_path: Path) -> None:
    behaviour = """
        say({"id": 0, "method": "item/fileChange/requestApproval", "params": {"threadId": "other"}})
        answer = json.loads(sys.stdin.readline())
        say({"id": "b", "method": "attestation/generate"})
        say({"id": id, "result": {"first": answer, "second": json.loads(sys.stdin.readline())}})
    """

    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path, behaviour), size=1)
        async with pool.lease() as lease:
            found: Any = await lease.call("thread/start", {})
        assert found["first"] == {"id": 0, "result": {"decision": "decline"}}
        assert found["second"]["id"] == "b"
        assert found["second"]["error"]["code"] == -32601
        await pool.close()

    asyncio.run(main())


def test_failed_start_fails_all_waiters_and_is_retried_by_the_next(tmp_path: Path) -> None:
    marker = tmp_path / "works"
    before = f"if not os.path.exists({str(marker)!r}):\n    sys.exit('Error: out of order\\n\\nStack backtrace: 0')"

    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path, before=before), size=1)
        waiting = [asyncio.create_task(pool.lease().__aenter__()) for _ in range(3)]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, CodexError)
            assert error.message == "Codex did not start: Error: out of order"
            assert error.is_gone
        assert homes(tmp_path / "homes") == []
        marker.touch()
        async with pool.lease() as lease:
            assert isinstance(lease, Lease)
        await pool.close()

    asyncio.run(main())


def test_process_that_never_served_is_not_restarted(tmp_path: Path) -> None:
    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path), size=2)
        async with pool.lease(), pool.lease():
            await settle(pool)
            idle = next(pooled for pooled in pool.processes if not pooled.turns)
            os.kill(idle.process.pid, signal.SIGKILL)
            await wait_until(lambda: idle not in pool.processes)
            await settle(pool)
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
def test_unusable_binary_is_a_configuration_error(tmp_path: Path, version: str, said_of_it: str) -> None:
    async def main() -> None:
        pool = ProcessPool(fake_location(tmp_path, version=version), size=1)
        with pytest.raises(ConfigurationError, match=said_of_it):
            async with pool.lease():
                pass
        await pool.close()

    asyncio.run(main())
