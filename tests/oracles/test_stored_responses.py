"""OpenAI's Python SDK and stored responses: retrieve, delete, input items, chains of responses, references to items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response, ResponseFunctionToolCall
from openai.types.responses.response_output_item import McpCall

from tests.gateway import Gateway
from tests.model_server import ModelServer, whole
from tests.oracles.stateful import (
    BOB,
    PLAIN,
    WITH_TOOLS,
    client_of,
    seen_by_model,
    stateful,
    streamed,
    streamed_call,
)
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS

UNKNOWN = "resp_" + "0" * 20


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


def ask(client: OpenAI, *, stream: bool, **members: Any) -> Response:
    """Return the response, or the one that the last event of its stream has."""
    answer: Any = client.responses.create(**members, stream=stream)
    if stream:
        *_, last = answer
        answer = last.response
    return Response.model_validate(answer)


def test_response_is_stored_by_default_and_retrieved_as_it_was(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole("Hello there"))
    created: Any = client.responses.create(model=PLAIN, input="Hi", instructions="Be brief.", metadata={"a": "b"})
    retrieved: Any = client.responses.retrieve(created.id)
    assert created.store is retrieved.store is True
    assert retrieved.output_text == "Hello there"
    assert retrieved.model_dump() == created.model_dump()


def test_streamed_response_is_stored_as_its_last_event_says(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(streamed("Hello there"))
    final = ask(client, stream=True, model=PLAIN, input="Hi")
    assert client.responses.retrieve(final.id).model_dump() == final.model_dump()


def test_unstored_response_is_not_found(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole())
    created: Any = client.responses.create(model=PLAIN, input="Hi", store=False)
    assert created.store is False
    with pytest.raises(NotFoundError) as missing:
        client.responses.retrieve(created.id)
    assert missing.value.code == "response_not_found"
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=PLAIN, input="And?", previous_response_id=created.id)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")


def test_unstored_response_with_gateway_tools_is_not_found(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(streamed("Hello"))
    created = client.responses.create(model=WITH_TOOLS, input="Hi", store=False)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(created.id)
    with pytest.raises(BadRequestError):
        client.responses.create(model=PLAIN, input="And?", previous_response_id=created.id)


def test_deleted_response_is_gone_and_breaks_its_chain(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole("One"), whole("Two"))
    first = client.responses.create(model=PLAIN, input="1")
    second = client.responses.create(model=PLAIN, input="2", previous_response_id=first.id)
    client.responses.delete(first.id)
    for missing in (
        client.responses.retrieve,
        client.responses.delete,
        client.responses.cancel,
        client.responses.input_items.list,
    ):
        with pytest.raises(NotFoundError):
            missing(first.id)
    for previous in (first.id, second.id):
        with pytest.raises(BadRequestError) as broken:
            client.responses.create(model=PLAIN, input="3", previous_response_id=previous)
        assert broken.value.param == "previous_response_id"
        assert "deleted" in broken.value.message
    assert client.responses.retrieve(second.id).output_text == "Two"


def test_chain_of_three_shows_the_model_all_of_it(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(whole("One"), whole("Two"), whole("Three"))
    first = client.responses.create(model=PLAIN, input="1", instructions="Count.")
    second = client.responses.create(model=PLAIN, input="2", previous_response_id=first.id)
    third = client.responses.create(model=PLAIN, input="3", previous_response_id=second.id, store=False)
    assert third.previous_response_id == second.id
    assert seen_by_model(upstream, number) == [("system", "Count."), ("user", "1")]
    # As at OpenAI, the instructions of earlier responses are not carried over.
    assert seen_by_model(upstream, number + 2) == [
        ("user", "1"),
        ("assistant", "One"),
        ("user", "2"),
        ("assistant", "Two"),
        ("user", "3"),
    ]
    assert "previous_response_id" not in upstream.request_body(number + 2)


def test_chain_can_fork(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(whole("One"), whole("Two"), whole("Other"))
    first = client.responses.create(model=PLAIN, input="1")
    client.responses.create(model=PLAIN, input="2", previous_response_id=first.id)
    client.responses.create(model=PLAIN, input="or", previous_response_id=first.id)
    assert seen_by_model(upstream, number + 2) == [("user", "1"), ("assistant", "One"), ("user", "or")]


@pytest.mark.parametrize("stream", [False, True])
def test_chain_continues_after_gateway_tools(client: OpenAI, upstream: ModelServer, *, stream: bool) -> None:
    number = upstream.enqueue(streamed_call("look_up", word="fog"), streamed("It is a word."), streamed("Yes."), streamed("Bye."))
    first = ask(client, stream=stream, model=WITH_TOOLS, input="What is fog?")
    made = first.output[0]
    assert isinstance(made, McpCall)
    assert (made.name, made.server_label, made.output, made.error) == ("look_up", "words", "fog is a word", None)
    assert client.responses.retrieve(first.id).output == first.output
    second = ask(client, stream=stream, model=WITH_TOOLS, input="Sure?", previous_response_id=first.id)
    ask(client, stream=stream, model=WITH_TOOLS, input="Bye", previous_response_id=second.id)
    history = [
        ("user", "What is fog?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", "It is a word."),
        ("user", "Sure?"),
    ]
    assert seen_by_model(upstream, number + 2) == history
    assert seen_by_model(upstream, number + 3) == [*history, ("assistant", "Yes."), ("user", "Bye")]


def function_call(response: Response) -> ResponseFunctionToolCall:
    (made,) = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
    return made


def output_of(made: ResponseFunctionToolCall, output: str = "18 degrees") -> Any:
    return {"type": "function_call_output", "call_id": made.call_id, "output": output}


WEATHER_HISTORY = [("user", "Weather?"), ("assistant", ["get_weather"]), ("tool", "18 degrees")]


def test_output_of_a_client_call_continues_the_chain(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(whole("", (("get_weather", '{"city":"Paris"}'),)), whole("Mild."), whole("Bye."))
    first = client.responses.create(model=PLAIN, input="Weather?", tools=RESPONSES_TOOLS)
    second = client.responses.create(
        model=PLAIN, input=[output_of(function_call(first))], tools=RESPONSES_TOOLS, previous_response_id=first.id
    )
    assert second.output_text == "Mild."
    client.responses.create(model=PLAIN, input="Bye", previous_response_id=second.id)
    assert seen_by_model(upstream, number + 1) == WEATHER_HISTORY
    assert seen_by_model(upstream, number + 2) == [*WEATHER_HISTORY, ("assistant", "Mild."), ("user", "Bye")]


def test_calls_of_both_owners_continue_the_chain(client: OpenAI, upstream: ModelServer) -> None:
    """The gateway runs its call; in a later answer the model calls the client's tool."""
    number = upstream.enqueue(
        streamed_call("look_up", word="fog"), streamed_call("get_weather", city="Paris"), streamed("Foggy.")
    )
    first = client.responses.create(model=WITH_TOOLS, input="Weather?", tools=RESPONSES_TOOLS)
    assert [item.type for item in first.output] == ["mcp_call", "function_call"]
    client.responses.create(
        model=WITH_TOOLS, input=[output_of(function_call(first))], tools=RESPONSES_TOOLS, previous_response_id=first.id
    )
    assert seen_by_model(upstream, number + 2) == [
        ("user", "Weather?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", ["get_weather"]),
        ("tool", "18 degrees"),
    ]


def test_unanswered_call_is_refused(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole("", (("get_weather", '{"city":"Paris"}'),)))
    first = client.responses.create(model=PLAIN, input="Weather?", tools=RESPONSES_TOOLS)
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=PLAIN, input="Well?", previous_response_id=first.id)
    assert refused.value.code == "missing_tool_output"
    assert function_call(first).call_id in refused.value.message
    with pytest.raises(BadRequestError) as orphan:
        client.responses.create(
            model=PLAIN,
            input=[output_of(function_call(first)), {"type": "function_call_output", "call_id": "call_x", "output": "?"}],
            previous_response_id=first.id,
        )
    assert (orphan.value.code, orphan.value.param) == ("unknown_call", "input[1].call_id")


@pytest.mark.parametrize("store", [True, False])
def test_echoed_output_shows_the_model_gateway_calls_as_recorded(client: OpenAI, upstream: ModelServer, *, store: bool) -> None:
    number = upstream.enqueue(
        streamed_call("look_up", word="fog"), streamed_call("get_weather", city="Paris"), streamed("Foggy."), streamed("Bye.")
    )
    items: list[Any] = [{"role": "user", "content": "Weather?"}]
    first = client.responses.create(model=WITH_TOOLS, input=items, tools=RESPONSES_TOOLS, store=store)
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items.append(output_of(function_call(first)))
    second = client.responses.create(model=WITH_TOOLS, input=items, tools=RESPONSES_TOOLS, store=store)
    expected = [
        ("user", "Weather?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", ["get_weather"]),
        ("tool", "18 degrees"),
    ]
    assert seen_by_model(upstream, number + 2) == expected
    items += [item.model_dump(exclude_none=True) for item in second.output] + [{"role": "user", "content": "Bye"}]
    client.responses.create(model=WITH_TOOLS, input=items, tools=RESPONSES_TOOLS, store=store)
    assert seen_by_model(upstream, number + 3) == [*expected, ("assistant", "Foggy."), ("user", "Bye")]


def test_references_stand_for_stored_items(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(
        streamed_call("look_up", word="fog"), streamed_call("get_weather", city="Paris"), streamed("Foggy."), streamed("Bye.")
    )
    question: Any = {"role": "user", "content": "Weather?"}
    first = client.responses.create(model=WITH_TOOLS, input=[question], tools=RESPONSES_TOOLS)
    items: list[Any] = [question, *map(reference, first.output), output_of(function_call(first))]
    second = client.responses.create(model=WITH_TOOLS, input=items, tools=RESPONSES_TOOLS)
    items += [*map(reference, second.output), {"role": "user", "content": "Bye"}]
    third = client.responses.create(model=WITH_TOOLS, input=items, tools=RESPONSES_TOOLS)
    assert seen_by_model(upstream, number + 3) == [
        ("user", "Weather?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", ["get_weather"]),
        ("tool", "18 degrees"),
        ("assistant", "Foggy."),
        ("user", "Bye"),
    ]
    listed = [item.type for item in client.responses.input_items.list(third.id, order="asc")]
    assert "item_reference" not in listed
    assert len(listed) == 7


def reference(item: Any) -> Any:
    return {"type": "item_reference", "id": item.id}


def test_reference_to_an_input_item_stands_for_it(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(whole("One"), whole("Two"))
    first = client.responses.create(model=PLAIN, input="1")
    (given,) = client.responses.input_items.list(first.id)
    client.responses.create(model=PLAIN, input=[reference(given), reference(first.output[0]), {"role": "user", "content": "2"}])
    assert seen_by_model(upstream, number + 1) == [("user", "1"), ("assistant", "One"), ("user", "2")]


@pytest.mark.parametrize("identifier", ["msg_1", f"msg_{'0' * 24}", "", "x" * 10_000, "msg_../../etc"])
@pytest.mark.parametrize("store", [True, False])
def test_unknown_reference_is_refused(client: OpenAI, identifier: str, *, store: bool) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(
            model=PLAIN, input=[{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": identifier}], store=store
        )
    assert (refused.value.code, refused.value.param) == ("item_not_found", "input[1]")


def test_input_items_are_listed_in_pages(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole())
    texts = [f"item {number}" for number in range(7)]
    created = client.responses.create(model=PLAIN, input=[{"role": "user", "content": text} for text in texts])

    def listed(**options: Any) -> list[str]:
        items: list[Any] = list(client.responses.input_items.list(created.id, **options))
        return [item.content[0].text for item in items]

    assert listed() == texts[::-1]
    assert listed(order="asc") == texts
    assert listed(order="asc", limit=3) == texts  # the SDK fetches the next pages
    assert listed(order="desc", limit=2) == texts[::-1]
    page: Any = client.responses.input_items.list(created.id, order="asc", limit=3)
    assert (page.first_id, page.last_id, page.has_more) == (page.data[0].id, page.data[2].id, True)
    after: Any = client.responses.input_items.list(created.id, order="asc", limit=10, after=page.last_id)
    assert len(after.data) == 4
    assert not after.has_more
    assert len({item.id for item in [*page.data, *after.data]}) == 7
    last = client.responses.input_items.list(created.id, order="asc", after=after.last_id)
    assert (last.data, last.has_more) == ([], False)


def test_unknown_ids_raise_not_found(client: OpenAI) -> None:
    for operation in (
        client.responses.retrieve,
        client.responses.delete,
        client.responses.cancel,
        client.responses.input_items.list,
    ):
        for identifier in (UNKNOWN, "resp_", "0" * 20, "resp_%00", "a/b", "💥"):
            with pytest.raises(NotFoundError):
                operation(identifier)
    for identifier in (UNKNOWN, "x", "💥"):
        with pytest.raises(BadRequestError) as refused:
            client.responses.create(model=PLAIN, input="Hi", previous_response_id=identifier)
        assert refused.value.code == "previous_response_not_found"


def test_another_key_finds_nothing(gateway: Gateway, client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(streamed_call("look_up", word="fog"), streamed("It is a word."))
    secret = client.responses.create(model=WITH_TOOLS, input="What is fog?")
    other = client_of(gateway, BOB)
    for operation in (
        other.responses.retrieve,
        other.responses.delete,
        other.responses.cancel,
        other.responses.input_items.list,
    ):
        with pytest.raises(NotFoundError) as missing:
            operation(secret.id)
        with pytest.raises(NotFoundError) as unknown:
            operation(UNKNOWN)
        assert missing.value.message.replace(secret.id, UNKNOWN) == unknown.value.message
    with pytest.raises(NotFoundError):
        other.responses.retrieve(secret.id, stream=True)
    with pytest.raises(BadRequestError) as refused:
        other.responses.create(model=PLAIN, input="And?", previous_response_id=secret.id)
    assert refused.value.code == "previous_response_not_found"
    for item in secret.output:
        with pytest.raises(BadRequestError) as hidden:
            other.responses.create(model=PLAIN, input=[{"type": "item_reference", "id": item.id or ""}])
        assert hidden.value.code == "item_not_found"
    client.responses.delete(secret.id)
    with pytest.raises(BadRequestError) as deleted:
        other.responses.create(model=PLAIN, input="And?", previous_response_id=secret.id)
    assert deleted.value.code == "previous_response_not_found"


def test_echoed_gateway_call_of_another_key_is_taken_as_the_client_says(
    gateway: Gateway, client: OpenAI, upstream: ModelServer
) -> None:
    number = upstream.enqueue(streamed_call("look_up", word="fog"), streamed("It is a word."), whole("Hm."))
    secret = client.responses.create(model=WITH_TOOLS, input="What is fog?")
    echoed: Any = {**secret.output[0].model_dump(exclude_none=True), "output": "said by the client"}
    question: Any = {"role": "user", "content": "And?"}
    client_of(gateway, BOB).responses.create(model=PLAIN, input=[echoed, question])
    assert ("tool", "said by the client") in seen_by_model(upstream, number + 2)


def test_chat_shows_the_model_gateway_calls_before_the_calls_of_the_client(client: OpenAI, upstream: ModelServer) -> None:
    """Chat cannot carry gateway calls: they are recalled by the client's call, also from an earlier answer of the turn."""
    number = upstream.enqueue(
        streamed_call("look_up", word="fog"), streamed_call("get_weather", city="Paris"), streamed("Foggy.")
    )
    messages: list[Any] = [{"role": "user", "content": "Weather?"}]
    first = client.chat.completions.create(model=WITH_TOOLS, messages=messages, tools=CHAT_TOOLS)
    message = first.choices[0].message
    messages += [message, {"role": "tool", "tool_call_id": (message.tool_calls or [])[0].id, "content": "18 degrees"}]
    client.chat.completions.create(model=WITH_TOOLS, messages=messages, tools=CHAT_TOOLS)
    assert seen_by_model(upstream, number + 2) == [
        ("user", "Weather?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", ["get_weather"]),
        ("tool", "18 degrees"),
    ]
