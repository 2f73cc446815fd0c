"""The real app-server as a process: turns, kills, limits, and cleanup."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.backends.codex.app_server import (
    KEY,
    homes,
    location_in,
    probed_binary,
    read_turn,
    run_turn,
    running_pool,
    start_thread,
    start_turn,
    thread_params,
    tool_declaration,
    turn_params,
    turn_text,
    wait_for_message,
)
from tests.backends.codex.upstream import Call, body_of, call_frames, calls, completed, head, holds, says, texts
from tests.backends.http.pools import Run
from tests.upstream import Gate, Upstream, result_of
from toolrelay import log
from toolrelay.backends.codex.errors import CodexError
from toolrelay.backends.codex.home import CodexHome, remove_stale_homes
from toolrelay.backends.codex.process import AppServerProcess, Channel
from toolrelay.core.json import Json

MEBIBYTE = 1024 * 1024


def test_turn_returns_its_text(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with Upstream(says("Hel", "lo")) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                assert await run_turn(lease) == "Hello"
            assert upstream.requests[0].headers["authorization"] == f"Bearer {KEY}"

    run(main())


def test_provider_without_a_key_gets_no_authorization(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, api_key="") as pool, pool.lease() as lease:
                assert await run_turn(lease) == "Hi"
            assert "authorization" not in upstream.requests[0].headers

    asyncio.run(main())


async def to_the_end(channel: Channel) -> None:
    """Read until the error; some notifications may arrive before it."""
    while True:
        await channel.next()


@pytest.mark.parametrize("state", ["idle", "call", "stream", "tool"])
def test_killed_process_fails_all_waiters_at_once(tmp_path: Path, run: Run, state: str) -> None:
    async def main() -> None:
        gate = Gate()
        script = calls(Call("add")) if state == "tool" else holds(gate, "a", "b")
        with Upstream(script, says("Again")) as upstream:
            async with running_pool(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    channel = await start_thread(lease, dynamicTools=[tool_declaration("add")])
                    waiting: list[asyncio.Task[Any]] = []
                    if state == "call":  # a stopped process cannot answer
                        os.kill(lease.process.pid, signal.SIGSTOP)
                        waiting += [asyncio.create_task(lease.call("thread/loaded/list", {})) for _ in range(3)]
                        await asyncio.sleep(0)
                    elif state != "idle":
                        await lease.call("turn/start", turn_params(channel.thread_id))
                        await wait_for_message(channel, "item/agentMessage/delta" if state == "stream" else "item/tool/call")
                    waiting.append(asyncio.create_task(to_the_end(channel)))
                    await asyncio.sleep(0)
                    os.kill(lease.process.pid, signal.SIGKILL)
                    for error in await asyncio.gather(*waiting, return_exceptions=True):
                        assert isinstance(error, CodexError)
                        assert error.is_gone
                        assert "app-server has ended" in error.message
                    with pytest.raises(CodexError) as refused:
                        await lease.call("thread/loaded/list", {})
                    assert refused.value.is_gone
                gate.open()
                upstream._scripts[:] = [says("Again")]
                async with pool.lease() as lease:
                    assert await run_turn(lease) == "Again"

    run(main())


def test_channel_opened_late_has_all_messages(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("a", "b", "c")) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                found: Any = await lease.call("thread/start", thread_params(lease))
                thread_id = found["thread"]["id"]
                await lease.call("turn/start", turn_params(thread_id))
                other = await start_turn(lease)
                await read_turn(other)
                assert turn_text(await read_turn(lease.open_channel(thread_id))) == "abc"

    asyncio.run(main())


def test_delta_of_five_megabytes_is_one_message(tmp_path: Path) -> None:
    text = "0123456789abcdef" * (5 * MEBIBYTE // 16)

    async def main() -> None:
        with Upstream(says(text)) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                messages = await read_turn(await start_turn(lease))
                [delta] = [message for message in messages if message.method == "item/agentMessage/delta"]
                assert delta.params["delta"] == text

    asyncio.run(main())


def test_lone_surrogate_does_not_break_the_process(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                assert await run_turn(lease, "a\ud800b \U0001f600 é\x00\x7f\u2028") == "Hi"
                assert texts(upstream.requests[0]) == ["a\ufffdb \U0001f600 é\x00\x7f\u2028"]

    asyncio.run(main())


@pytest.mark.parametrize("size", [262144, 1000])
def test_tool_result_of_allowed_size_is_not_truncated(tmp_path: Path, size: int) -> None:
    text = "é" * (size // 2)

    async def main() -> None:
        with Upstream(calls(Call("add")), says("Done")) as upstream:
            async with running_pool(tmp_path, upstream, max_result_bytes=size) as pool, pool.lease() as lease:
                channel = await start_turn(lease, dynamicTools=[tool_declaration("add")])
                request = await wait_for_message(channel, "item/tool/call")
                assert request.id == 0
                channel.answer(request, {"contentItems": [{"type": "inputText", "text": text}], "success": True})
                assert turn_text(await read_turn(channel)) == "Done"
                *_, output = body_of(upstream.requests[1])["input"]
                assert output["output"] == text

                channel = await start_thread(lease)
                history: list[Json] = [
                    {"type": "function_call", "name": "add", "arguments": "{}", "call_id": "call_1"},
                    {"type": "function_call_output", "call_id": "call_1", "output": text},
                ]
                await lease.call("thread/inject_items", {"threadId": channel.thread_id, "items": history})
                await lease.call("turn/start", {"threadId": channel.thread_id, "input": []})
                assert turn_text(await read_turn(channel)) == "Done"
                *_, output = body_of(upstream.requests[2])["input"]
                assert output["output"] == text

    asyncio.run(main())


def test_long_conversation_is_not_compacted(tmp_path: Path) -> None:
    used = 2_000_000  # more tokens than the largest window in Codex's own catalog
    first = head() + call_frames(Call("no_such_tool")) + completed(input_tokens=used)

    async def main() -> None:
        with Upstream(first, says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, model="gpt-5.5") as pool, pool.lease() as lease:
                assert await run_turn(lease, "Long.", model="gpt-5.5", baseInstructions="") == "Hi"
            assert [texts(request) for request in upstream.requests] == [["Long."], ["Long."]]

    asyncio.run(main())


def test_end_of_lease_interrupts_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b"), says("Other")) as upstream:
            async with running_pool(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    await wait_for_message(await start_turn(lease), "item/agentMessage/delta")
                await result_of(upstream.connections[0].closed)
                async with pool.lease() as lease:
                    assert await run_turn(lease) == "Other"

    asyncio.run(main())


def test_turn_with_cancelled_start_is_interrupted(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream((gate, *says("Late"))) as upstream:
            async with running_pool(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    channel = await start_thread(lease)
                    starting = asyncio.create_task(lease.call("turn/start", turn_params(channel.thread_id)))
                    await asyncio.sleep(0)
                    starting.cancel()
                    await asyncio.gather(starting, return_exceptions=True)
                async with pool.lease() as lease:  # the same process still answers and has no running turn
                    found: Any = await lease.call("thread/read", {"threadId": channel.thread_id})
                    while found["thread"]["status"]["type"] == "active":
                        found = await lease.call("thread/read", {"threadId": channel.thread_id})
                    assert found["thread"]["status"]["type"] == "idle"

    asyncio.run(main())


def test_closed_channel_refuses_the_call_and_ends_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(calls(Call("add"), Call("add"))) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                channel = await start_turn(lease, dynamicTools=[tool_declaration("add")])
                request = await wait_for_message(channel, "item/tool/call")
                channel.close()
                channel.answer(request, {"contentItems": [], "success": True})  # too late, ignored
                with pytest.raises(CodexError):
                    await channel.next()
                found: Any = {"thread": {"status": {"type": "active"}}}
                while found["thread"]["status"]["type"] == "active":
                    found = await lease.call("thread/read", {"threadId": channel.thread_id})
            assert len(upstream.requests) == 1

    asyncio.run(main())


def test_app_server_error_has_its_code(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                with pytest.raises(CodexError) as refused:
                    await lease.call("turn/start", turn_params("no-such-thread"))
                assert refused.value.code == -32600
                assert not refused.value.is_gone
                assert await run_turn(lease) == "Hi"

    asyncio.run(main())


def test_invalid_configuration_prevents_the_start(tmp_path: Path) -> None:
    """Without --strict-config it would run with its own defaults, all tools on."""

    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            location = location_in(tmp_path, upstream)
            home = CodexHome(location.folder)
            home.write_config(location, await asyncio.to_thread(probed_binary))
            with (home.codex_dir / "config.toml").open("a") as file:
                file.write("[shell]\nbogus = 1\n")
            with pytest.raises(CodexError, match=r"did not start: .*unknown configuration field `shell") as failed:
                await AppServerProcess(location, home).start()
            assert failed.value.is_gone
            assert "backtrace" not in failed.value.message
            assert not home.folder.exists()

    asyncio.run(main())


PROGRAM = """
import asyncio, sys, msgspec
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.backends.codex.pool import ProcessPool

async def main():
    pool = ProcessPool(msgspec.json.decode(sys.argv[1], type=CodexLocation), size=1)
    async with pool.lease() as lease:
        found = await lease.call("thread/start", {"model": "scripted", "ephemeral": True, "environments": []})
        thread = found["thread"]["id"]
        await lease.call("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "x", "text_elements": []}]})
        print(lease.process.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_killed_gateway_leaves_no_process_behind(tmp_path: Path) -> None:
    gate = Gate()
    with Upstream(holds(gate, "a", "b")) as upstream:
        location = msgspec.json.encode(location_in(tmp_path, upstream)).decode()
        gateway = subprocess.Popen([sys.executable, "-c", PROGRAM, location], stdout=subprocess.PIPE, text=True)
        assert gateway.stdout is not None
        with gateway.stdout:
            codex = psutil.Process(int(gateway.stdout.readline()))
        gate.reached.result(30)
        gateway.kill()
        gateway.wait()
        codex.wait(timeout=60)
        upstream.connections[0].closed.result(30)
    assert len(homes(tmp_path)) == 1
    remove_stale_homes(str(tmp_path))
    assert homes(tmp_path) == []


def test_stderr_is_logged_without_its_text(tmp_path: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        with Upstream(says("Hi")) as upstream:
            location = location_in(tmp_path, upstream)
            home = CodexHome(location.folder)
            home.write_config(location, await asyncio.to_thread(probed_binary))
            process = AppServerProcess(location, home)
            with log.captured() as lines:
                await process.start()
                process.send(b"{not json, but a secret}\n")
                await process.call("thread/loaded/list", {}, within=30)
                await process.close()
            return lines

    lines = [line for line in asyncio.run(main()) if line["event"] == "codex_said"]
    assert "secret" not in str(lines)
    assert "ERROR codex_app_server_transport::transport" in [line["what"] for line in lines]
