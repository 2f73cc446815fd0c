"""Helpers over the real app-server: pools, threads, turns, and the JSON schema that it generates of its own protocol."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.upstream import Upstream
from toolrelay.backends.codex.binary import CodexBinary, find_binary, probe_binary
from toolrelay.backends.codex.pool import Lease, ProcessPool
from toolrelay.backends.codex.process import Channel
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError

KEY = "key-of-the-upstream"
MODEL = "scripted"


def binary_path() -> str:
    """Return the packaged binary or TOOLRELAY_CODEX. Skip the test if there is none, which fails CI."""
    try:
        return find_binary(os.environ.get("TOOLRELAY_CODEX", ""), search_path="")
    except ConfigurationError as error:
        pytest.skip(error.message)


@functools.cache
def probed_binary() -> CodexBinary:
    """Probe the binary once per test process."""
    with tempfile.TemporaryDirectory() as home:
        return probe_binary(binary_path(), {"CODEX_HOME": home, "HOME": home})


def location_in(folder: Path, upstream: Upstream, *, model: str = MODEL, api_key: str = KEY, **more: Any) -> CodexLocation:
    base_url = f"{upstream.url}/v1"
    return CodexLocation(folder=str(folder), binary=binary_path(), model=model, base_url=base_url, api_key=api_key, **more)


@asynccontextmanager
async def running_pool(folder: Path, upstream: Upstream, *, size: int = 1, **more: Any) -> AsyncIterator[ProcessPool]:
    """Open a pool of the real binary, and check that it leaves no home behind."""
    limits = {name: more.pop(name) for name in ("max_turns", "max_threads", "max_resident_bytes") if name in more}
    pool = ProcessPool(location_in(folder, upstream, **more), size=size, binary=await asyncio.to_thread(probed_binary), **limits)
    try:
        yield pool
    finally:
        await pool.close()
        assert not homes(folder)


def homes(folder: Path) -> list[Path]:
    return list(folder.glob("home-*"))


def pids(pool: ProcessPool) -> list[int]:
    return [pooled.process.pid for pooled in pool.processes]


async def settle(pool: ProcessPool) -> None:
    """Wait until the pool has no background tasks."""
    while tasks := pool._starts | pool._exits:
        await asyncio.gather(*tasks, return_exceptions=True)


def thread_params(lease: Lease, *, model: str = MODEL, **more: Any) -> JsonObject:
    return {
        "model": model,
        "cwd": str(lease.process.home.work_dir),
        "ephemeral": True,
        "environments": [],
        "approvalPolicy": "never",
        "sandbox": "read-only",
        "experimentalRawEvents": True,
        **more,
    }


def turn_params(thread_id: str, text: str = "Hello") -> JsonObject:
    return {"threadId": thread_id, "input": [{"type": "text", "text": text, "text_elements": []}]}


def tool_declaration(name: str) -> JsonObject:
    return {"type": "function", "name": name, "description": "A tool.", "inputSchema": {"type": "object", "properties": {}}}


async def start_thread(lease: Lease, **more: Any) -> Channel:
    found: Any = await lease.call("thread/start", thread_params(lease, **more))
    return lease.open_channel(found["thread"]["id"])


async def start_turn(lease: Lease, text: str = "Hello", **more: Any) -> Channel:
    """Start a turn on a new thread."""
    channel = await start_thread(lease, **more)
    await lease.call("turn/start", turn_params(channel.thread_id, text))
    return channel


async def wait_until(condition: Callable[[], object]) -> None:
    """Run the loop until the condition holds."""
    while not condition():  # noqa: ASYNC110 -- the code under test has no event for it
        await asyncio.sleep(0)


async def wait_for_message(channel: Channel, method: str) -> Any:
    """Return the next message of that method. Skip all others."""
    while True:
        for message in await channel.next():
            if message.method == method:
                return message


async def read_turn(channel: Channel) -> list[Notification | ServerRequest]:
    """Return all messages up to the end of the turn."""
    messages: list[Notification | ServerRequest] = []
    while not any(message.method == "turn/completed" for message in messages):
        messages += await channel.next()
    return messages


async def run_turn(lease: Lease, text: str = "Hello", **more: Any) -> str:
    """Return the text of a turn, or its status and error."""
    return turn_text(await read_turn(await start_turn(lease, text, **more)))


def turn_text(messages: list[Notification | ServerRequest]) -> str:
    last: Any = messages[-1].params
    if last["turn"]["status"] != "completed":
        return f"{last['turn']['status']}: {last['turn']['error']}"
    deltas: list[Any] = [message.params for message in messages if message.method == "item/agentMessage/delta"]
    return "".join(params["delta"] for params in deltas)


class ProtocolSchema:
    """The JSON schema that the binary generates of its protocol."""

    def __init__(self, folder: Path) -> None:
        self._files = {path.stem: path.read_bytes() for path in folder.glob("*.json")}
        self.requests = self._kinds("ClientRequest")
        self.server_requests = self._kinds("ServerRequest")
        self.notifications = self._kinds("ServerNotification")

    def check_request(self, method: str, params: JsonObject) -> None:
        """Raise if the params are invalid or have unknown members."""
        self._check(self.requests[method], params, self._read("ClientRequest"))

    def check_answer(self, method: str, result: JsonObject) -> None:
        name = self.server_requests[method]["$ref"].rpartition("/")[2].removesuffix("Params")
        found = self._read(f"{name}Response")
        self._check(found, result, found)

    def _check(self, kind: dict[str, Any], value: JsonObject, whole: dict[str, Any]) -> None:
        schema = {**kind, "definitions": whole.get("definitions", {})}
        jsonschema_rs.Draft7Validator(schema).validate(value)
        known = whole["definitions"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
        unknown = value.keys() - known.get("properties", {}).keys()
        assert not unknown, f"not in the schema: {unknown}"

    def _kinds(self, name: str) -> dict[str, dict[str, Any]]:
        return {
            kind["properties"]["method"]["enum"][0]: kind["properties"].get("params", {}) for kind in self._read(name)["oneOf"]
        }

    def _read(self, name: str) -> dict[str, Any]:
        found = msgspec.json.decode(self._files[name])
        assert isinstance(found, dict)
        return found


@functools.cache
def protocol_schema() -> ProtocolSchema:
    with tempfile.TemporaryDirectory(prefix="toolrelay-schema-") as folder:
        subprocess.run(
            [binary_path(), "app-server", "generate-json-schema", "--out", folder, "--experimental"],
            env={"CODEX_HOME": folder, "HOME": folder},
            check=True,
            capture_output=True,
            timeout=60,
        )
        return ProtocolSchema(Path(folder))
