"""A turn is begun together with the conversation it is given, and is not heard if it began without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.backends.codex.fake_codex import fake_codex
from tests.backends.codex.play import SETTINGS, error_of, request, text, told
from toolrelay.backends.codex.backend import MOST_DEAD, TRIES, CodexBackend, open_backend
from toolrelay.backends.codex.home import CodexLocation
from toolrelay.backends.codex.pool import Pool
from toolrelay.core.events import StreamEvent
from toolrelay.settings import Environment

# It says which requests it has got, once a turn has been begun as it should be.
BEHAVIOUR = """
    {first}
    heard = globals().setdefault("heard", [])
    heard.append(method)
    thread = (params or {{}}).get("threadId")
    if method == "thread/start":
        say({{"id": id, "result": {{"thread": {{"id": str(len(heard))}}}}}})
    elif method == "thread/inject_items" and thread == "1":
        {refusal}
    elif method == "turn/start":
        say({{"id": id, "result": {{"turn": {{"id": "turn"}}}}}})
        said = {{"threadId": thread, "turnId": "turn", "itemId": "item", "delta": " ".join(heard)}}
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


def asked(folder: Path, refusal: str, afterwards: str = "pass", first: str = "pass") -> list[StreamEvent]:
    binary = fake_codex(folder, BEHAVIOUR.format(refusal=refusal, afterwards=afterwards, first=first))
    place = CodexLocation(folder=str(folder / "homes"), binary=binary, model="m", base_url="http://127.0.0.1:9/v1")

    async def main() -> list[StreamEvent]:
        backend = CodexBackend(SETTINGS, Pool(place, size=1))
        try:
            return await told(backend, request())
        finally:
            await backend.close()

    return asyncio.run(main())


def test_a_turn_is_begun_after_its_conversation(tmp_path: Path) -> None:
    assert text(asked(tmp_path, TAKES)).split() == FIRST


@pytest.mark.parametrize(
    ("refusal", "afterwards"),
    [
        ('say({"id": id, "error": {"code": -32001, "message": "Server overloaded; retry later."}})', "pass"),
        ("late = id", 'say({"id": late, "result": {}})'),
    ],
    ids=["refused for now", "answered after the turn"],
)
def test_a_turn_that_began_without_its_conversation_is_not_heard_but_begun_anew(
    tmp_path: Path, refusal: str, afterwards: str
) -> None:
    assert text(asked(tmp_path, refusal, afterwards)).split() == AGAIN


def test_a_conversation_that_codex_does_not_take_is_the_clients_mistake(tmp_path: Path) -> None:
    error = error_of(asked(tmp_path, 'say({"id": id, "error": {"code": -32602, "message": "What is that?"}})'))
    assert (error.status, error.code) == (400, "unsupported_by_upstream")
    assert "What is that?" in error.message


@pytest.mark.parametrize("dying", [TRIES + 1, 1000])
def test_processes_that_die_before_a_turn_began_on_them_are_passed_over_but_not_for_ever(tmp_path: Path, dying: int) -> None:
    dead = tmp_path / "dead"
    dead.write_text("")
    dies = f"number = open({str(dead)!r}, 'a').write('x') and os.path.getsize({str(dead)!r}); number < {dying} and os._exit(1)"
    events = asked(tmp_path, TAKES, first=dies)
    if dying == 1000:
        assert (error_of(events).status, error_of(events).code) == (502, "upstream_cut")
        assert len(dead.read_text()) == TRIES * (MOST_DEAD + 1)
    else:
        assert text(events).split() == FIRST
        assert dead.read_text().startswith("x" * dying)


def test_without_a_sign_in_nothing_is_started(tmp_path: Path) -> None:
    binary = fake_codex(tmp_path)
    environ = {"TOOLRELAY_CODEX": binary, "CODEX_HOME": str(tmp_path)}

    async def main() -> list[StreamEvent]:
        account = replace(SETTINGS, api_key="")
        backend = open_backend(account, Environment(data_dir=tmp_path / "data", environ=environ))
        try:
            return await told(backend, request())
        finally:
            await backend.close()

    error = error_of(asyncio.run(main()))
    assert (error.status, error.code) == (502, "upstream_auth")
    assert "codex login" in error.message
    assert not (tmp_path / "data").exists()
