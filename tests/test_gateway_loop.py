"""One request, one answer: the gateway runs the model's calls in between, on every kind of model.

The models answer as the demo model does, over every wire and in the dialects of tests.printing. They report the results that they
find in their conversation, in order, and make a call again whose result is missing.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import printing
from tests.gateway import Gateway, behind, running
from tests.oracles.test_openai_python import ask_chat, ask_responses, calls_of, make_client
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS
from tests.tool_gateway import ToolGateway, running_tools

ASKED = 'get_weather {"city": "Paris"} and get_time {"city": "Rome"}'
RAN = ["get_weather Paris", "get_time Rome"]
WIRES = ("chat", "responses")


@pytest.fixture(scope="module")
def printers() -> Iterator[Gateway]:
    with running(program=printing.PROGRAM) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def demo() -> Iterator[Gateway]:
    with running() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def tooled(printers: Gateway, demo: Gateway) -> Iterator[ToolGateway]:
    models = (
        '[models.demo]\nprovider = "demo"\n[models.status]\nprovider = "demo"\nstatus = "text"\n'
        + behind(demo.url)
        + printing.before(printers)
    )
    with running_tools(models.replace("provider =", 'toolsets = ["mine"]\nprovider =')) as tooled:
        yield tooled


@pytest.fixture(autouse=True)
def no_runs(tooled: ToolGateway) -> None:
    tooled.runs()


@pytest.fixture(params=["demo", *WIRES, *printing.DIALECTS])
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places) and all(text.count(part) == 1 for part in parts)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_client_gets_one_answer_after_two_rounds(tooled: ToolGateway, model: str, *, stream: bool) -> None:
    client = make_client(tooled.gateway)
    answer = ask_chat(
        client, stream=stream, model=model, messages=[{"role": "user", "content": ASKED}], parallel_tool_calls=False
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    assert not choice.message.tool_calls
    assert in_order(choice.message.content or "", "18 degrees in Paris", "noon in Rome"), choice
    assert tooled.runs() == RAN
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_responses_client_gets_one_answer_after_two_rounds(tooled: ToolGateway, model: str, *, stream: bool) -> None:
    client = make_client(tooled.gateway)
    answer = ask_responses(client, stream=stream, model=model, input=ASKED, parallel_tool_calls=False, store=not stream)
    assert answer.status == "completed"
    assert in_order(answer.output_text, "18 degrees in Paris", "noon in Rome"), answer
    assert [(item.name, item.output) for item in answer.output if item.type == "mcp_call"] == [
        ("get_weather", "18 degrees in Paris"),
        ("get_time", "noon in Rome"),
    ]
    assert not calls_of(answer)
    assert tooled.runs() == RAN


def test_calls_of_one_answer_run_in_order(tooled: ToolGateway, model: str) -> None:
    answer = ask_chat(make_client(tooled.gateway), stream=True, model=model, messages=[{"role": "user", "content": ASKED}])
    assert in_order(answer.choices[0].message.content or "", "18 degrees in Paris", "noon in Rome"), answer
    assert tooled.runs() == RAN


# Calls of both owners. The client declares get_time, which is then its own.

WEATHER, TIME = 'get_weather {"city": "Paris"}', 'get_time {"city": "Rome"}'


def expected_results(model: str, asked: str) -> list[str]:
    """Return the results in the order in which the model gets them: that of the calls if it prints them."""
    results = ["18 degrees in Paris", "eight in Rome"]
    return results if model in ("demo", *WIRES) or asked.startswith(WEATHER) else results[::-1]


@pytest.mark.parametrize(
    ("asked", "parallel"),
    [(f"{WEATHER} and {TIME}", True), (f"{TIME} and {WEATHER}", True), (f"{WEATHER} and {TIME}", False)],
    ids=["gateway_first", "client_first", "one_after_the_other"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_chat_client_gets_its_own_call_only_and_the_model_sees_all(
    tooled: ToolGateway, model: str, asked: str, *, parallel: bool, stream: bool
) -> None:
    members: dict[str, Any] = {"stream": stream, "model": model, "tools": CHAT_TOOLS[1:], "parallel_tool_calls": parallel}
    messages: list[Any] = [{"role": "user", "content": asked}]
    client = make_client(tooled.gateway)
    first = ask_chat(client, **members, messages=messages).choices[0]
    assert first.finish_reason == "tool_calls"
    calls = first.message.tool_calls or []
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"] == [
        ("get_time", {"city": "Rome"})
    ]
    function = {"name": "get_time", "arguments": '{"city": "Rome"}'}
    messages.append({"role": "assistant", "tool_calls": [{"id": calls[0].id, "type": "function", "function": function}]})
    messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": "eight in Rome"})
    second = ask_chat(client, **members, messages=messages).choices[0]
    assert second.finish_reason == "stop", second
    assert in_order(second.message.content or "", *expected_results(model, asked)), second
    assert tooled.runs() == ["get_weather Paris"]


@pytest.mark.parametrize("asked", [f"{WEATHER} and {TIME}", f"{TIME} and {WEATHER}"], ids=["gateway_first", "client_first"])
@pytest.mark.parametrize("echoes", ["all", "own_call", "references"])
def test_responses_client_gets_its_own_call_only_and_the_model_sees_all(
    tooled: ToolGateway, model: str, asked: str, echoes: str
) -> None:
    stream = echoes == "all"
    members: dict[str, Any] = {"stream": stream, "model": model, "tools": RESPONSES_TOOLS[1:], "store": False}
    items: list[Any] = [{"role": "user", "content": asked}]
    client = make_client(tooled.gateway)
    first = ask_responses(client, **members, input=items)
    calls = calls_of(first)
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("get_time", {"city": "Rome"})]
    echoed = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    assert sorted(item["type"] for item in echoed) == ["function_call", "mcp_call"]
    if echoes == "own_call":
        echoed = [item for item in echoed if item["type"] == "function_call"]
    elif echoes == "references":
        echoed = [{"type": "item_reference", "id": item["id"]} for item in echoed]
    items += [*echoed, {"type": "function_call_output", "call_id": calls[0].call_id, "output": "eight in Rome"}]
    second = ask_responses(client, **members, input=items)
    assert not calls_of(second), second
    assert in_order(second.output_text, *expected_results(model, asked)), second
    assert tooled.runs() == ["get_weather Paris"]


def test_recall_works_without_gateway_tools_in_the_next_request(tooled: ToolGateway) -> None:
    client = make_client(tooled.gateway)
    messages: list[Any] = [{"role": "user", "content": f"{WEATHER} and {TIME}"}]
    first = ask_chat(client, stream=False, model="chat", messages=messages, tools=CHAT_TOOLS[1:]).choices[0].message
    messages.append(first.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": (first.tool_calls or [])[0].id, "content": "eight in Rome"})
    off = {"x-toolrelay-tools": "off"}
    second = ask_chat(client, stream=False, model="chat", messages=messages, tools=CHAT_TOOLS[1:], extra_headers=off)
    assert in_order(second.choices[0].message.content or "", "18 degrees in Paris", "eight in Rome"), second


def recorded(tooled: ToolGateway, question: str) -> list[list[str]]:
    """Return, for each conversation in which the question was asked, what its messages are."""
    path = Path(psutil.Process(tooled.gateway.process.pid).cwd()) / "data" / "toolrelay.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute(
            "select conversation, role, content, tool_calls from messages join turns on turns.id = turn "
            "order by created_at, position"
        ).fetchall()
    asked = {conversation for conversation, _, content, _ in rows if content == question}
    return [
        [role if tool_calls is None else "calls" for conversation, role, _, tool_calls in rows if conversation == each]
        for each in sorted(asked)
    ]


@pytest.mark.parametrize("model", ["status", "chat"])
def test_requests_of_one_chat_are_one_conversation(tooled: ToolGateway, model: str) -> None:
    client, question = make_client(tooled.gateway), f"{WEATHER} and {TIME} for {model}"
    messages: list[Any] = [{"role": "user", "content": question}]
    asked: dict[str, Any] = {"stream": True, "model": model, "tools": CHAT_TOOLS[1:]}
    first = ask_chat(client, **asked, messages=messages).choices[0].message
    call = (first.tool_calls or [])[0]
    function = {"name": "get_time", "arguments": '{"city": "Rome"}'}
    calls = [{"id": call.id, "type": "function", "function": function}]
    messages.append({"role": "assistant", "content": first.content, "tool_calls": calls})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "eight in Rome"})
    messages.append({"role": "assistant", "content": ask_chat(client, **asked, messages=messages).choices[0].message.content})
    messages.append({"role": "user", "content": 'get_weather {"city": "Oslo"}'})
    messages.append({"role": "assistant", "content": ask_chat(client, **asked, messages=messages).choices[0].message.content})
    messages.append({"role": "user", "content": "repeat: bye"})
    ask_chat(client, **asked, messages=messages)
    first_part = ["user", "calls", "tool", "tool", "assistant"]
    assert recorded(tooled, question) == [[*first_part, "user", "calls", "tool", "assistant", "user", "assistant"]]
