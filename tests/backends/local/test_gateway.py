"""The real model behind the gateway: chat, calls, approval, queue, cancellation, crashes, and files that cannot be loaded."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import psutil
import pytest
from openai import OpenAI

from tests.approving import Approver, Asking, chat_text
from tests.gateway import Gateway
from tests.llama import model_file
from tests.tool_gateway import running_tools

CITIES = ("Paris", "Tokyo", "Lima", "Oslo", "Cairo", "Rome", "Delhi", "Berlin", "Sydney", "New York")
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "unit": {"$ref": "#/$defs/unit"}},
    "required": ["city", "unit"],
    "additionalProperties": False,
    "$defs": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
}
SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 30},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,8}$"}, "maxItems": 2},
    },
    "required": ["query", "limit", "tags"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "notes.search": SEARCH}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": f"{name} for the user", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
ENDLESS: dict[str, Any] = {"max_tokens": 8000, "ignore_eos": True}  # a field of llama.cpp: minutes, if nobody ends it


def prompts() -> Iterator[tuple[str, Any]]:
    """Yield 100 questions, each with a tool_choice that forces a call."""
    named = {"type": "function", "function": {"name": "notes.search"}}
    forms = ("What is the weather in {}?", "Tell me about {}.", "{}!", "Search for {} in my notes", "Is it warm in {}, or cold?")
    for number in range(100):
        question = forms[number // len(CITIES) % len(forms)].format(CITIES[number % len(CITIES)])
        yield question, "required" if number % 2 else named


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    cut = tmp_path_factory.mktemp("models") / "cut.gguf"
    with model_file().open("rb") as whole:
        cut.write_bytes(whole.read(20_000_000))
    models = f"""
        [models.local]
        provider = "local"
        model = "smollm2"
        context_length = 4096

        [models.cut]
        provider = "local"
        model = "{cut}"

        [models.huge]
        provider = "local"
        model = "smollm2"
        context_length = 10_000_000

        [models.fast]
        provider = "local"
        model = "smollm2"
        context_length = 2048
        toolsets = ["asked"]

        [toolsets.asked]
        kind = "python"
        module = "loop_tools"
        allow = ["get_weather"]
        prefix = "asked_"
        """
    with running_tools(models) as tools:
        yield tools.gateway


def ask(gateway: Gateway, question: str, *, model: str = "local", **members: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 8, "temperature": 0, **members}
    return gateway.post("/v1/chat/completions", body)


def pid_of(gateway: Gateway, model: str = "local") -> int:
    """Return the process that loaded the model last."""
    return int(re.findall(rf'"local_model_loaded","model":"{model}".*?"pid":(\d+)', gateway.log())[-1])


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_control_tokens_of_the_template_are_text_in_messages(gateway: Gateway) -> None:
    """A note that contains them begins no message: they are several tokens, like other text."""
    counts = [
        ask(gateway, text * 20, max_tokens=1).json()["usage"]["prompt_tokens"]
        for text in ("a", "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|im_other|>")
    ]
    assert all(count > counts[0] + 60 for count in counts[1:]), counts


def test_chat_has_text_and_usage_whole_and_streamed(gateway: Gateway) -> None:
    whole = ask(gateway, "Hello!").json()
    assert whole["choices"][0]["message"]["content"].strip()
    assert 0 < whole["usage"]["completion_tokens"] <= 8
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        chunks = list(
            client.chat.completions.create(
                model="local",
                messages=[{"role": "user", "content": "Hello!"}],
                max_tokens=8,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 1
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens > 0


def test_forced_call_matches_the_schema(gateway: Gateway, request: pytest.FixtureRequest) -> None:
    for number, (question, choice) in zip(range(request.config.getoption("--prompts")), prompts(), strict=False):
        answer = ask(gateway, question, tools=TOOLS, tool_choice=choice, seed=number, temperature=0.7, max_tokens=120).json()
        assert answer["choices"][0]["finish_reason"] == "tool_calls", answer
        [call] = answer["choices"][0]["message"]["tool_calls"]
        jsonschema_rs.validate(SCHEMAS[call["function"]["name"]], json.loads(call["function"]["arguments"]))
        assert choice == "required" or call["function"]["name"] == "notes.search"


@pytest.mark.parametrize(
    "address",
    [
        {"type": "string", "maxLength": 20, "pattern": r"^(?!\.)[a-z.]+@[a-z]+$"},  # as zod writes e-mail addresses
        {"type": "string", "maxLength": 20, "pattern": r"\bno\b"},
        {"type": "object", "patternProperties": {"^(?=a)a$": {"type": "string"}}, "additionalProperties": False},
        {"type": "object", "properties": {"pattern": {"const": "(?=a)"}}, "required": ["pattern"], "additionalProperties": False},
    ],
    ids=["lookahead", "boundary", "names", "property"],
)
def test_forced_call_happens_although_a_pattern_cannot_be_expressed(gateway: Gateway, address: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"to": address}, "required": ["to"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "send", "parameters": schema}}
    answer = ask(gateway, "Write to Ada", tools=[tool], tool_choice="required", max_tokens=120).json()
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert list(json.loads(call["function"]["arguments"])) == ["to"]


@pytest.mark.parametrize("question", ["What is the weather in Paris?", "What is 2 + 2?"])
def test_auto_gives_a_valid_call_or_plain_text(gateway: Gateway, question: str) -> None:
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": question}]
        with client.chat.completions.stream(model="local", messages=messages, tools=TOOLS, max_tokens=60) as stream:
            texts = [event.delta for event in stream if event.type == "content.delta"]
            message = stream.get_final_completion().choices[0].message
    if message.tool_calls:
        [call] = message.tool_calls
        jsonschema_rs.validate(SCHEMAS[call.function.name], json.loads(call.function.arguments))
        assert not texts
    else:
        assert '"tool"' not in "".join(texts)


def test_gateway_tool_runs_after_a_yes_and_the_model_answers(gateway: Gateway) -> None:
    asked = Asking(gateway).chat("What is the weather in Paris?", tool_choice="required", max_tokens=80, temperature=0)
    question = Approver(gateway).allow()
    assert question["provider"] == "local"
    assert question["local"] is True
    assert isinstance(chat_text(asked.result()), str)
    assert '"event":"tool_run"' in gateway.log()


def test_cancelled_answer_frees_the_model_for_the_next_in_the_queue(gateway: Gateway) -> None:
    body = {"model": "local", "messages": [{"role": "user", "content": "Count."}], "stream": True, **ENDLESS}
    with ThreadPoolExecutor(1) as threads:
        with httpx.stream("POST", f"{gateway.v1}/chat/completions", json=body, timeout=60) as endless:
            lines = endless.iter_lines()
            next(lines)
            waiting = threads.submit(ask, gateway, "Hi")
            for _ in range(20):
                next(lines)
            assert not waiting.done()
        assert waiting.result().status_code == 200


def test_long_prompt_is_refused_with_its_code(gateway: Gateway) -> None:
    response = ask(gateway, "word " * 5000)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (400, "invalid_request_error", "context_length_exceeded")


def test_image_is_refused_as_the_clients_mistake(gateway: Gateway) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    response = ask(gateway, "", messages=[{"role": "user", "content": [image]}])
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (400, "invalid_request_error", "unsupported_by_upstream")
    assert "image" in error["message"]
    assert "mmproj" not in error["message"]  # there is no setting for it


def test_killed_process_fails_the_answer_and_the_next_request_starts_another(gateway: Gateway) -> None:
    ask(gateway, "Hi")
    before = pid_of(gateway)
    body = {"model": "local", "messages": [{"role": "user", "content": "Count."}], "stream": True, **ENDLESS}
    with httpx.stream("POST", f"{gateway.v1}/chat/completions", json=body, timeout=60) as endless:
        lines = endless.iter_lines()
        next(lines)
        os.kill(before, signal.SIGKILL)
        rest = list(lines)
    assert "was killed (signal 9" in "".join(rest)
    assert '"upstream_cut"' in "".join(rest)
    assert ask(gateway, "Hi").status_code == 200
    assert pid_of(gateway) != before


def test_process_killed_between_requests_is_not_noticed_by_clients(gateway: Gateway) -> None:
    ask(gateway, "Hi")
    os.kill(pid_of(gateway), signal.SIGKILL)
    assert ask(gateway, "Hi").status_code == 200


@pytest.mark.parametrize(
    ("model", "reason"), [("cut", "is not within the file bounds, model is corrupted"), ("huge", "insufficient memory")]
)
def test_model_that_cannot_be_loaded_is_an_error_and_the_others_work(gateway: Gateway, model: str, reason: str) -> None:
    response = ask(gateway, "Hi", model=model)
    assert response.status_code == 503, response.text
    assert response.json()["error"]["code"] == "model_not_loaded"
    assert reason in response.json()["error"]["message"]
    assert ask(gateway, "Hi").status_code == 200


def test_process_ends_with_a_killed_gateway_and_a_restart_works(tmp_path: Path) -> None:
    config = '[models.local]\nprovider = "local"\nmodel = "smollm2"\ncontext_length = 512\n'
    with running_tools(config) as tools:
        assert ask(tools.gateway, "Hi").status_code == 200
        child = psutil.Process(pid_of(tools.gateway))
        tools.gateway.process.kill()
        psutil.wait_procs([child], timeout=60)
        assert not is_running(child.pid)
    with running_tools(config) as tools:
        assert ask(tools.gateway, "Hi").status_code == 200
        child = psutil.Process(pid_of(tools.gateway))
    assert not is_running(child.pid)
