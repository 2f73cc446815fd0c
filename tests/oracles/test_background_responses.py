"""OpenAI's Python SDK and background responses: polling, cancelling, and streams that are taken up again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response

from tests.gateway import Gateway
from tests.model_server import ModelServer, error, whole
from tests.oracles.stateful import (
    BOB,
    PLAIN,
    WITH_TOOLS,
    client_of,
    seen_by_model,
    slowly,
    stateful,
    streamed,
    streamed_call,
)
from tests.upstream import Gate

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(upstream: ModelServer) -> Iterator[Gateway]:
    with stateful(upstream) as started:
        yield started


@pytest.fixture
def client(gateway: Gateway) -> OpenAI:
    return client_of(gateway)


def poll(client: OpenAI, created: Response) -> Response:
    while created.status in ("queued", "in_progress"):
        created = client.responses.retrieve(created.id)
    return created


def stream_again(client: OpenAI, response_id: str, **options: Any) -> list[Any]:
    return list(client.responses.retrieve(response_id, stream=True, **options))


def check_stream(events: list[Any], last: str = "response.completed") -> None:
    """Check that the sequence numbers have no gap, and that the stream ends with its one terminal event."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events if event.type in TERMINAL] == [last]
    assert events[-1].type == last


def test_background_response_is_polled_to_its_end(client: OpenAI, upstream: ModelServer) -> None:  # D8
    gate = Gate()
    upstream.enqueue([gate, whole("Hello there")])
    created = client.responses.create(model=PLAIN, input="Hi", background=True)
    assert created.background is True
    assert created.status == "queued"
    assert created.output == []
    gate.reached.result(30)
    assert client.responses.retrieve(created.id).status in ("queued", "in_progress")
    gate.open()
    done = poll(client, created)
    assert done.status == "completed"
    assert done.output_text == "Hello there"
    assert client.responses.cancel(created.id).status == "completed"


def test_background_response_runs_gateway_tools_and_can_be_continued(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(streamed_call("look_up", word="fog"), streamed("It is a word."), streamed("Yes."))
    done = poll(client, client.responses.create(model=WITH_TOOLS, input="What is fog?", background=True))
    assert [item.type for item in done.output] == ["mcp_call", "message"]
    client.responses.create(model=WITH_TOOLS, input="Sure?", previous_response_id=done.id)
    assert [role for role, _ in seen_by_model(upstream, number + 2)] == ["user", "assistant", "tool", "assistant", "user"]


def test_repeated_request_finds_the_background_response_that_runs(client: OpenAI, upstream: ModelServer) -> None:
    gate = Gate()
    upstream.enqueue(streamed_call("look_up", word="fog"), [gate, streamed("It is a word.")])

    def create() -> Response:
        key = {"Idempotency-Key": "fog"}
        return client.responses.create(model=WITH_TOOLS, input="What is fog?", background=True, extra_headers=key)

    first = create()
    gate.reached.result(30)
    second = create()
    assert (second.id, second.status) == (first.id, "in_progress")
    gate.open()
    assert poll(client, second).output_text == "It is a word."
    assert create().output_text == "It is a word."


def test_failure_of_a_background_response_is_retrieved(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(error(400, "The prompt is bad."))
    done = poll(client, client.responses.create(model=PLAIN, input="Hi", background=True))
    assert done.status == "failed"
    assert done.error is not None
    assert "The prompt is bad." in done.error.message
    assert done.error.code == "invalid_prompt"


def test_cancelled_response_stays_cancelled_and_ends_the_call_of_the_model(client: OpenAI, upstream: ModelServer) -> None:
    gate = Gate()
    number = upstream.enqueue([gate, whole()])
    created = client.responses.create(model=PLAIN, input="Hi", background=True)
    gate.reached.result(30)
    cancelled = client.responses.cancel(created.id)
    assert (cancelled.id, cancelled.status, cancelled.error) == (created.id, "cancelled", None)
    upstream.closed(number).result(30)
    assert client.responses.cancel(created.id).status == "cancelled"
    assert client.responses.retrieve(created.id).status == "cancelled"


def test_response_in_progress_cannot_be_continued(client: OpenAI, upstream: ModelServer) -> None:
    gate = Gate()
    upstream.enqueue([gate, whole()])
    created = client.responses.create(model=PLAIN, input="Hi", background=True)
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=PLAIN, input="And?", previous_response_id=created.id)
    assert refused.value.code == "response_in_progress"
    client.responses.cancel(created.id)


def test_deleted_response_in_progress_ends_the_call_of_the_model(client: OpenAI, upstream: ModelServer) -> None:
    gate = Gate()
    number = upstream.enqueue([gate, whole()])
    created = client.responses.create(model=PLAIN, input="Hi", background=True)
    gate.reached.result(30)
    client.responses.delete(created.id)
    upstream.closed(number).result(30)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(created.id)


@pytest.mark.parametrize("dropped_after", [1, 3, 5])
def test_dropped_stream_is_resumed_without_a_gap(client: OpenAI, upstream: ModelServer, dropped_after: int) -> None:
    gate = Gate()
    upstream.enqueue(slowly("One ", "two ", gate, "three ", "four."))
    seen: list[Any] = []
    with client.responses.create(model=PLAIN, input="Count", background=True, stream=True) as events:
        for event in events:
            seen.append(event)
            if event.sequence_number == dropped_after:
                break
    created = seen[0].response
    assert seen[0].type == "response.created"
    resumed: list[Any] = []
    with client.responses.retrieve(created.id, stream=True, starting_after=dropped_after) as events:
        gate.open()
        resumed += events
    check_stream([*seen, *resumed])
    text = "".join(event.delta for event in [*seen, *resumed] if event.type == "response.output_text.delta")
    assert text == "One two three four."
    final = client.responses.retrieve(created.id)
    assert resumed[-1].response.model_dump() == final.model_dump()
    again = stream_again(client, created.id)
    assert [event.model_dump() for event in again] == [event.model_dump() for event in [*seen, *resumed]]
    assert stream_again(client, created.id, starting_after=again[-1].sequence_number) == []
    assert stream_again(client, created.id, starting_after=10_000) == []
    assert [event.sequence_number for event in stream_again(client, created.id, starting_after=0)][:2] == [1, 2]


def test_two_clients_read_one_stream(client: OpenAI, upstream: ModelServer) -> None:
    gate = Gate()
    upstream.enqueue(slowly("One ", gate, "two."))
    created = client.responses.create(model=PLAIN, input="Count", background=True)
    with (
        client.responses.retrieve(created.id, stream=True) as one,
        client.responses.retrieve(created.id, stream=True) as other,
    ):
        first, second = next(one), next(other)
        gate.open()
        streams = [[first, *one], [second, *other]]
    for events in streams:
        check_stream(events)
    assert streams[0] == streams[1]


def test_stream_with_gateway_tools_is_streamed_again(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(streamed_call("look_up", word="fog"), streamed("It is a word."))
    events: Any = client.responses.create(model=WITH_TOOLS, input="What is fog?", background=True, stream=True)
    seen = list(events)
    check_stream(seen)
    assert "response.mcp_call.completed" in [event.type for event in seen]
    assert stream_again(client, seen[0].response.id) == seen


@pytest.mark.parametrize("text", ["", "Hello"])
def test_stream_of_a_cancelled_response_ends(client: OpenAI, upstream: ModelServer, text: str) -> None:
    gate = Gate()
    upstream.enqueue(slowly(text, gate) if text else [gate, streamed("never")])
    created = client.responses.create(model=PLAIN, input="Hi", background=True)
    gate.reached.result(30)
    assert client.responses.cancel(created.id).status == "cancelled"
    events = raw_events(client, created.id)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] in TERMINAL] == ["response.failed"]
    assert events[-1]["type"] == "response.failed"


def raw_events(client: OpenAI, response_id: str) -> list[dict[str, Any]]:
    """Return the events of a stream that failed, of which the SDK makes an exception."""
    raw = client.with_raw_response.responses.retrieve(response_id, extra_query={"stream": "true"})
    lines = raw.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def test_foreground_response_is_neither_cancelled_nor_streamed_again(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole())
    created = client.responses.create(model=PLAIN, input="Hi")
    with pytest.raises(BadRequestError):
        client.responses.cancel(created.id)
    with pytest.raises(BadRequestError) as refused:
        client.responses.retrieve(created.id, stream=True)
    assert refused.value.param == "stream"


def test_background_needs_store(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=PLAIN, input="Hi", background=True, store=False)
    assert refused.value.param == "background"


@pytest.mark.parametrize("value", ["-2", "1.5", "x", "9" * 30])
def test_starting_after_that_is_no_number_is_refused(client: OpenAI, upstream: ModelServer, value: str) -> None:
    upstream.enqueue(whole())
    created = poll(client, client.responses.create(model=PLAIN, input="Hi", background=True))
    with pytest.raises(BadRequestError) as refused:
        client.responses.retrieve(created.id, stream=True, extra_query={"starting_after": value})
    assert refused.value.param == "starting_after"


def test_another_key_neither_cancels_nor_streams_nor_continues(gateway: Gateway, client: OpenAI, upstream: ModelServer) -> None:
    gate = Gate()
    upstream.enqueue([gate, whole("Hello there")])
    created = client.responses.create(model=PLAIN, input="Hi", background=True)
    other = client_of(gateway, BOB)
    with pytest.raises(NotFoundError):
        other.responses.cancel(created.id)
    with pytest.raises(NotFoundError):
        other.responses.retrieve(created.id, stream=True)
    with pytest.raises(NotFoundError):
        other.responses.delete(created.id)
    with pytest.raises(BadRequestError) as refused:
        other.responses.create(model=PLAIN, input="And?", previous_response_id=created.id)
    assert refused.value.code == "previous_response_not_found"
    gate.open()
    assert poll(client, created).output_text == "Hello there"
