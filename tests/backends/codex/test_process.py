"""The real app-server as a process: what comes through it, what it survives, and that nothing of it stays."""

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

from tests.backends.codex.stage import (
    KEY,
    answer,
    begun,
    heard,
    homes,
    place_at,
    pool_at,
    said,
    surveyed,
    thread,
    thread_params,
    tool,
    turn_params,
    until,
)
from tests.backends.codex.upstream import Call, asked, call, calls, completed, head, holds, says, texts
from tests.backends.http.pools import Run
from tests.upstream import Gate, Upstream, seen
from toolrelay import log
from toolrelay.backends.codex.home import Home, remove_stale_homes
from toolrelay.backends.codex.process import Channel, CodexError, Process
from toolrelay.core.json import Json

MEBIBYTE = 1024 * 1024


def test_a_turn_comes_through(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with Upstream(says("Hel", "lo")) as upstream:
            async with pool_at(tmp_path, upstream) as pool, pool.lease() as lease:
                assert await answer(lease) == "Hello"
            assert upstream.requests[0].headers["authorization"] == f"Bearer {KEY}"

    run(main())


def test_a_provider_without_a_key_is_sent_none(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream, api_key="") as pool, pool.lease() as lease:
                assert await answer(lease) == "Hi"
            assert "authorization" not in upstream.requests[0].headers

    asyncio.run(main())


async def to_the_end(channel: Channel) -> None:
    """Of what comes before the end there may be more: a notification is on its way when the process dies."""
    while True:
        await channel.next()


@pytest.mark.parametrize("state", ["idle", "call", "stream", "tool"])
def test_whoever_waits_hears_at_once_that_the_process_was_killed(tmp_path: Path, run: Run, state: str) -> None:
    async def main() -> None:
        gate = Gate()
        script = calls(Call("add")) if state == "tool" else holds(gate, "a", "b")
        with Upstream(script, says("Again")) as upstream:
            async with pool_at(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    channel = await thread(lease, dynamicTools=[tool("add")])
                    waiting: list[asyncio.Task[Any]] = []
                    if state == "call":  # it cannot answer while it is stopped
                        os.kill(lease._process.pid, signal.SIGSTOP)
                        waiting += [asyncio.create_task(lease.call("thread/loaded/list", {})) for _ in range(3)]
                        await asyncio.sleep(0)
                    elif state != "idle":
                        await lease.call("turn/start", turn_params(channel.thread_id))
                        await until(channel, "item/agentMessage/delta" if state == "stream" else "item/tool/call")
                    waiting.append(asyncio.create_task(to_the_end(channel)))
                    await asyncio.sleep(0)
                    os.kill(lease._process.pid, signal.SIGKILL)
                    for error in await asyncio.gather(*waiting, return_exceptions=True):
                        assert isinstance(error, CodexError)
                        assert error.gone
                        assert "app-server has ended" in error.message
                    with pytest.raises(CodexError) as refused:
                        await lease.call("thread/loaded/list", {})
                    assert refused.value.gone
                gate.open()
                upstream._scripts[:] = [says("Again")]
                async with pool.lease() as lease:
                    assert await answer(lease) == "Again"

    run(main())


def test_a_message_is_not_lost_if_listening_begins_late(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("a", "b", "c")) as upstream:
            async with pool_at(tmp_path, upstream) as pool, pool.lease() as lease:
                found: Any = await lease.call("thread/start", thread_params(lease))
                thread_id = found["thread"]["id"]
                await lease.call("turn/start", turn_params(thread_id))
                other = await begun(lease)
                await heard(other)
                assert said(await heard(lease.listen(thread_id))) == "abc"

    asyncio.run(main())


def test_an_answer_of_five_megabytes_is_one_message(tmp_path: Path) -> None:
    text = "0123456789abcdef" * (5 * MEBIBYTE // 16)

    async def main() -> None:
        with Upstream(says(text)) as upstream:
            async with pool_at(tmp_path, upstream) as pool, pool.lease() as lease:
                messages = await heard(await begun(lease))
                [delta] = [message for message in messages if message.method == "item/agentMessage/delta"]
                assert delta.params["delta"] == text

    asyncio.run(main())


def test_what_utf8_cannot_say_is_never_sent(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream) as pool, pool.lease() as lease:
                assert await answer(lease, "a\ud800b \U0001f600 é\x00\x7f\u2028") == "Hi"
                assert texts(upstream.requests[0]) == ["a\ufffdb \U0001f600 é\x00\x7f\u2028"]

    asyncio.run(main())


@pytest.mark.parametrize("size", [262144, 1000])
def test_a_tool_result_of_the_allowed_size_is_not_cut(tmp_path: Path, size: int) -> None:
    text = "é" * (size // 2)

    async def main() -> None:
        with Upstream(calls(Call("add")), says("Done")) as upstream:
            async with pool_at(tmp_path, upstream, most_result_bytes=size) as pool, pool.lease() as lease:
                channel = await begun(lease, dynamicTools=[tool("add")])
                request = await until(channel, "item/tool/call")
                assert request.id == 0
                channel.answer(request, {"contentItems": [{"type": "inputText", "text": text}], "success": True})
                assert said(await heard(channel)) == "Done"
                *_, output = asked(upstream.requests[1])["input"]
                assert output["output"] == text

                channel = await thread(lease)
                history: list[Json] = [
                    {"type": "function_call", "name": "add", "arguments": "{}", "call_id": "call_1"},
                    {"type": "function_call_output", "call_id": "call_1", "output": text},
                ]
                await lease.call("thread/inject_items", {"threadId": channel.thread_id, "items": history})
                await lease.call("turn/start", {"threadId": channel.thread_id, "input": []})
                assert said(await heard(channel)) == "Done"
                *_, output = asked(upstream.requests[2])["input"]
                assert output["output"] == text

    asyncio.run(main())


def test_codex_never_shortens_a_long_conversation_by_itself(tmp_path: Path) -> None:
    used = 2_000_000  # more tokens than the largest window in Codex's own catalog
    first = head() + call(Call("no_such_tool")) + completed(input_tokens=used)

    async def main() -> None:
        with Upstream(first, says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream, model="gpt-5.5") as pool, pool.lease() as lease:
                assert await answer(lease, "Long.", model="gpt-5.5", baseInstructions="") == "Hi"
            assert [texts(request) for request in upstream.requests] == [["Long."], ["Long."]]

    asyncio.run(main())


def test_a_lease_that_ends_interrupts_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream(holds(gate, "a", "b"), says("Other")) as upstream:
            async with pool_at(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    await until(await begun(lease), "item/agentMessage/delta")
                await seen(upstream.links[0].left)
                async with pool.lease() as lease:
                    assert await answer(lease) == "Other"

    asyncio.run(main())


def test_a_turn_whose_start_nobody_waits_for_any_more_is_interrupted(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        with Upstream((gate, *says("Late"))) as upstream:
            async with pool_at(tmp_path, upstream) as pool:
                async with pool.lease() as lease:
                    channel = await thread(lease)
                    starting = asyncio.create_task(lease.call("turn/start", turn_params(channel.thread_id)))
                    await asyncio.sleep(0)
                    starting.cancel()
                    await asyncio.gather(starting, return_exceptions=True)
                async with pool.lease() as lease:  # the same process still answers, and has no turn that runs
                    found: Any = await lease.call("thread/read", {"threadId": channel.thread_id})
                    while found["thread"]["status"]["type"] == "active":
                        found = await lease.call("thread/read", {"threadId": channel.thread_id})
                    assert found["thread"]["status"]["type"] == "idle"

    asyncio.run(main())


def test_a_call_on_a_closed_channel_is_refused_and_the_model_is_not_asked_again(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(calls(Call("add"), Call("add"))) as upstream:
            async with pool_at(tmp_path, upstream) as pool, pool.lease() as lease:
                channel = await begun(lease, dynamicTools=[tool("add")])
                request = await until(channel, "item/tool/call")
                channel.close()
                channel.answer(request, {"contentItems": [], "success": True})  # too late, and does no harm
                with pytest.raises(CodexError):
                    await channel.next()
                found: Any = {"thread": {"status": {"type": "active"}}}
                while found["thread"]["status"]["type"] == "active":
                    found = await lease.call("thread/read", {"threadId": channel.thread_id})
            assert len(upstream.requests) == 1

    asyncio.run(main())


def test_a_refusal_of_the_app_server_is_an_error_with_its_code(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with pool_at(tmp_path, upstream) as pool, pool.lease() as lease:
                with pytest.raises(CodexError) as refused:
                    await lease.call("turn/start", turn_params("no-such-thread"))
                assert refused.value.code == -32600
                assert not refused.value.gone
                assert await answer(lease) == "Hi"

    asyncio.run(main())


def test_a_configuration_that_codex_cannot_read_keeps_it_from_starting(tmp_path: Path) -> None:
    """Without --strict-config it would run with its own defaults, all tools on."""

    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            place = place_at(tmp_path, upstream)
            home = Home(place.folder)
            home.furnish(place, await asyncio.to_thread(surveyed))
            with (home.codex / "config.toml").open("a") as file:
                file.write("[shell]\nbogus = 1\n")
            with pytest.raises(CodexError, match=r"did not start: .*unknown configuration field `shell") as failed:
                await Process(place, home).start()
            assert failed.value.gone
            assert "backtrace" not in failed.value.message
            assert not home.folder.exists()

    asyncio.run(main())


PROGRAM = """
import asyncio, sys, msgspec
from toolrelay.backends.codex.home import CodexLocation
from toolrelay.backends.codex.pool import Pool

async def main():
    pool = Pool(msgspec.json.decode(sys.argv[1], type=CodexLocation), size=1)
    async with pool.lease() as lease:
        found = await lease.call("thread/start", {"model": "scripted", "ephemeral": True, "environments": []})
        thread = found["thread"]["id"]
        await lease.call("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "x", "text_elements": []}]})
        print(lease._process.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_gateway_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    gate = Gate()
    with Upstream(holds(gate, "a", "b")) as upstream:
        place = msgspec.json.encode(place_at(tmp_path, upstream)).decode()
        gateway = subprocess.Popen([sys.executable, "-c", PROGRAM, place], stdout=subprocess.PIPE, text=True)
        assert gateway.stdout is not None
        with gateway.stdout:
            codex = psutil.Process(int(gateway.stdout.readline()))
        gate.reached.result(30)
        gateway.kill()
        gateway.wait()
        codex.wait(timeout=10)
        upstream.links[0].left.result(30)
    assert len(homes(tmp_path)) == 1
    remove_stale_homes(str(tmp_path))
    assert homes(tmp_path) == []


def test_its_log_is_told_without_what_it_says(tmp_path: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        with Upstream(says("Hi")) as upstream:
            place = place_at(tmp_path, upstream)
            home = Home(place.folder)
            home.furnish(place, await asyncio.to_thread(surveyed))
            process = Process(place, home)
            with log.captured() as lines:
                await process.start()
                process.send(b"{not json, but a secret}\n")
                await process.call("thread/loaded/list", {}, within=30)
                await process.close()
            return lines

    lines = [line for line in asyncio.run(main()) if line["event"] == "codex_said"]
    assert "secret" not in str(lines)
    assert "ERROR codex_app_server_transport::transport" in [line["what"] for line in lines]
