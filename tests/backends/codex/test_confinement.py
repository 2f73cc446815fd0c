"""Limits of the real app-server: no tool of its own, no connection but to its provider, a minimal environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.backends.codex.app_server import KEY, probed_binary, read_turn, run_turn, running_pool, start_turn, wait_for_message
from tests.backends.codex.upstream import Call, body_of, calls, holds, says, texts
from tests.upstream import Gate, Upstream


def test_unknown_model_gets_no_tools_and_no_instructions(tmp_path: Path) -> None:
    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                await run_turn(lease, "Only this.")
            body = body_of(upstream.requests[0])
            assert body["tools"] == []
            assert "instructions" not in body
            assert [item["role"] for item in body["input"]] == ["user"]
            assert texts(upstream.requests[0]) == ["Only this."]

    asyncio.run(main())


@pytest.mark.parametrize("model", ["gpt-6-astra", "gpt-5.5"])
def test_known_model_gets_no_tools(tmp_path: Path, model: str) -> None:
    assert model in [entry["slug"] for entry in probed_binary().catalog]

    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, model=model) as pool, pool.lease() as lease:
                await run_turn(lease, model=model, baseInstructions="")
            assert body_of(upstream.requests[0])["tools"] == []
            assert [item["role"] for item in body_of(upstream.requests[0])["input"]] == ["user"]

    asyncio.run(main())


PATCH = "*** Begin Patch\n*** Add File: {mark}\n+x\n*** End Patch\n"
BUILT_IN = (
    Call("exec_command", {"cmd": "touch {mark}"}),
    Call("shell", {"command": ["touch", "{mark}"]}),
    Call("shell_command", {"command": "touch {mark}"}),
    Call("container.exec", {"command": ["touch", "{mark}"]}),
    Call("write_stdin", {"session_id": 1, "chars": "touch {mark}"}),
    Call("exec", {"input": "await tools.exec_command('touch {mark}')"}, kind="custom_tool_call"),
    Call("apply_patch", {"input": PATCH}),
    Call("apply_patch", {"input": PATCH}, kind="custom_tool_call"),
    Call("view_image", {"path": "{mark}"}),
    Call("web_search", {"query": "x"}),
    Call("js_repl", {"input": "require('fs').writeFileSync('{mark}', 'x')"}, kind="custom_tool_call"),
    Call("update_plan", {"plan": []}),
    Call("spawn_agent", {"message": "touch {mark}"}),
    Call("request_permissions", {"permissions": {}}),
    Call("request_user_input", {"questions": []}),
    Call("tool_search", {"query": "x"}),
    Call("list_mcp_resources", {}),
    Call("wait", {"cell_id": "1"}),
    Call("sleep", {"seconds": 1}),
)
REFUSED = ("unsupported call: {name}", "unsupported custom tool call: {name}")


def test_builtin_calls_are_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    made = [_filled(call, str(mark)) for call in BUILT_IN]

    async def main() -> None:
        with Upstream(*(script for call in made for script in (calls(call), says("Done")))) as upstream:
            async with running_pool(tmp_path / "homes", upstream) as pool, pool.lease() as lease:
                for number, call in enumerate(made):
                    assert await run_turn(lease) == "Done"
                    *_, last = body_of(upstream.requests[2 * number + 1])["input"]
                    assert last["output"] in [text.format(name=call.name) for text in REFUSED]
                assert list(lease.process.home.work_dir.iterdir()) == []

    asyncio.run(main())
    assert not mark.exists()


def test_patching_model_has_no_other_tool_and_needs_approval(tmp_path: Path) -> None:
    mark, work = tmp_path / "mark", tmp_path / "work"
    work.mkdir()
    made = [_filled(call, str(mark)) for call in BUILT_IN if call.kind == "function_call" and call.name != "apply_patch"]
    patch = Call("apply_patch", {"input": PATCH.format(mark=mark)}, kind="custom_tool_call")
    rails: dict[str, Any] = {"cwd": str(work), "environments": None, "approvalPolicy": "on-request"}

    async def main() -> None:
        scripts = [script for call in [*made, patch, patch] for script in (calls(call), says("Done"))]
        with Upstream(*scripts) as upstream:
            async with running_pool(tmp_path / "homes", upstream, allows_patches=True) as pool, pool.lease() as lease:
                for number, call in enumerate(made):
                    assert await run_turn(lease, **rails) == "Done"
                    *_, last = body_of(upstream.requests[2 * number + 1])["input"]
                    assert last["output"] == f"unsupported call: {call.name}"
                assert [tool["name"] for tool in body_of(upstream.requests[0])["tools"]] == ["apply_patch"]
                assert not mark.exists()
                for decision, is_written in (("decline", False), ("accept", True)):
                    channel = await start_turn(lease, **rails)
                    request = await wait_for_message(channel, "item/fileChange/requestApproval")
                    assert not mark.exists()
                    channel.answer(request, {"decision": decision})
                    await read_turn(channel)
                    assert mark.exists() == is_written

    asyncio.run(main())


HOSTED = (
    Call("", {"action": {"type": "exec", "command": ["touch", "{mark}"]}, "status": "completed"}, kind="local_shell_call"),
    Call("", {"action": {"type": "search", "query": "x"}, "status": "completed"}, kind="web_search_call"),
    Call("", {"execution": "client", "arguments": {"query": "x"}, "status": "completed"}, kind="tool_search_call"),
    Call("", {"status": "completed", "result": "AAAA"}, kind="image_generation_call"),
)


@pytest.mark.parametrize("call", HOSTED, ids=lambda call: call.kind)
def test_hosted_tool_calls_run_nothing(tmp_path: Path, call: Call) -> None:
    mark = tmp_path / "mark"

    async def main() -> None:
        with Upstream(calls(_filled(call, str(mark))), says("")) as upstream:
            async with running_pool(tmp_path / "homes", upstream) as pool, pool.lease() as lease:
                await run_turn(lease)
                assert list(lease.process.home.work_dir.iterdir()) == []

    asyncio.run(main())
    assert not mark.exists()


def _walk(folder: str) -> list[tuple[str, list[str], list[str]]]:
    return list(os.walk(folder))


def _filled(call: Call, mark: str) -> Call:
    text = msgspec.json.encode(call.arguments).replace(b"{mark}", mark.encode())
    return Call(call.name, msgspec.json.decode(text), call.call_id, call.kind)


def test_process_connects_only_to_the_provider_and_starts_nothing(tmp_path: Path) -> None:
    ended = threading.Event()
    looked = threading.Event()
    reached: set[tuple[object, ...]] = set()
    started: set[str] = set()

    def watch(pids: list[int]) -> None:
        while not ended.is_set():
            for pid in pids:
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(pid)
                    for link in process.net_connections("inet"):
                        if address := tuple(link.raddr):  # empty while it only listens
                            reached.add(address)
                            looked.set()
                    started.update(child.name() for child in process.children(recursive=True))

    async def main() -> int:
        gate = Gate()
        pids: list[int] = []
        watcher = threading.Thread(target=watch, args=(pids,))
        watcher.start()
        with Upstream(holds(gate, "a", "b")) as upstream:
            async with running_pool(tmp_path, upstream) as pool, pool.lease() as lease:
                pids.append(lease.process.pid)
                channel = await start_turn(lease)
                await wait_for_message(channel, "item/agentMessage/delta")
                assert await asyncio.to_thread(looked.wait, 30)
                gate.open()
                await read_turn(channel)
            ended.set()
            await asyncio.to_thread(watcher.join)
            return upstream.port

    port = asyncio.run(main())
    assert reached == {("127.0.0.1", port)}
    assert started == set()


def test_environment_is_minimal_and_the_key_is_in_no_file(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin", "HTTPS_PROXY": "http://127.0.0.1:9", "SECRET_OF_MINE": "x", "OPENAI_API_KEY": "y"}

    async def main() -> None:
        with Upstream(says("Hi")) as upstream:
            async with running_pool(tmp_path, upstream, environ=environ) as pool, pool.lease() as lease:
                await run_turn(lease)
                process = psutil.Process(lease.process.pid)
                found = process.environ()
                assert found.keys() == {
                    "HTTPS_PROXY", "HOME", "CODEX_HOME", "TMPDIR", "NO_COLOR", "TOOLRELAY_CODEX_KEY"
                }  # fmt: skip
                assert found["TOOLRELAY_CODEX_KEY"] == KEY
                assert Path(found["CODEX_HOME"]).is_relative_to(tmp_path)
                assert Path(process.cwd()) == Path(str(lease.process.home.work_dir))
                assert KEY not in " ".join(process.cmdline())
                written = [Path(folder, name) for folder, _, names in _walk(str(tmp_path)) for name in names]
                assert len(written) > 5
                assert [path for path in written if KEY.encode() in path.read_bytes()] == []

    asyncio.run(main())
