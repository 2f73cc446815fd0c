"""Indexes in an upstream's answer, through the real gateway: huge, negative, or too many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.exchange import decode_all, fold, gist
from tests.gateway import Gateway, running
from tests.golden.transcripts import FRONTS
from tests.model_server import ModelServer
from tests.upstream import reply, stream
from toolrelay.core.indexes import MAX_INDEXES

Json = dict[str, Any]

FRONT = pytest.mark.parametrize("front", ["chat", "responses"])
HUGE = 50_000_000


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(model_server: ModelServer) -> Iterator[Gateway]:
    model = f'[models.fast]\nprovider = "compatible"\nbase_url = "{model_server.url}/v1"\nwire = "responses"\n'
    with running(model) as started:
        yield started


def request(front: str, **members: Any) -> Json:
    items = [{"role": "user", "content": "Hi"}]
    return {"model": "fast", "messages" if front == "chat" else "input": items, **members}


def frame(value: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), json.dumps(value).encode())


def summary(index: int) -> bytes:
    kind = "response.reasoning_summary_text.delta"
    return frame({"type": kind, "item_id": "rs_1", "output_index": 0, "summary_index": index, "delta": "hm "})


def text(output_index: int) -> bytes:
    kind = "response.output_text.delta"
    return frame({"type": kind, "item_id": "msg_1", "output_index": output_index, "content_index": 0, "delta": "Hello"})


CREATED = frame({"type": "response.created", "response": {"id": "resp_1", "model": "m"}})
COMPLETED = frame({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}})


@FRONT
@pytest.mark.parametrize("streamed", [True, False])
def test_huge_index_does_not_allocate(gateway: Gateway, model_server: ModelServer, front: str, *, streamed: bool) -> None:
    model_server.enqueue(stream(CREATED, summary(HUGE), text(HUGE + 1), COMPLETED))
    answer = gateway.post(f"/v1{FRONTS[front].path}", request(front, stream=streamed))
    assert answer.status_code == 200, answer.text
    wire = FRONTS[front]
    got = gist(fold(decode_all(wire, answer.content) if streamed else wire.decode_answer(answer.content)))
    assert (got.reasoning, got.text, got.finish) == ("hm ", "Hello", "stop")


TOO_MANY = [summary(7 * index) for index in range(MAX_INDEXES + 1)]


@FRONT
@pytest.mark.parametrize("frames", [TOO_MANY, [summary(0), summary(-1)]], ids=["too many", "negative"])
def test_bad_indexes_end_a_stream_with_an_error_frame(
    gateway: Gateway, model_server: ModelServer, front: str, frames: list[bytes]
) -> None:
    model_server.enqueue(stream(CREATED, frames[0], b"".join(frames[1:]), text(1), COMPLETED))
    answer = gateway.post(f"/v1{FRONTS[front].path}", request(front, stream=True))
    assert answer.status_code == 200
    error = fold(decode_all(FRONTS[front], answer.content)).error
    assert error is not None
    assert (error.status, error.code) == (502, "upstream_invalid")
    assert answer.text.endswith("data: [DONE]\n\n")


@FRONT
@pytest.mark.parametrize("frames", [TOO_MANY, [summary(-1)]], ids=["too many", "negative"])
def test_bad_indexes_in_a_whole_answer_are_a_502(
    gateway: Gateway, model_server: ModelServer, front: str, frames: list[bytes]
) -> None:
    model_server.enqueue(stream(CREATED, b"".join(frames), COMPLETED))
    check_502(gateway, front)


@FRONT
def test_whole_answer_with_too_many_items_is_a_502(gateway: Gateway, model_server: ModelServer, front: str) -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    model_server.enqueue(
        reply(json.dumps({"id": "resp_1", "status": "completed", "output": [item] * (MAX_INDEXES + 1)}).encode())
    )
    check_502(gateway, front)


def check_502(gateway: Gateway, front: str) -> None:
    answer = gateway.post(f"/v1{FRONTS[front].path}", request(front))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
    assert gateway.get("/healthz").status_code == 200
