"""OpenAI's own SDK, through the whole gateway, the real Codex and a scripted upstream, with tools in both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from openai import APIStatusError, BadRequestError, OpenAI, RateLimitError

from tests.backends.codex.stage import binary_path
from tests.backends.codex.upstream import Call, calls, failed, head, holds, says, stops_short, texts
from tests.gateway import Gateway, running
from tests.oracles.test_openai_python import ask_chat, ask_responses, calls_of
from tests.oracles.tools import CHAT_TOOLS, RESPONSES_TOOLS
from tests.raw_client import RawClient
from tests.upstream import Gate, Script, Step, Upstream, _Log, _script
from toolrelay.core.messages import Call as PastCall
from toolrelay.dialects.base import discover

WAYS = ("auto", "native", "hermes")
MADE = [Call("get_weather", {"city": "Paris"}), Call("get_time", {"city": "Paris"})]
RESULTS = ["18 degrees", "noon"]


def config(upstream: Upstream) -> str:
    """A model for each way, by that name."""
    return "".join(
        f'[models.{way}]\nprovider = "codex"\nmodel = "scripted"\nbase_url = "{upstream.url}/v1"\napi_key = "key"\n'
        f'tool_calling = "{way}"\n'
        for way in WAYS
    )


@contextmanager
def opened(*scripts: Script | Step) -> Iterator[Theatre]:
    environ = {"TOOLRELAY_CODEX": binary_path()}
    with Upstream(*scripts) as upstream, running(config(upstream), environ=environ) as gateway:
        yield Theatre(gateway, upstream)


class Theatre:
    def __init__(self, gateway: Gateway, upstream: Upstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.client = OpenAI(base_url=gateway.v1, api_key="none", max_retries=0)

    def script(self, *scripts: Script | Step) -> None:
        self.upstream._scripts = [_script(script) for script in scripts]
        self.upstream.requests = _Log()


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    with opened() as theatre:
        yield theatre


@pytest.fixture(params=WAYS)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def calling(model: str, *made: Call) -> Script:
    if model != "hermes":
        return calls(*made)
    past = [PastCall(id="", name=call.name, arguments=json.dumps(call.arguments)) for call in made]
    return says(discover()["hermes"].render_calls(past), "\nI will now go on and say")


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_client_gets_calls_answers_them_and_gets_the_answer(theatre: Theatre, model: str, *, stream: bool) -> None:
    theatre.script(calling(model, *MADE), calling(model, MADE[0]), says("It is ", "noon."))
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    asked: dict[str, Any] = {"stream": stream, "model": model, "tools": CHAT_TOOLS}
    for expected in (MADE, MADE[:1]):
        choice = ask_chat(theatre.client, **asked, messages=messages).choices[0]
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
    last = ask_chat(theatre.client, **asked, messages=messages)
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("It is noon.", "stop")
    assert last.usage is not None
    assert last.usage.total_tokens == 10
    assert len(theatre.upstream.requests) == 3


def _plain(call: Any) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_responses_client_gets_calls_answers_them_and_gets_the_answer(theatre: Theatre, model: str, *, stream: bool) -> None:
    theatre.script(calling(model, *MADE), says("It is noon."))
    asked: dict[str, Any] = {"stream": stream, "model": model, "tools": RESPONSES_TOOLS, "store": False}
    items: list[Any] = [{"role": "user", "content": "hi"}]
    first = ask_responses(theatre.client, **asked, input=items, instructions="Be brief.")
    assert first.status == "completed"
    made = calls_of(first)
    assert [(call.name, json.loads(call.arguments)) for call in made] == [(call.name, call.arguments) for call in MADE]
    items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    items += [
        {"type": "function_call_output", "call_id": call.call_id, "output": output}
        for call, output in zip(made, RESULTS, strict=True)
    ]
    last = ask_responses(theatre.client, **asked, input=items, instructions="Be brief.")
    assert last.output_text == "It is noon."


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_choice_that_must_be_met_is_met(theatre: Theatre, choice: Any) -> None:  # bug 26
    theatre.script(says('{"name": "get_weather", "arguments": {"city": "Paris"}}'))
    answer = ask_chat(
        theatre.client,
        stream=True,
        model="native",
        messages=[{"role": "user", "content": "hi"}],
        tools=CHAT_TOOLS,
        tool_choice=choice,
    )
    made = answer.choices[0].message.tool_calls or []
    assert [call.function.name for call in made if call.type == "function"] == ["get_weather"]


def say(theatre: Theatre, **members: Any) -> Any:
    asked = {"stream": False, "model": "native", "messages": [{"role": "user", "content": "hi"}], **members}
    return ask_chat(theatre.client, **asked)


def test_an_answer_that_ran_into_a_limit_says_so(theatre: Theatre) -> None:  # bug 5
    theatre.script(stops_short("Hel"))
    assert say(theatre).choices[0].finish_reason == "length"


def test_errors_have_a_status_that_the_sdk_knows(theatre: Theatre) -> None:  # bug 39
    theatre.script((head() + failed("rate_limit_exceeded", "Please try again in 1.5s."),))
    with pytest.raises(RateLimitError) as limited:
        say(theatre)
    assert float(limited.value.response.headers["retry-after"]) >= 1.5
    theatre.script((head() + failed("context_length_exceeded", "Too long"),))
    with pytest.raises(BadRequestError) as long:
        say(theatre, stream=True)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(BadRequestError):
        say(theatre, n=2)
    theatre.script(calls(Call("exec_command", {"cmd": "ls"})))
    with pytest.raises(APIStatusError) as stopped:
        say(theatre)
    assert stopped.value.status_code == 502


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("heard", [False, True])
def test_a_client_that_leaves_lets_go_of_the_upstream(theatre: Theatre, *, stream: bool, heard: bool) -> None:  # bug 44
    gate = Gate()
    theatre.script(holds(gate, "one", "two") if heard else (head(), gate))
    body = {"model": "native", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    with RawClient(theatre.gateway.port) as visitor:
        visitor.post("/v1/chat/completions", body)
        received = theatre.upstream.request(0).result(30)
        gate.reached.result(30)
        if heard and stream:
            visitor.frame()
        visitor.close()
        theatre.upstream.links[received.link].left.result(30)


def test_fifty_clients_at_once_each_get_the_answer_to_their_own_question(theatre: Theatre) -> None:
    theatre.script(*(says("answer ", str(number)) for number in range(50)))
    questions = [f"question {number}" for number in range(50)]

    def ask(question: str) -> str | None:
        messages: list[Any] = [{"role": "user", "content": question}]
        answer: str | None = say(theatre, stream=True, messages=messages).choices[0].message.content
        return answer

    with ThreadPoolExecutor(len(questions)) as clients:
        answers = dict(zip(questions, clients.map(ask, questions), strict=True))
    asked = [question for received in theatre.upstream.requests for question in texts(received)]
    assert [answers[question] for question in asked] == [f"answer {number}" for number in range(50)]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_five_megabytes_comes_whole(theatre: Theatre, *, stream: bool) -> None:
    pieces = [f"{number:08}" * 12_500 for number in range(50)]
    theatre.script(says(*pieces))
    assert say(theatre, stream=stream).choices[0].message.content == "".join(pieces)


def test_the_log_says_what_was_cut_and_never_what_was_said(theatre: Theatre) -> None:
    theatre.script(calls(MADE[0], before="A secret word"))
    say(theatre, tools=CHAT_TOOLS)
    log = theatre.gateway.log()
    assert "tool_cutoff" in log
    assert "secret" not in log


def test_nothing_is_left_when_the_gateway_ends() -> None:
    with opened(says("Hello")) as theatre:
        assert say(theatre).choices[0].message.content == "Hello"
        children = psutil.Process(theatre.gateway.process.pid).children(recursive=True)
        assert any("codex" in child.name() for child in children)
        assert theatre.gateway.stop() == 0
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive
