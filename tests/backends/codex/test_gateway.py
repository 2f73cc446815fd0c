"""OpenAI's SDK through the whole gateway, the real Codex and a scripted upstream, with native and printed tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from openai import APIStatusError, BadRequestError, OpenAI, RateLimitError

from tests.backends.codex.app_server import binary_path
from tests.backends.codex.upstream import (
    Call,
    calls,
    completed,
    failed,
    head,
    holds,
    message,
    reasoning,
    says,
    texts,
    truncates,
)
from tests.gateway import Gateway, running
from tests.oracles.test_openai_python import ask_chat, ask_responses, calls_of
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS
from tests.raw_client import RawClient
from tests.upstream import Gate, Script, Step, Upstream
from toolrelay.core.messages import Call as PastCall
from toolrelay.dialects.base import discover

MODES = ("auto", "native", "hermes")
MADE = [Call("get_weather", {"city": "Paris"}), Call("get_time", {"city": "Paris"})]
RESULTS = ["18 degrees", "noon"]


def config(upstream: Upstream) -> str:
    """Configure a model for each mode, named after it."""
    return "".join(
        f'[models.{mode}]\nprovider = "codex"\nmodel = "scripted"\nbase_url = "{upstream.url}/v1"\napi_key = "key"\n'
        f'tool_calling = "{mode}"\n'
        for mode in MODES
    )


@contextmanager
def open_gateway(*scripts: Script | Step) -> Iterator[CodexGateway]:
    environ = {"TOOLRELAY_CODEX": binary_path()}
    with Upstream(*scripts) as upstream, running(config(upstream), environ=environ) as gateway:
        yield CodexGateway(gateway, upstream)


class CodexGateway:
    def __init__(self, gateway: Gateway, upstream: Upstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.client = OpenAI(base_url=gateway.v1, api_key="none", max_retries=0)

    def script(self, *scripts: Script | Step) -> None:
        self.upstream.reset(*scripts)


@pytest.fixture(scope="module")
def codex() -> Iterator[CodexGateway]:
    with open_gateway() as codex:
        yield codex


@pytest.fixture(params=MODES)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def call_script(model: str, *made: Call) -> Script:
    if model != "hermes":
        return calls(*made)
    past = [PastCall(id="", name=call.name, arguments=json.dumps(call.arguments)) for call in made]
    return says(discover()["hermes"].render_calls(past), "\nI will now go on and say")


@pytest.mark.parametrize("stream", [False, True])
def test_chat_client_completes_a_tool_loop(codex: CodexGateway, model: str, *, stream: bool) -> None:
    codex.script(call_script(model, *MADE), call_script(model, MADE[0]), says("It is ", "noon."))
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    asked: dict[str, Any] = {"stream": stream, "model": model, "tools": CHAT_TOOLS}
    for expected in (MADE, MADE[:1]):
        choice = ask_chat(codex.client, **asked, messages=messages).choices[0]
        made = choice.message.tool_calls or []
        assert choice.finish_reason == "tool_calls"
        assert [(call.function.name, json.loads(call.function.arguments)) for call in made if call.type == "function"] == [
            (call.name, call.arguments) for call in expected
        ]
        assert choice.message.content is None
        messages.append({"role": "assistant", "tool_calls": [_plain(call) for call in made]})
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": result} for call, result in zip(made, RESULTS, strict=False)
        ]
    last = ask_chat(codex.client, **asked, messages=messages)
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("It is noon.", "stop")
    assert last.usage is not None
    assert last.usage.total_tokens == 10
    assert len(codex.upstream.requests) == 3


def _plain(call: Any) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}


@pytest.mark.parametrize("stream", [False, True])
def test_responses_client_completes_a_tool_loop(codex: CodexGateway, model: str, *, stream: bool) -> None:
    codex.script(call_script(model, *MADE), says("It is noon."))
    asked: dict[str, Any] = {"stream": stream, "model": model, "tools": RESPONSES_TOOLS, "store": False}
    items: list[Any] = [{"role": "user", "content": "hi"}]
    first = ask_responses(codex.client, **asked, input=items, instructions="Be brief.")
    assert first.status == "completed"
    made = calls_of(first)
    assert [(call.name, json.loads(call.arguments)) for call in made] == [(call.name, call.arguments) for call in MADE]
    items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    items += [
        {"type": "function_call_output", "call_id": call.call_id, "output": output}
        for call, output in zip(made, RESULTS, strict=True)
    ]
    last = ask_responses(codex.client, **asked, input=items, instructions="Be brief.")
    assert last.output_text == "It is noon."


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_required_tool_choice_is_met(codex: CodexGateway, choice: Any) -> None:  # bug 26
    codex.script(says('{"name": "get_weather", "arguments": {"city": "Paris"}}'))
    answer = ask_chat(
        codex.client,
        stream=True,
        model="native",
        messages=[{"role": "user", "content": "hi"}],
        tools=CHAT_TOOLS,
        tool_choice=choice,
    )
    made = answer.choices[0].message.tool_calls or []
    assert [call.function.name for call in made if call.type == "function"] == ["get_weather"]


def ask(codex: CodexGateway, **members: Any) -> Any:
    asked = {"stream": False, "model": "native", "messages": [{"role": "user", "content": "hi"}], **members}
    return ask_chat(codex.client, **asked)


@pytest.mark.parametrize("stream", [False, True])
def test_e9_blank_line_is_between_two_messages_on_chat(codex: CodexGateway, *, stream: bool) -> None:
    between = reasoning("Hm.")
    codex.script((head() + message("Edi", "ting.") + between + message("done ", "patching") + message("Bye.") + completed(),))
    assert ask(codex, stream=stream).choices[0].message.content == "Editing.\n\ndone patching\n\nBye."


@pytest.mark.parametrize("stream", [False, True])
def test_e9_blank_line_is_between_two_messages_that_may_print_calls(codex: CodexGateway, *, stream: bool) -> None:
    codex.script((head() + message("Edi", "ting <") + message("done ", "patching") + completed(),))
    assert ask(codex, stream=stream, tools=CHAT_TOOLS).choices[0].message.content == "Editing <\n\ndone patching"


@pytest.mark.parametrize("stream", [False, True])
def test_e9_messages_are_separate_items_on_responses(codex: CodexGateway, *, stream: bool) -> None:
    codex.script((head() + message("Editing.") + message("done ", "patching") + completed(),))
    answer = ask_responses(codex.client, stream=stream, model="native", input="hi")
    assert [item.content[0].to_dict()["text"] for item in answer.output if item.type == "message"] == [
        "Editing.",
        "done patching",
    ]


def test_truncated_answer_has_finish_reason_length(codex: CodexGateway) -> None:  # bug 5
    codex.script(truncates("Hel"))
    assert ask(codex).choices[0].finish_reason == "length"


def test_errors_map_to_sdk_exceptions(codex: CodexGateway) -> None:  # bug 39
    codex.script((head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),))
    with pytest.raises(RateLimitError) as limited:
        ask(codex)
    assert float(limited.value.response.headers["retry-after"]) >= 1.5
    codex.script((head() + failed("context_length_exceeded", "Too long"),))
    with pytest.raises(BadRequestError) as long:
        ask(codex, stream=True)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(BadRequestError):
        ask(codex, n=2)
    codex.script(calls(Call("exec_command", {"cmd": "ls"})))
    with pytest.raises(APIStatusError) as stopped:
        ask(codex)
    assert stopped.value.status_code == 502


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("has_output", [False, True])
def test_client_disconnect_closes_upstream_connection(codex: CodexGateway, *, stream: bool, has_output: bool) -> None:  # bug 44
    gate = Gate()
    codex.script(holds(gate, "one", "two") if has_output else (head(), gate))
    body = {"model": "native", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    with RawClient(codex.gateway.port) as client:
        client.post("/v1/chat/completions", body)
        received = codex.upstream.request(0).result(30)
        gate.reached.result(30)
        if has_output and stream:
            client.frame()
        client.close()
        codex.upstream.connections[received.connection].closed.result(30)


def test_fifty_concurrent_clients_get_their_own_answers(codex: CodexGateway) -> None:
    codex.script(*(says("answer ", str(number)) for number in range(50)))
    questions = [f"question {number}" for number in range(50)]

    def ask_question(question: str) -> str | None:
        messages: list[Any] = [{"role": "user", "content": question}]
        answer: str | None = ask(codex, stream=True, messages=messages).choices[0].message.content
        return answer

    with ThreadPoolExecutor(len(questions)) as clients:
        answers = dict(zip(questions, clients.map(ask_question, questions), strict=True))
    asked = [question for received in codex.upstream.requests for question in texts(received)]
    assert [answers[question] for question in asked] == [f"answer {number}" for number in range(50)]


@pytest.mark.parametrize("stream", [False, True])
def test_answer_of_five_megabytes_is_complete(codex: CodexGateway, *, stream: bool) -> None:
    pieces = [f"{number:08}" * 12_500 for number in range(50)]
    codex.script(says(*pieces))
    assert ask(codex, stream=stream).choices[0].message.content == "".join(pieces)


def test_log_has_the_cutoff_and_no_content(codex: CodexGateway) -> None:
    codex.script(calls(MADE[0], before="A secret word"))
    ask(codex, tools=CHAT_TOOLS)
    log = codex.gateway.log()
    assert "tool_cutoff" in log
    assert "secret" not in log


def test_no_process_is_left_when_the_gateway_stops() -> None:
    with open_gateway(says("Hello")) as codex:
        assert ask(codex).choices[0].message.content == "Hello"
        children = psutil.Process(codex.gateway.process.pid).children(recursive=True)
        assert any("codex" in child.name() for child in children)
        assert codex.gateway.stop() == 0
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
