"""OpenAI's Python SDK and the Conversations API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

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
from tests.oracles.tools import RESPONSES_TOOLS

UNKNOWN = "conv_" + "0" * 20


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


def message(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


def text_of(item: Any) -> str:
    return str(item.content[0].text)


def test_conversation_is_created_retrieved_updated_and_deleted(client: OpenAI) -> None:
    created = client.conversations.create(metadata={"topic": "demo"}, items=[message("Hello")])
    assert created.id.startswith("conv_")
    assert created.metadata == {"topic": "demo"}
    assert client.conversations.retrieve(created.id) == created
    updated = client.conversations.update(created.id, metadata={"topic": "other"})
    assert updated.metadata == {"topic": "other"}
    assert (updated.id, updated.created_at) == (created.id, created.created_at)
    assert client.conversations.retrieve(created.id) == updated
    assert client.conversations.delete(created.id).deleted is True
    with pytest.raises(NotFoundError) as missing:
        client.conversations.retrieve(created.id)
    assert missing.value.code == "conversation_not_found"


def test_items_are_added_listed_retrieved_and_deleted(client: OpenAI) -> None:
    conversation = client.conversations.create(items=[message("0"), message("1")])
    added = client.conversations.items.create(conversation.id, items=[message(str(number)) for number in range(2, 7)])
    assert [text_of(item) for item in added.data] == ["2", "3", "4", "5", "6"]
    assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[-1].id, False)
    newest_first = list(client.conversations.items.list(conversation.id, limit=3))
    assert [text_of(item) for item in newest_first] == ["6", "5", "4", "3", "2", "1", "0"]
    in_order = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    assert in_order == newest_first[::-1]
    second: Any = in_order[1]
    page: Any = client.conversations.items.list(conversation.id, order="asc", limit=4, after=second.id)
    assert (page.data, page.has_more) == (in_order[2:6], True)
    assert (page.first_id, page.last_id) == (in_order[2].id, in_order[5].id)
    third: Any = in_order[2]
    assert client.conversations.items.retrieve(third.id, conversation_id=conversation.id) == third
    left = client.conversations.items.delete(third.id, conversation_id=conversation.id)
    assert left == conversation
    with pytest.raises(NotFoundError) as missing:
        client.conversations.items.retrieve(third.id, conversation_id=conversation.id)
    assert missing.value.code == "item_not_found"
    assert list(client.conversations.items.list(conversation.id, order="asc")) == [*in_order[:2], *in_order[3:]]


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_responses_see_and_extend_their_conversation(
    client: OpenAI, upstream: ModelServer, *, as_object: bool, stream: bool
) -> None:
    answer = streamed if stream else whole
    number = upstream.enqueue(answer("One"), answer("Two"))
    conversation = client.conversations.create(items=[message("Count with me.")])
    given: Any = {"id": conversation.id} if as_object else conversation.id
    responses = []
    for text in ("1", "2"):
        response: Any = client.responses.create(model=PLAIN, input=text, conversation=given, stream=stream)
        if stream:
            *_, last = response
            response = last.response
        assert response.conversation.id == conversation.id
        assert client.responses.retrieve(response.id).conversation == response.conversation
        responses.append(response)
    assert seen_by_model(upstream, number + 1) == [
        ("user", "Count with me."),
        ("user", "1"),
        ("assistant", "One"),
        ("user", "2"),
    ]
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [text_of(item) for item in items] == ["Count with me.", "1", "One", "2", "Two"]
    for response, (asked, answered) in zip(responses, (items[1:3], items[3:5]), strict=True):
        assert answered == client.conversations.items.retrieve(response.output[0].id, conversation_id=conversation.id)
        assert answered.id == response.output[0].id
        assert asked.id == client.responses.input_items.list(response.id).data[0].id


def test_conversation_keeps_gateway_calls(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(streamed_call("look_up", word="fog"), streamed("It is a word."), streamed("Yes."))
    conversation = client.conversations.create()
    client.responses.create(model=WITH_TOOLS, input="What is fog?", conversation=conversation.id)
    client.responses.create(model=WITH_TOOLS, input="Sure?", conversation=conversation.id)
    assert seen_by_model(upstream, number + 2) == [
        ("user", "What is fog?"),
        ("assistant", ["look_up"]),
        ("tool", "fog is a word"),
        ("assistant", "It is a word."),
        ("user", "Sure?"),
    ]
    kinds = [item.type for item in client.conversations.items.list(conversation.id, order="asc")]
    assert kinds == ["message", "mcp_call", "message", "message", "message"]


def test_conversation_continues_with_the_output_of_a_client_call(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(whole("", (("get_weather", '{"city":"Paris"}'),)), whole("Mild."))
    conversation = client.conversations.create()
    first: Any = client.responses.create(model=PLAIN, input="Weather?", tools=RESPONSES_TOOLS, conversation=conversation.id)
    with pytest.raises(BadRequestError) as unanswered:
        client.responses.create(model=PLAIN, input="Well?", conversation=conversation.id)
    assert unanswered.value.code == "missing_tool_output"
    output: Any = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "18 degrees"}
    client.responses.create(model=PLAIN, input=[output], tools=RESPONSES_TOOLS, conversation=conversation.id)
    assert seen_by_model(upstream, number + 1) == [("user", "Weather?"), ("assistant", ["get_weather"]), ("tool", "18 degrees")]
    kinds = [item.type for item in client.conversations.items.list(conversation.id, order="asc")]
    assert kinds == ["message", "function_call", "function_call_output", "message"]


def test_response_of_a_conversation_is_continued_with_all_that_came_before(client: OpenAI, upstream: ModelServer) -> None:
    number = upstream.enqueue(whole("One"), whole("Two"), whole("Other"))
    conversation = client.conversations.create(items=[message("Count with me.")])
    first = client.responses.create(model=PLAIN, input="1", conversation=conversation.id)
    client.responses.create(model=PLAIN, input="2", conversation=conversation.id)
    client.responses.create(model=PLAIN, input="or", previous_response_id=first.id)
    assert seen_by_model(upstream, number + 2) == [
        ("user", "Count with me."),
        ("user", "1"),
        ("assistant", "One"),
        ("user", "or"),
    ]


def test_items_that_the_client_sends_again_are_added_again(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole("One"), whole("Two"))
    conversation = client.conversations.create()
    first = client.responses.create(model=PLAIN, input="1", conversation=conversation.id)
    echoed: Any = first.output[0].model_dump(exclude_none=True)
    client.responses.create(model=PLAIN, input=[echoed, message("2")], conversation=conversation.id)
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [text_of(item) for item in items] == ["1", "One", "One", "2", "Two"]
    assert len({item.id for item in items}) == 5


def test_items_with_ids_that_exist_get_new_ones(client: OpenAI) -> None:
    twice: Any = {**message("Hi"), "id": "msg_mine"}
    conversation = client.conversations.create(items=[twice, twice])
    client.conversations.items.create(conversation.id, items=[twice])
    assert len({item.id for item in client.conversations.items.list(conversation.id)}) == 3


def test_unstored_response_extends_its_conversation(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole("One"))
    conversation = client.conversations.create()
    response = client.responses.create(model=PLAIN, input="1", conversation=conversation.id, store=False)
    assert [text_of(item) for item in client.conversations.items.list(conversation.id, order="asc")] == ["1", "One"]
    with pytest.raises(NotFoundError):
        client.responses.retrieve(response.id)


def test_conversation_and_previous_response_exclude_each_other(client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole())
    first = client.responses.create(model=PLAIN, input="1")
    conversation = client.conversations.create()
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=PLAIN, input="2", conversation=conversation.id, previous_response_id=first.id)
    assert refused.value.code == "mutually_exclusive_parameters"


def test_reference_as_an_item_of_a_conversation_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.conversations.create(items=[{"type": "item_reference", "id": "msg_1"}])
    assert refused.value.param == "items[0]"


def test_unknown_conversations_and_items_are_not_found(client: OpenAI) -> None:
    conversation = client.conversations.create()
    items = client.conversations.items
    for identifier in (UNKNOWN, "conv_", "x", "💥"):
        check_not_found(client, identifier)
    with pytest.raises(NotFoundError):
        items.delete("msg_unknown", conversation_id=conversation.id)
    with pytest.raises(BadRequestError) as refused:
        items.list(conversation.id, after="msg_unknown")
    assert refused.value.param == "after"


def check_not_found(client: OpenAI, conversation: str, item: str = "msg_1") -> None:
    items = client.conversations.items
    attempts: list[Any] = [
        lambda: client.conversations.retrieve(conversation),
        lambda: client.conversations.update(conversation, metadata={}),
        lambda: client.conversations.delete(conversation),
        lambda: items.list(conversation),
        lambda: items.list(conversation, after=item),
        lambda: items.create(conversation, items=[message("Hi")]),
        lambda: items.retrieve(item, conversation_id=conversation),
        lambda: items.delete(item, conversation_id=conversation),
        lambda: client.responses.create(model=PLAIN, input="Hi", conversation=conversation),
        lambda: client.responses.create(model=PLAIN, input="Hi", conversation=conversation, store=False),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError) as missing:
            attempt()
        assert missing.value.code == "conversation_not_found"


def test_another_key_finds_no_conversation(gateway: Gateway, client: OpenAI, upstream: ModelServer) -> None:
    upstream.enqueue(whole("One"))
    conversation = client.conversations.create(metadata={"a": "b"})
    response: Any = client.responses.create(model=PLAIN, input="1", conversation=conversation.id)
    check_not_found(client_of(gateway, BOB), conversation.id, response.output[0].id)
    assert client.conversations.retrieve(conversation.id) == conversation
    assert len(list(client.conversations.items.list(conversation.id))) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"metadata": {"a": 5}}, "metadata[...]"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"items": "Hi"}, "items"),
        ({"items": [{}]}, "items[0]"),
        ({"items": [message("Hi")] * 21}, "items"),
        ({"items": [{"type": "message", "role": "nobody", "content": "Hi"}]}, "items[0].role"),
    ],
)
def test_bad_conversation_is_refused(client: OpenAI, body: Any, param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.conversations.create(extra_body=body)
    assert refused.value.param == param
