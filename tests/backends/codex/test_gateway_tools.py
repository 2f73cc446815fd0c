"""Gateway tools through the real Codex with a scripted upstream: a gateway call ends the Codex turn, as a client's does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from openai import OpenAI

from tests.backends.codex.app_server import binary_path
from tests.backends.codex.test_gateway import MODES, call_script, config
from tests.backends.codex.upstream import Call, body_of, says
from tests.oracles.test_openai_python import ask_chat, ask_responses, calls_of
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS
from tests.tool_gateway import ToolGateway, running_tools
from tests.upstream import Upstream

WEATHER, TIME = Call("get_weather", {"city": "Paris"}), Call("get_time", {"city": "Rome"})


class CodexTools:
    def __init__(self, tooled: ToolGateway, upstream: Upstream) -> None:
        self.tooled = tooled
        self.upstream = upstream
        self.client = OpenAI(base_url=tooled.gateway.v1, api_key="none", max_retries=0)

    def sent(self, number: int) -> list[dict[str, Any]]:
        """Return the input of a request to the provider."""
        items: list[dict[str, Any]] = body_of(self.upstream.requests[number])["input"]
        return items

    def calls_and_results(self, number: int) -> list[tuple[str, str]]:
        """Return the native calls and results of a request, as (call id, name or output)."""
        return [
            (item["call_id"], item["name"] if item["type"] == "function_call" else str(item["output"]))
            for item in self.sent(number)
            if item.get("type") in ("function_call", "function_call_output")
        ]


@pytest.fixture(scope="module")
def codex() -> Iterator[CodexTools]:
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        models = config(upstream).replace("provider =", 'toolsets = ["mine"]\nprovider =')
        tooled = stack.enter_context(running_tools(models, environ={"TOOLRELAY_CODEX": binary_path()}))
        yield CodexTools(tooled, upstream)


@pytest.fixture(params=MODES)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def check_history(codex: CodexTools, model: str, number: int, *results: str) -> None:
    """Check that a request has each call with its result, in order."""
    if model == "hermes":
        text = json.dumps(codex.sent(number))
        places = [text.find(result) for result in results]
        assert -1 not in places, text
        assert places == sorted(places), text
        return
    found = codex.calls_and_results(number)
    names = [(call_id, name) for call_id, name in found if name.startswith("get_")]
    outputs = {call_id: output for call_id, output in found if not output.startswith("get_")}
    assert [name for _, name in names] == ["get_weather", "get_time"][: len(results)]
    assert [result in outputs[call_id] for (call_id, _), result in zip(names, results, strict=True)] == [True] * len(results)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_client_gets_one_answer_after_two_rounds(codex: CodexTools, model: str, api: str, *, stream: bool) -> None:
    codex.tooled.runs()
    codex.upstream.reset(call_script(model, WEATHER), call_script(model, TIME), says("18 degrees ", "at noon."))
    if api == "chat":
        chat = ask_chat(codex.client, stream=stream, model=model, messages=[{"role": "user", "content": "hi"}])
        assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("18 degrees at noon.", "stop")
        assert chat.usage is not None
        assert chat.usage.total_tokens >= 30
    else:
        response = ask_responses(codex.client, stream=stream, model=model, input="hi", store=False)
        assert response.output_text == "18 degrees at noon."
        assert [item.type for item in response.output if item.type != "reasoning"] == ["mcp_call", "mcp_call", "message"]
    assert codex.tooled.runs() == ["get_weather Paris", "get_time Rome"]
    assert len(codex.upstream.requests) == 3
    check_history(codex, model, 1, "18 degrees in Paris")
    check_history(codex, model, 2, "18 degrees in Paris", "noon in Rome")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_calls_of_both_owners_are_seen_by_the_model(codex: CodexTools, model: str, api: str) -> None:
    codex.tooled.runs()
    codex.upstream.reset(call_script(model, WEATHER, TIME), says("18 degrees ", "at eight."))
    items: list[Any] = [{"role": "user", "content": "hi"}]
    if api == "chat":
        asked: dict[str, Any] = {"stream": False, "model": model, "tools": CHAT_TOOLS[1:]}
        message = ask_chat(codex.client, **asked, messages=items).choices[0].message
        call = (message.tool_calls or [])[0]
        assert len(message.tool_calls or []) == 1
        items += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "eight in Rome"}]
        answer = ask_chat(codex.client, **asked, messages=items).choices[0].message.content
    else:
        asked = {"stream": True, "model": model, "tools": RESPONSES_TOOLS[1:], "store": False}
        first = ask_responses(codex.client, **asked, input=items)
        (made,) = calls_of(first)
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
        items.append({"type": "function_call_output", "call_id": made.call_id, "output": "eight in Rome"})
        answer = ask_responses(codex.client, **asked, input=items).output_text
    assert answer == "18 degrees at eight."
    assert codex.tooled.runs() == ["get_weather Paris"]
    check_history(codex, model, 1, "18 degrees in Paris", "eight in Rome")
