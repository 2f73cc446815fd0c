"""What `[store] record` keeps of which turns."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, STREAMED, ModelServer, configuration, error, whole

CHAT, RESPONSES = CLIENT_APIS["openai_chat"], CLIENT_APIS["openai_responses"]
XML = {"x-toolrelay-client": "use_tool"}


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@contextlib.contextmanager
def recording(model_server: ModelServer, record: str) -> Iterator[Gateway]:
    with running(configuration(model_server, before=f'[store]\nrecord = "{record}"\n')) as gateway:
        yield gateway


def ask(gateway: Gateway, model_server: ModelServer, answer: bytes, path: str, body: dict[str, Any], **headers: str) -> str:
    """Send a request and return its turn."""
    model_server.enqueue(answer)
    return gateway.post(path, body, **headers).headers["x-request-id"].removeprefix("req_")


def read(gateway: Gateway, statement: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(gateway.data_dir / "toolrelay.db")) as database:
        return database.execute(statement).fetchall()


def test_plain_relays_write_nothing_by_default(model_server: ModelServer) -> None:
    with recording(model_server, "tools") as gateway:
        ask(gateway, model_server, whole(), CHAT.path, CHAT.request_body())
        ask(gateway, model_server, STREAMED, CHAT.path, CHAT.request_body(stream=True))
        ask(gateway, model_server, whole(), RESPONSES.path, RESPONSES.request_body(store=False))
        stored = ask(gateway, model_server, whole(), RESPONSES.path, RESPONSES.request_body())
        assert read(gateway, "SELECT id FROM turns") == [(stored,)]


def test_every_turn_is_recorded_if_all_are_to_be(model_server: ModelServer) -> None:
    with recording(model_server, "all") as gateway:
        asked = [
            ask(gateway, model_server, whole(), CHAT.path, CHAT.request_body()),
            ask(gateway, model_server, STREAMED, CHAT.path, CHAT.request_body(stream=True)),
            ask(gateway, model_server, whole(), RESPONSES.path, RESPONSES.request_body(store=False)),
            ask(gateway, model_server, whole(), CHAT.path, CHAT.request_body(), **XML),
            ask(gateway, model_server, error(400), CHAT.path, CHAT.request_body()),
        ]
        rows = read(gateway, "SELECT id, status, stored FROM turns ORDER BY created_at")
        assert rows == [(turn, "finished", 0) for turn in asked[:4]] + [(asked[4], "failed", 0)]
        said = "SELECT role, content FROM messages JOIN turns ON turns.id = turn ORDER BY created_at, position"
        assert read(gateway, said) == [("user", "Hi"), ("assistant", "Hello there")] * 4 + [("user", "Hi")]
        assert gateway.get(f"/v1/responses/resp_{asked[2]}").status_code == 404


def test_nothing_is_on_the_disk_if_nothing_is_to_be(model_server: ModelServer) -> None:
    with recording(model_server, "none") as gateway:
        stored = ask(gateway, model_server, whole(), RESPONSES.path, RESPONSES.request_body())
        assert RESPONSES.text(gateway.get(f"/v1/responses/resp_{stored}").json()) == "Hello there"
        assert not (gateway.data_dir / "toolrelay.db").exists()
