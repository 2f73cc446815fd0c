"""Rules for tools that the gateway runs, with scripted models: what the models are sent, and what the client gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from httpx import Response

from tests.model_server import ModelServer, frames
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS
from tests.scripted_models import MODELS, NATIVE, ScriptedModel
from tests.tool_gateway import ToolGateway, running_tools
from toolrelay.core.messages import Call, Message, Result, plain_text
from toolrelay.core.request import Request, ToolChoice

PARIS = '{"city": "Paris"}'
WEATHER, TIME = ("get_weather", PARIS), ("get_time", PARIS)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def tooled(server: ModelServer) -> Iterator[ToolGateway]:
    """Each model has a variant with a limit of one round, and one that owns the names that both declare."""
    tables = [model.table(server.url, "max_tool_result_bytes = 1000") for model in MODELS.values()]
    for suffix, more in (("limited", "max_tool_rounds = 1"), ("owner", 'same_name = "gateway"'), ("status", 'status = "text"')):
        tables += [
            model.table(server.url, more).replace(f"[models.{name}]", f"[models.{name}_{suffix}]")
            for name, model in MODELS.items()
        ]
    with running_tools("".join(tables)) as tooled:
        yield tooled


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest) -> ScriptedModel:
    return MODELS[request.param]


@pytest.fixture(params=NATIVE)
def native(request: pytest.FixtureRequest) -> ScriptedModel:
    return MODELS[request.param]


@pytest.fixture(autouse=True)
def no_runs(tooled: ToolGateway) -> None:
    tooled.runs()


class Asked:
    """A client's request and what the model server was sent for it."""

    def __init__(self, response: Response, server: ModelServer, model: ScriptedModel, first: int) -> None:
        self.response = response
        self._server = server
        self._model = model
        self._first = first

    @property
    def choice(self) -> dict[str, Any]:
        assert self.response.status_code == 200, self.response.text
        found: dict[str, Any] = self.response.json()["choices"][0]
        return found

    @property
    def text(self) -> str:
        return str(self.choice["message"]["content"])

    @property
    def count(self) -> int:
        return len(self._server.requests) - self._first

    def request(self, number: int) -> Request:
        return self._model.request(self._server, self._first + number)

    def sent(self, number: int) -> str:
        """Return the whole body of a request."""
        return self._server.request(self._first + number).result(30).body.decode()


def ask(
    tooled: ToolGateway,
    server: ModelServer,
    model: ScriptedModel,
    *answers: bytes,
    variant: str = "",
    headers: dict[str, str] | None = None,
    **members: Any,
) -> Asked:
    first = server.enqueue(*answers)
    body = {"model": model.name + variant, "messages": [{"role": "user", "content": "Hi"}], **members}
    return Asked(tooled.gateway.post("/v1/chat/completions", body, **(headers or {})), server, model, first)


# The requests to the model


def test_native_model_is_sent_calls_and_results_in_order(tooled: ToolGateway, server: ModelServer, native: ScriptedModel) -> None:
    script = [
        native.answer("Let me see.", [WEATHER, TIME]),
        native.answer("", [("get_time", '{"city": "Rome"}')]),
        native.answer("Done."),
    ]
    asked = ask(tooled, server, native, *script)
    assert (asked.count, asked.choice["finish_reason"]) == (3, "stop")
    assert asked.response.json()["usage"]["total_tokens"] == 30
    assert tooled.runs() == ["get_weather Paris", "get_time Paris", "get_time Rome"]
    last = asked.request(2)
    shown = [
        plain_text(item.content)
        if isinstance(item, Message)
        else (item.name, json.dumps(json.loads(item.arguments)))  # a wire may have an object, not its text
        if isinstance(item, Call)
        else item.output
        for item in last.items
        if isinstance(item, Call | Result | Message)
    ]
    rome = ("get_time", '{"city": "Rome"}')
    assert shown == ["Hi", "Let me see.", WEATHER, TIME, "18 degrees in Paris", "noon in Paris", rome, "noon in Rome"]
    call_ids = [item.id for item in last.items if isinstance(item, Call)]
    assert [item.call_id for item in last.items if isinstance(item, Result)] == call_ids
    assert len(set(call_ids)) == 3
    for number in range(3):
        request = asked.request(number)
        assert [tool.name for tool in request.functions()] == ["get_weather", "get_time", "big", "wait", "hang"]
        assert request.stream


def test_tools_of_both_are_offered(tooled: ToolGateway, server: ModelServer, native: ScriptedModel) -> None:
    tool = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}}
    asked = ask(tooled, server, native, native.answer("Hello"), tools=[tool])
    assert [tool.name for tool in asked.request(0).functions()] == ["mine", "get_weather", "get_time", "big", "wait", "hang"]


# Bad calls


def test_unknown_tool_gets_an_error_result(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    asked = ask(tooled, server, model, model.answer("", [("nothing", "{}")]), model.answer("I see."))
    assert (asked.count, asked.text, asked.choice["finish_reason"]) == (2, "I see.", "stop")
    assert "Unknown tool: nothing" in asked.sent(1)


def test_thin_client_never_gets_a_call(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    script = [model.answer("", [WEATHER]), model.answer("", [("nothing", "{}")]), model.answer("18 degrees.")]
    first = server.enqueue(*script)
    body = {"model": f"{model.name}_owner", "messages": [{"role": "user", "content": "Hi"}], "tools": CHAT_TOOLS, "stream": True}
    response = tooled.gateway.post("/v1/chat/completions", body)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = frames(response.content)
    assert all("tool_calls" not in choice["delta"] for chunk in chunks for choice in chunk["choices"])
    assert "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]) == "18 degrees."
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]] == ["stop"]
    assert tooled.runs() == ["get_weather Paris"]
    assert len(server.requests) - first == 3
    if not model.dialect:
        assert len(model.request(server, first).tools) == 5


def test_same_name_belongs_to_the_client_by_default(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    asked = ask(tooled, server, model, model.answer("", [WEATHER]), tools=CHAT_TOOLS)
    assert asked.choice["finish_reason"] == "tool_calls"
    assert tooled.runs() == []


def test_call_that_breaks_the_schema_gets_an_error_result(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    script = [model.answer("", [("get_weather", '{"town": "Paris"}')]), model.answer("Sorry.")]
    asked = ask(tooled, server, model, *script, variant="_limited")
    assert (asked.count, asked.text) == (2, "Sorry.")
    assert "invalid arguments for get_weather" in asked.sent(1)
    assert tooled.runs() == []
    if not model.dialect:
        assert asked.request(1).tool_choice == ToolChoice(mode="none")  # it counts as a round


def test_malformed_arguments_get_an_error_result(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    if model.dialect:
        printed = '<tool_call>\n{"name": "get_weather", "arguments": {"city": Paris and more}}\n</tool_call>'
        call = model.answer(printed)
    else:
        call = model.answer("", [("get_weather", '{"city": Paris and more}')])
    asked = ask(tooled, server, model, call, model.answer("Sorry."))
    assert (asked.count, asked.text, asked.choice["finish_reason"]) == (2, "Sorry.", "stop")
    assert tooled.runs() == []
    assert "invalid arguments for get_weather" in asked.sent(1)


# Limits


def test_at_the_round_limit_the_model_is_asked_once_more_without_tools(
    tooled: ToolGateway, server: ModelServer, model: ScriptedModel
) -> None:
    asked = ask(tooled, server, model, model.answer("", [WEATHER]), model.answer("18 degrees."), variant="_limited")
    assert (asked.count, asked.text) == (2, "18 degrees.")
    if not model.dialect:
        assert asked.request(1).tool_choice == ToolChoice(mode="none")
        says_choice = "tool_choice" not in model.wire.unsupported  # else nothing is declared
        assert asked.request(1).tools == (asked.request(0).tools if says_choice else ())


@pytest.mark.parametrize("stream", [False, True])
def test_call_at_the_round_limit_is_dropped(
    tooled: ToolGateway, server: ModelServer, model: ScriptedModel, *, stream: bool
) -> None:
    script = [model.answer("", [WEATHER]), model.answer("Once more: ", [TIME])]
    first = server.enqueue(*script)
    body = {"model": f"{model.name}_limited", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    response = tooled.gateway.post("/v1/chat/completions", body)
    assert tooled.runs() == ["get_weather Paris"]
    assert len(server.requests) - first == 2
    if stream:
        choices = [choice for chunk in frames(response.content) for choice in chunk["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices).strip() == "Once more:"
        assert choices[-1]["finish_reason"] == "stop"
        assert not any("tool_calls" in choice["delta"] for choice in choices)
    else:
        choice = response.json()["choices"][0]
        assert (choice["message"]["content"].strip(), choice["finish_reason"]) == ("Once more:", "stop")


def test_third_identical_call_is_not_run(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    script = [model.answer("", [WEATHER])] * 3 + [model.answer("18 degrees.")]
    asked = ask(tooled, server, model, *script)
    assert (asked.count, asked.text) == (4, "18 degrees.")
    assert tooled.runs() == ["get_weather Paris"] * 2
    assert "It was not run again" in asked.sent(3)
    if not model.dialect:
        assert asked.request(3).tool_choice == ToolChoice(mode="none")


def test_large_result_is_cut(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    asked = ask(tooled, server, model, model.answer("", [("big", '{"size": 5000}')]), model.answer("Much."))
    assert "x" * 1000 + "\\n[cut here by the gateway: at most 1000 of 5000 bytes" in asked.sent(1)
    assert "x" * 1001 not in asked.sent(1)


# tool_choice


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_required_call_may_be_the_gateways_and_is_required_once(
    tooled: ToolGateway, server: ModelServer, model: ScriptedModel, choice: Any
) -> None:
    script = [model.answer("", [WEATHER]), model.answer("18 degrees.")]
    asked = ask(tooled, server, model, *script, tool_choice=choice)
    assert (asked.count, asked.text) == (2, "18 degrees.")
    assert tooled.runs() == ["get_weather Paris"]
    if not model.dialect and "tool_choice" not in model.wire.unsupported:
        first, second = asked.request(0).tool_choice, asked.request(1).tool_choice
        assert first is not None
        assert first.mode == ("required" if choice == "required" else "named")
        assert second is None or second == ToolChoice()
    else:
        assert "you must call" in asked.sent(0)
        assert "you must call" not in asked.sent(1)


def test_responses_client_may_name_a_gateway_tool(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    first = server.enqueue(model.answer("", [WEATHER]), model.answer("18 degrees."))
    body = {"model": model.name, "input": "Hi", "store": False}
    choice = {"type": "function", "name": "get_weather"}
    response = tooled.gateway.post("/v1/responses", {**body, "tool_choice": choice}).json()
    assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]
    assert len(server.requests) - first == 2
    refused = tooled.gateway.post("/v1/responses", {**body, "tool_choice": {**choice, "name": "nothing"}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unknown_tool")


def test_choice_of_an_unknown_tool_is_refused(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    choice = {"type": "function", "function": {"name": "nothing"}}
    asked = ask(tooled, server, model, model.answer("Hello"), tool_choice=choice)
    assert asked.response.status_code == 400
    assert asked.response.json()["error"]["code"] == "unknown_tool"
    assert asked.count == 0


def test_choice_none_binds_gateway_tools(tooled: ToolGateway, server: ModelServer, native: ScriptedModel) -> None:
    asked = ask(tooled, server, native, native.answer("Hm.", [WEATHER]), tool_choice="none")
    assert (asked.count, asked.text, asked.choice["finish_reason"]) == (1, "Hm.", "stop")
    assert tooled.runs() == []


def test_allowed_tools_bind_gateway_tools(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    tools = [{"type": "function", "function": {"name": "get_time"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
    asked = ask(tooled, server, model, model.answer("", [TIME]), model.answer("Noon."), tool_choice=choice)
    assert asked.text == "Noon."
    assert tooled.runs() == ["get_time Paris"]
    script = [model.answer("", [("get_time", PARIS)]), model.answer("Hm.", [WEATHER]), model.answer("Noon.")]
    ask(tooled, server, model, *script, tool_choice=choice)
    assert tooled.runs() == ["get_time Paris"]


def test_one_call_at_a_time_counts_both_owners(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    script = [model.answer("", [WEATHER, TIME]), model.answer("18 degrees.")]
    asked = ask(tooled, server, model, *script, parallel_tool_calls=False, tools=CHAT_TOOLS[1:])
    assert (asked.count, asked.text) == (2, "18 degrees.")
    assert tooled.runs() == ["get_weather Paris"]


def test_max_tool_calls_counts_runs(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    first = server.enqueue(model.answer("", [WEATHER, TIME]), model.answer("18 degrees."))
    body = {"model": model.name, "input": "Hi", "max_tool_calls": 1, "store": False}
    response = tooled.gateway.post("/v1/responses", body).json()
    assert response["status"] == "completed"
    assert response["output"][-1]["content"][0]["text"] == "18 degrees."
    assert tooled.runs() == ["get_weather Paris"]
    sent = server.request(first + 1).result(30).body.decode()
    assert "limit of 1 tool calls is reached" in sent
    if not model.dialect:
        assert model.request(server, first + 1).tool_choice == ToolChoice(mode="none")


# Requests without gateway tools


def test_several_choices_are_offered_no_gateway_tools(tooled: ToolGateway, server: ModelServer) -> None:
    model = MODELS["chat"]
    asked = ask(tooled, server, model, model.answer("Hello"), n=2, stream=True)
    assert asked.request(0).tools == ()


def test_header_turns_gateway_tools_off(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    asked = ask(tooled, server, model, model.answer("Hello"), headers={"x-toolrelay-tools": "OFF"}, stream=True)
    assert "get_weather" not in asked.sent(0)
    choice = {"type": "function", "function": {"name": "get_weather"}}
    refused = ask(tooled, server, model, headers={"x-toolrelay-tools": "off"}, tool_choice=choice)
    assert refused.response.status_code == 400


def test_xml_client_is_offered_no_gateway_tools_which_is_logged_once(tooled: ToolGateway, server: ModelServer) -> None:
    model = MODELS["chat"]
    for _ in range(2):
        asked = ask(tooled, server, model, model.answer("Hello"), headers={"x-toolrelay-client": "use_tool"}, stream=True)
        assert "get_weather" not in asked.sent(0)
    assert tooled.gateway.log().count('"event":"tools_not_offered"') == 1


# What the client is shown


def test_status_text_on_chat_streams_only(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    script = [model.answer("Let me see.", [WEATHER]), model.answer("18 degrees.")]
    asked = ask(tooled, server, model, *script, variant="_status", stream=True)
    choices = [choice for chunk in frames(asked.response.content) for choice in chunk["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert text == "Let me see.\n\nCalling get_weather…\n\n18 degrees."
    assert "Calling" not in asked.sent(1)
    assert "Calling" not in ask(tooled, server, model, *script, variant="_status").text
    silent = ask(tooled, server, model, *script, stream=True)
    assert b"Calling" not in silent.response.content


def test_responses_client_sees_gateway_calls(tooled: ToolGateway, server: ModelServer, model: ScriptedModel) -> None:
    server.enqueue(model.answer("", [WEATHER]), model.answer("18 degrees."))
    body = {"model": model.name, "input": "Hi", "store": False, "tools": RESPONSES_TOOLS[1:]}
    output = tooled.gateway.post("/v1/responses", body).json()["output"]
    assert [item["type"] for item in output] == ["mcp_call", "message"]
    assert (output[0]["name"], output[0]["server_label"], output[0]["output"]) == ("get_weather", "mine", "18 degrees in Paris")
