"""The start of a turn together with the injection of its conversation, and retries if the order was wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.fake_codex import fake_codex
from tests.backends.codex.harness import SETTINGS, collect, error_of, request, text
from toolrelay.backends.codex.backend import MAX_ATTEMPTS, MAX_DEAD_PROCESSES, CodexBackend, open_backend
from toolrelay.backends.codex.pool import ProcessPool
from toolrelay.backends.codex.settings import CodexLocation
from toolrelay.core.events import StreamEvent
from toolrelay.settings import Environment

# Its answer lists the requests that it received.
BEHAVIOUR = """
    {first}
    received = globals().setdefault("received", [])
    received.append(method)
    thread = (params or {{}}).get("threadId")
    if method == "thread/start":
        say({{"id": id, "result": {{"thread": {{"id": str(len(received))}}}}}})
    elif method == "thread/inject_items" and thread == "1":
        {refusal}
    elif method == "turn/start":
        say({{"id": id, "result": {{"turn": {{"id": "turn"}}}}}})
        said = {{"threadId": thread, "turnId": "turn", "itemId": "item", "delta": " ".join(received)}}
        say({{"method": "item/agentMessage/delta", "params": said}})
        say({{"method": "turn/completed", "params": {{"threadId": thread, "turn": {{"id": "turn", "status": "completed"}}}}}})
        if thread == "1":
            {afterwards}
    else:
        say({{"id": id, "result": {{}}}})
"""
TAKES = 'say({"id": id, "result": {}})'
FIRST = ["thread/start", "thread/inject_items", "turn/start"]
AGAIN = [*FIRST, "turn/interrupt", *FIRST]


def run_request(folder: Path, refusal: str, afterwards: str = "pass", first: str = "pass") -> list[StreamEvent]:
    binary = fake_codex(folder, BEHAVIOUR.format(refusal=refusal, afterwards=afterwards, first=first))
    location = CodexLocation(folder=str(folder / "homes"), binary=binary, model="m", base_url="http://127.0.0.1:9/v1")

    async def main() -> list[StreamEvent]:
        backend = CodexBackend(SETTINGS, ProcessPool(location, size=1))
        try:
            return await collect(backend, request())
        finally:
            await backend.close()

    return asyncio.run(main())


def test_turn_starts_after_its_items_are_injected(tmp_path: Path) -> None:
    assert text(run_request(tmp_path, TAKES)).split() == FIRST


@pytest.mark.parametrize(
    ("refusal", "afterwards"),
    [
        ('say({"id": id, "error": {"code": -32001, "message": "Server overloaded; retry later."}})', "pass"),
        ("late = id", 'say({"id": late, "result": {}})'),
    ],
    ids=["refused for now", "answered after the turn"],
)
def test_turn_started_without_its_items_is_restarted(tmp_path: Path, refusal: str, afterwards: str) -> None:
    assert text(run_request(tmp_path, refusal, afterwards)).split() == AGAIN


def test_refused_items_are_a_client_error(tmp_path: Path) -> None:
    error = error_of(run_request(tmp_path, 'say({"id": id, "error": {"code": -32602, "message": "What is that?"}})'))
    assert (error.status, error.code) == (400, "unsupported_by_upstream")
    assert "What is that?" in error.message


@pytest.mark.parametrize("dying", [MAX_ATTEMPTS + 1, 1000])
def test_dead_processes_are_skipped_up_to_the_limit(tmp_path: Path, dying: int) -> None:
    dead = tmp_path / "dead"
    dead.write_text("")
    exits = f"number = open({str(dead)!r}, 'a').write('x') and os.path.getsize({str(dead)!r}); number < {dying} and os._exit(1)"
    events = run_request(tmp_path, TAKES, first=exits)
    if dying == 1000:
        assert (error_of(events).status, error_of(events).code) == (502, "upstream_cut")
        assert len(dead.read_text()) == MAX_ATTEMPTS * (MAX_DEAD_PROCESSES + 1)
    else:
        assert text(events).split() == FIRST
        assert dead.read_text().startswith("x" * dying)


def test_missing_sign_in_starts_no_process(tmp_path: Path) -> None:
    binary = fake_codex(tmp_path)
    environ = {"TOOLRELAY_CODEX": binary, "CODEX_HOME": str(tmp_path)}

    async def main() -> list[StreamEvent]:
        account = replace(SETTINGS, api_key="")
        backend = open_backend(account, Environment(data_dir=tmp_path / "data", environ=environ))
        try:
            return await collect(backend, request())
        finally:
            await backend.close()

    error = error_of(asyncio.run(main()))
    assert (error.status, error.code) == (502, "upstream_auth")
    assert "codex login" in error.message
    assert not (tmp_path / "data").exists()
