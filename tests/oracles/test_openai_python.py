"""OpenAI's own Python SDK as a client, with its stream helpers, over all four pairs of wires."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseFunctionToolCall

from tests.gateway import Gateway
from tests.oracles.tools import BOTH, CHAT_TOOLS, ONE, RESPONSES_TOOLS


def make_client(gateway: Gateway) -> OpenAI:
    return OpenAI(base_url=gateway.v1, api_key="none", max_retries=0)


def ask_chat(client: OpenAI, *, stream: bool, **members: Any) -> ChatCompletion:
    if not stream:
        return ChatCompletion.model_validate(client.chat.completions.create(**members))
    with client.chat.completions.stream(**members, stream_options={"include_usage": True}) as events:
        for _ in events:
            pass
        return events.get_final_completion()


def ask_responses(client: OpenAI, *, stream: bool, **members: Any) -> Response:
    if not stream:
        return Response.model_validate(client.responses.create(**members))
    with client.responses.stream(**members) as events:
        for _ in events:
            pass
        return events.get_final_response()


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]


@pytest.mark.parametrize("stream", [False, True])
def test_chat_loop_ends_with_the_tool_results(relay: Gateway, model: str, *, stream: bool) -> None:
    client = make_client(relay)
    messages: list[Any] = [{"role": "user", "content": BOTH}]
    first = ask_chat(client, stream=stream, model=model, messages=messages, tools=CHAT_TOOLS)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    calls = choice.message.tool_calls or []
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"] == [
        ("get_weather", {"city": "Paris"}),
        ("get_time", {"city": "Paris"}),
    ]
    assert len({call.id for call in calls}) == 2
    messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
    for call, result in zip(calls, ("18 degrees", "noon"), strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    for call in messages[1]["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    second = ask_chat(client, stream=stream, model=model, messages=messages, tools=CHAT_TOOLS)
    answer = second.choices[0].message.content or ""
    assert second.choices[0].finish_reason == "stop"
    assert "18 degrees" in answer
    assert "noon" in answer
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_responses_loop_ends_with_the_tool_results(relay: Gateway, model: str, *, stream: bool) -> None:
    client = make_client(relay)
    items: list[Any] = [{"role": "user", "content": BOTH}]
    first = ask_responses(client, stream=stream, model=model, input=items, tools=RESPONSES_TOOLS)
    assert first.status == "completed"
    calls = calls_of(first)
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("get_weather", {"city": "Paris"}),
        ("get_time", {"city": "Paris"}),
    ]
    assert len({call.call_id for call in calls}) == len({call.id for call in calls}) == 2
    items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    for call, result in zip(calls, ("18 degrees", "noon"), strict=True):
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    second = ask_responses(client, stream=stream, model=model, input=items, tools=RESPONSES_TOOLS)
    assert second.status == "completed"
    assert "18 degrees" in second.output_text
    assert "noon" in second.output_text
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.input_tokens + second.usage.output_tokens > 0


def test_all_pairs_of_wires_give_the_same_answer_streamed_or_not(relay: Gateway) -> None:
    client = make_client(relay)
    seen: set[tuple[str, str, object, str, int]] = set()
    for back in ("chat", "responses"):
        for stream in (False, True):
            for question in (ONE, 'repeat: Grüße, 世界 🌍, and "quotes"', "count to 20"):
                chat = ask_chat(
                    client, stream=stream, model=back, messages=[{"role": "user", "content": question}], tools=CHAT_TOOLS
                )
                message = chat.choices[0].message
                chat_calls = tuple(
                    (call.function.name, call.function.arguments) for call in message.tool_calls or [] if call.type == "function"
                )
                assert chat.usage is not None
                seen.add((question, message.content or "", chat_calls, chat.choices[0].finish_reason, chat.usage.total_tokens))
                whole = ask_responses(client, stream=stream, model=back, input=question, tools=RESPONSES_TOOLS)
                calls = tuple((call.name, call.arguments) for call in calls_of(whole))
                assert whole.usage is not None
                assert whole.status == "completed"
                finish = "tool_calls" if calls else "stop"
                seen.add((question, whole.output_text, calls, finish, whole.usage.total_tokens))
    assert len(seen) == 3, seen


@pytest.mark.parametrize("stream", [False, True])
def test_answer_cut_by_max_tokens_has_the_finish_length(relay: Gateway, model: str, *, stream: bool) -> None:
    client = make_client(relay)
    chunks: Any = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "count to 50"}], max_tokens=5, stream=stream
    )
    last = [chunk for chunk in chunks if chunk.choices][-1] if stream else chunks
    assert last.choices[0].finish_reason == "length"
    events: Any = client.responses.create(model=model, input="count to 50", max_output_tokens=5, stream=stream)
    # The SDK's stream helper accepts only `response.completed` as the end, so the events are read here.
    whole: Response = next(event.response for event in events if event.type == "response.incomplete") if stream else events
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"


def test_structured_output_works_over_both_apis(relay: Gateway, model: str) -> None:
    client = make_client(relay)
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    chat = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Plan 3 days in Rome"}],
        response_format={"type": "json_schema", "json_schema": {"name": "plan", "schema": schema, "strict": True}},
    )
    assert set(json.loads(chat.choices[0].message.content or "")) == {"city", "days"}
    whole = client.responses.create(
        model=model,
        input="Plan 3 days in Rome",
        text={"format": {"type": "json_schema", "name": "plan", "schema": schema, "strict": True}},
    )
    assert json.loads(whole.output_text) == json.loads(chat.choices[0].message.content or "")


def test_tool_choice_is_honoured(relay: Gateway, model: str) -> None:
    client = make_client(relay)
    hello: list[Any] = [{"role": "user", "content": "Hello"}]
    named = client.chat.completions.create(
        model=model, messages=hello, tools=CHAT_TOOLS, tool_choice={"type": "function", "function": {"name": "get_time"}}
    )
    calls = named.choices[0].message.tool_calls or []
    assert [call.function.name for call in calls if call.type == "function"] == ["get_time"]
    none = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": ONE}], tools=CHAT_TOOLS, tool_choice="none"
    )
    assert none.choices[0].message.tool_calls is None
    assert none.choices[0].finish_reason == "stop"
    required = client.responses.create(model=model, input="Hello", tools=RESPONSES_TOOLS, tool_choice="required")
    assert len(calls_of(required)) == 1
    single = client.responses.create(model=model, input=BOTH, tools=RESPONSES_TOOLS, parallel_tool_calls=False)
    assert [call.name for call in calls_of(single)] == ["get_weather"]
    allowed: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]}
    only = client.responses.create(model=model, input=BOTH, tools=RESPONSES_TOOLS, tool_choice=allowed)
    assert [call.name for call in calls_of(only)] == ["get_time"]


def test_errors_raise_the_exceptions_of_the_sdk(relay: Gateway) -> None:
    client = make_client(relay)
    with pytest.raises(NotFoundError) as missing:
        client.responses.create(model="unknown", input="hi")
    assert missing.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as wrong:
        client.chat.completions.create(model="chat", messages=[{"role": "tool", "tool_call_id": "call_unknown", "content": "x"}])
    assert "call_unknown" in wrong.value.message
    assert wrong.value.param == "messages[0].tool_call_id"
    with pytest.raises(BadRequestError) as stateless:
        client.responses.create(model="chat", input="hi", previous_response_id="resp_1")
    assert stateless.value.param == "previous_response_id"
    with pytest.raises(APIStatusError) as several:
        client.chat.completions.create(model="responses", messages=[{"role": "user", "content": "hi"}], n=2)
    assert several.value.status_code == 400


def test_n_returns_several_choices_from_a_chat_upstream(relay: Gateway) -> None:
    completion = make_client(relay).chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "repeat: hello there"}], n=3
    )
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert {choice.message.content for choice in completion.choices} == {"hello there"}


def test_async_client_streams(relay: Gateway, model: str) -> None:
    import asyncio  # noqa: PLC0415 -- only for this test

    async def event_types() -> list[str]:
        async with AsyncOpenAI(base_url=relay.v1, api_key="none", max_retries=0) as client:
            stream = await client.responses.create(model=model, input="count to 3", stream=True)
            return [event.type async for event in stream]

    types = asyncio.run(event_types())
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"


def test_models_are_listed(relay: Gateway) -> None:
    assert [model.id for model in make_client(relay).models.list()][:3] == ["chat", "responses", "anthropic"]
    assert make_client(relay).models.retrieve("chat").object == "model"
