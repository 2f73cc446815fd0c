"""The real Codex on a scripted upstream, what tests say to it, and the schema that it generates of its own protocol."""

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
from toolrelay.backends.codex.binary import Binary, find_binary, survey
from toolrelay.backends.codex.home import CodexLocation
from toolrelay.backends.codex.pool import Lease, Pool
from toolrelay.backends.codex.process import Channel
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.core.json import JsonObject
from toolrelay.errors import ConfigurationError

KEY = "key-of-the-upstream"
MODEL = "scripted"


def binary_path() -> str:
    """The package's, or the one that TOOLRELAY_CODEX names. Without it a test is skipped, which in CI is a failure."""
    try:
        return find_binary(os.environ.get("TOOLRELAY_CODEX", ""), search_path="")
    except ConfigurationError as error:
        pytest.skip(error.message)


@functools.cache
def surveyed() -> Binary:
    """Once a test process: the binary does not change under it."""
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(survey(binary_path(), {"CODEX_HOME": home, "HOME": home}))


def place_at(folder: Path, upstream: Upstream, *, model: str = MODEL, api_key: str = KEY, **more: Any) -> CodexLocation:
    address = f"{upstream.url}/v1"
    return CodexLocation(folder=str(folder), binary=binary_path(), model=model, base_url=address, api_key=api_key, **more)


@asynccontextmanager
async def pool_at(folder: Path, upstream: Upstream, *, size: int = 1, **more: Any) -> AsyncIterator[Pool]:
    """A pool with the real binary. Nothing may be left of it afterwards."""
    limits = {name: more.pop(name) for name in ("most_turns", "most_threads", "most_resident") if name in more}
    pool = Pool(place_at(folder, upstream, **more), size=size, **limits)
    pool._binary = await asyncio.to_thread(surveyed)
    try:
        yield pool
    finally:
        await pool.close()
        assert not homes(folder)


def homes(folder: Path) -> list[Path]:
    return list(folder.glob("home-*"))


def pids(pool: Pool) -> list[int]:
    return [seat.process.pid for seat in pool._seats]


async def settled(pool: Pool) -> None:
    """Whatever the pool does in the background is done."""
    while tasks := pool._starts | pool._farewells:
        await asyncio.gather(*tasks, return_exceptions=True)


def thread_params(lease: Lease, *, model: str = MODEL, **more: Any) -> JsonObject:
    return {
        "model": model,
        "cwd": lease.work,
        "ephemeral": True,
        "environments": [],
        "approvalPolicy": "never",
        "sandbox": "read-only",
        "experimentalRawEvents": True,
        **more,
    }


def turn_params(thread_id: str, text: str = "Hello") -> JsonObject:
    return {"threadId": thread_id, "input": [{"type": "text", "text": text, "text_elements": []}]}


def tool(name: str) -> JsonObject:
    return {"type": "function", "name": name, "description": "A tool.", "inputSchema": {"type": "object", "properties": {}}}


async def thread(lease: Lease, **more: Any) -> Channel:
    found: Any = await lease.call("thread/start", thread_params(lease, **more))
    return lease.listen(found["thread"]["id"])


async def begun(lease: Lease, text: str = "Hello", **more: Any) -> Channel:
    """A turn that runs, on a thread of its own."""
    channel = await thread(lease, **more)
    await lease.call("turn/start", turn_params(channel.thread_id, text))
    return channel


async def when(condition: Callable[[], object]) -> None:
    """Returns once that holds, which the loop brings about in the meantime."""
    while not condition():  # noqa: ASYNC110 -- what it waits for belongs to the code under test, and has no event
        await asyncio.sleep(0)


async def until(channel: Channel, method: str) -> Any:
    """The message of that method, after whatever comes before it. What came with it is passed over."""
    while True:
        for message in await channel.next():
            if message.method == method:
                return message


async def heard(channel: Channel) -> list[Notification | ServerRequest]:
    """All messages up to the end of the turn."""
    messages: list[Notification | ServerRequest] = []
    while not any(message.method == "turn/completed" for message in messages):
        messages += await channel.next()
    return messages


async def answer(lease: Lease, text: str = "Hello", **more: Any) -> str:
    """The text of a whole turn; or how it ended, if not well."""
    return said(await heard(await begun(lease, text, **more)))


def said(messages: list[Notification | ServerRequest]) -> str:
    last: Any = messages[-1].params
    if last["turn"]["status"] != "completed":
        return f"{last['turn']['status']}: {last['turn']['error']}"
    deltas: list[Any] = [message.params for message in messages if message.method == "item/agentMessage/delta"]
    return "".join(params["delta"] for params in deltas)


class Schema:
    """What this very binary says of its protocol."""

    def __init__(self, folder: Path) -> None:
        self._files = {path.stem: path.read_bytes() for path in folder.glob("*.json")}
        self.requests = self._kinds("ClientRequest")
        self.server_requests = self._kinds("ServerRequest")
        self.notifications = self._kinds("ServerNotification")

    def check_request(self, method: str, params: JsonObject) -> None:
        """Raises if the params are none of that method, or have members that it does not know."""
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
def schema() -> Schema:
    with tempfile.TemporaryDirectory(prefix="toolrelay-schema-") as folder:
        subprocess.run(
            [binary_path(), "app-server", "generate-json-schema", "--out", folder, "--experimental"],
            env={"CODEX_HOME": folder, "HOME": folder},
            check=True,
            capture_output=True,
            timeout=60,
        )
        return Schema(Path(folder))
