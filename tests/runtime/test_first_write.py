"""When the record of a turn is written for the first time, and what is seen of the turn before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, CLIENT_APIS, REST, ModelServer, configuration
from tests.raw_client import RawClient, encode_request
from tests.scripted import ask, scripted, serving
from tests.scripted_backend import ScriptedBackend
from tests.stores.rows import ACCEPTED, ANSWERED, ASKED, FINISHED, PLANNED, REQUEST, STARTED, turn
from tests.upstream import Gate
from toolrelay.core.conversation import conversation_heads
from toolrelay.core.events import AnswerFinished, AnswerStarted, TextDelta
from toolrelay.core.identity import TOKEN_LENGTH
from toolrelay.core.messages import Message
from toolrelay.core.steps import AnswerReceived, StepEvent, TurnFailed
from toolrelay.runtime.ledger import TurnLedger
from toolrelay.settings import StoreSettings
from toolrelay.stores.base import open_store
from toolrelay.stores.turns import StoredTurn

RESPONSES = CLIENT_APIS["openai_responses"]
FAILED = TurnFailed(code="cancelled", message="")


async def flush(ledger: TurnLedger, *steps: StepEvent) -> None:
    for step in steps:
        ledger.add(step)
    await ledger.flush()


@pytest.mark.parametrize("durable", [STARTED, ASKED, FINISHED, FAILED], ids=lambda step: type(step).__name__)
def test_record_is_written_with_the_first_step_that_must_survive(tmp_path: Path, durable: StepEvent) -> None:
    async def story() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        ledger = TurnLedger(store, turn())
        await flush(ledger, ACCEPTED)
        await flush(ledger, ANSWERED, PLANNED)
        assert await store.load_turn("t1") is None
        await flush(ledger, durable)
        stored = await store.load_turn("t1")
        assert stored is not None
        assert [each.step for each in stored.steps] == [ACCEPTED, ANSWERED, PLANNED, durable]
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("members", [{"background": True}, {"idempotency_key": "k"}])
def test_turn_that_can_be_taken_up_again_is_written_from_its_beginning(tmp_path: Path, members: dict[str, Any]) -> None:
    async def story() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        await flush(TurnLedger(store, turn(**members)), ACCEPTED)
        assert await store.load_turn("t1") is not None
        await store.close()

    asyncio.run(story())


def test_steps_after_a_tool_run_has_started_are_written_as_they_come(tmp_path: Path) -> None:
    async def story() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        ledger = TurnLedger(store, turn())
        await flush(ledger, ACCEPTED, ANSWERED, PLANNED, STARTED)
        await flush(ledger, ANSWERED)
        stored = await store.load_turn("t1")
        assert stored is not None
        assert len(stored.steps) == 5
        await store.close()

    asyncio.run(story())


def test_conversation_of_a_turn_that_is_written_at_once_can_be_continued(tmp_path: Path) -> None:
    async def story() -> None:
        store = open_store(StoreSettings(), tmp_path)
        await store.open()
        said = Message(role="assistant", content="Sunny")
        ledger = TurnLedger(store, turn(conversation="conv_t1"), clock=lambda: 1500.0)
        await flush(ledger, ACCEPTED, AnswerReceived(items=(said,), finish="stop"), FINISHED)
        head = conversation_heads([*REQUEST.items, said])[-1][0]
        assert await store.find_conversation("me", [head]) == ("conv_t1", head)
        found = await store.load_conversation("conv_t1", "me")
        assert found is not None
        assert found.last_used_at == 1500.0
        await store.close()

    asyncio.run(story())


# Through the gateway


def begin(gateway: Gateway, client: RawClient) -> str:
    """Start a stored response and return its id, which the first event has."""
    client.post(RESPONSES.path, RESPONSES.request_body(stream=True))
    found = re.search(rb'"id":"(resp_\w+)"', client.read_until(b"Hello"))
    assert found is not None
    assert not turns(gateway), "nothing is written while the model answers"
    return found[1].decode()


def turns(gateway: Gateway) -> list[str]:
    with contextlib.closing(sqlite3.connect(gateway.data_dir / "toolrelay.db")) as database:
        return [status for (status,) in database.execute("SELECT status FROM turns")]


def test_response_in_progress_can_be_retrieved() -> None:
    gate = Gate()
    with ModelServer((BEGUN, gate, REST)) as upstream, running(configuration(upstream)) as gateway:
        with RawClient(gateway.port) as client:
            response_id = begin(gateway, client)
            assert gateway.get(f"/v1/responses/{response_id}").json()["status"] == "in_progress"
            assert len(gateway.get(f"/v1/responses/{response_id}/input_items").json()["data"]) == 1
            gate.open()
            client.read_until(b"[DONE]")
        found = gateway.get(f"/v1/responses/{response_id}").json()
        assert (found["status"], RESPONSES.text(found)) == ("completed", "Hello there")


def test_response_in_progress_can_be_deleted() -> None:
    gate = Gate()
    with ModelServer((BEGUN, gate, REST)) as upstream, running(configuration(upstream)) as gateway:
        with RawClient(gateway.port) as client:
            response_id = begin(gateway, client)
            assert httpx.delete(f"{gateway.v1}/responses/{response_id}").json()["deleted"] is True
            client.read_until(b"[DONE]")
        gate.open()
        assert gateway.get(f"/v1/responses/{response_id}").status_code == 404


def test_client_that_leaves_is_recorded() -> None:
    gate = Gate()
    with ModelServer((BEGUN, gate, REST)) as upstream, running(configuration(upstream)) as gateway:
        with RawClient(gateway.port) as client:
            begin(gateway, client)
        upstream.closed(0).result(30)
        gate.open()
        assert gateway.stop() == 0
        assert turns(gateway) == ["cancelled"]


def test_killed_gateway_leaves_no_record_of_an_answer_that_nobody_received() -> None:
    gate = Gate()
    with ModelServer((BEGUN, gate, REST)) as upstream, running(configuration(upstream)) as gateway:
        with RawClient(gateway.port) as client:
            begin(gateway, client)
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait(30)
        gate.open()
        assert turns(gateway) == []


def test_response_that_ends_while_it_is_looked_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        go = asyncio.Event()
        app = scripted(ScriptedBackend([[AnswerStarted(), TextDelta("Hello"), go, AnswerFinished(finish="stop")]]))
        load = app.store.load_turn

        async def load_slowly(turn: str, owner: str | None = None) -> StoredTurn | None:
            found = await load(turn, owner)
            go.set()
            running = app.service.turns.find(turn, owner or "")
            if running is not None:
                await running.wait_for_end()
            return found

        monkeypatch.setattr(app.store, "load_turn", load_slowly)
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = json.dumps(RESPONSES.request_body(stream=True)).encode()
            writer.write(encode_request("POST", RESPONSES.path, body, "connection: close"))
            await reader.readuntil(b'"id":"resp_')
            response_id = f"resp_{(await reader.readexactly(TOKEN_LENGTH)).decode()}"
            await reader.readuntil(b"Hello")
            assert (await ask(port, f"/v1/responses/{response_id}", method="GET"))[0] == 200
            go.set()
            await reader.read()
            writer.close()

    asyncio.run(story())
