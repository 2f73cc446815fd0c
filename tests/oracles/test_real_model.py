"""A real model that was not trained to call tools, on a llama.cpp server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from msgspec.structs import replace
from openai import APIStatusError, OpenAI

from tests.gateway import Gateway, running
from tests.llama import llama_server
from toolrelay.core.profiles import Profile
from toolrelay.dialects.base import discover as discover_dialects
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.session import ToolCallSession
from toolrelay.wires.base import discover as discover_wires

CITIES = ("Paris", "Tokyo", "New York", "Lima", "Oslo", "Cairo", "Rome", "Delhi", "Berlin", "Sydney")
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "maxLength": 60}, "limit": {"type": "integer", "minimum": 1, "maximum": 50}},
    "required": ["query", "limit"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "notes.search": SEARCH}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": f"{name} for the user", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
PROSE = "Tell me a short story about a fox."


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with llama_server() as url:
        yield url


@pytest.fixture(scope="module")
def gateway(upstream: str) -> Iterator[Gateway]:
    models = "".join(
        f'[models.{name}]\nprovider = "{provider}"\nbase_url = "{upstream}"\ntool_calling = "{dialect}"\n'
        for name, provider, dialect in (
            ("sealed", "llamacpp", "sealed"),
            ("hermes", "llamacpp", "hermes"),
            ("unconstrained", "compatible", "hermes"),
        )
    )
    with running(models) as gateway:
        yield gateway


def ask(gateway: Gateway, model: str, question: str, seed: int, **members: Any) -> Any:
    """Ask with streaming if the seed is even."""
    messages: list[Any] = [{"role": "user", "content": question}]
    common: dict[str, Any] = {"model": model, "messages": messages, "seed": seed, "max_tokens": 120, **members}
    with OpenAI(base_url=gateway.v1, api_key="none", max_retries=0) as client:
        if seed % 2:
            return client.chat.completions.create(**common).choices[0]
        with client.chat.completions.stream(**common) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion().choices[0]


@pytest.mark.parametrize("number", range(20))
def test_required_call_matches_the_schema(gateway: Gateway, number: int) -> None:
    question = f"What is the weather in {CITIES[number % len(CITIES)]}?"
    named = {"type": "function", "function": {"name": "notes.search"}}
    choice: Any = "required" if number % 10 < 5 else named
    answer = ask(gateway, "sealed" if number < 10 else "hermes", question, number, tools=TOOLS, tool_choice=choice)
    assert answer.finish_reason == "tool_calls"
    [call] = answer.message.tool_calls
    jsonschema_rs.validate(SCHEMAS[call.function.name], json.loads(call.function.arguments))
    assert choice == "required" or call.function.name == "notes.search"


def upstream_body(body: dict[str, Any], dialect: str) -> bytes:
    """Return the request that the gateway sends to the model's server."""
    wire = discover_wires()["openai_chat"]
    session = ToolCallSession(
        wire.decode_request(json.dumps(body).encode()), ToolCallOptions(dialect=discover_dialects()[dialect])
    )
    return wire.encode_request(replace(session.request, stream=False), Profile()).body


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_prose_is_relayed_unchanged_where_no_call_is_required(upstream: str, gateway: Gateway, choice: str) -> None:
    members: dict[str, Any] = {"tools": TOOLS, "tool_choice": choice, "seed": 7, "max_tokens": 60, "temperature": 0}
    body = {"model": "unconstrained", "messages": [{"role": "user", "content": PROSE}], **members}
    headers = {"content-type": "application/json"}
    for _ in range(2):  # the first time fills the server's cache; an answer with it may differ
        response = httpx.post(f"{upstream}/chat/completions", content=upstream_body(body, "hermes"), headers=headers, timeout=120)
    bare = response.json()
    prose = bare["choices"][0]["message"]["content"]
    assert len(prose) > 40
    relayed = ask(gateway, "unconstrained", PROSE, **members)
    assert relayed.message.content == prose
    assert relayed.message.tool_calls is None


def test_prose_where_a_call_is_required_is_an_error_without_constraint(gateway: Gateway) -> None:
    answer = ask(gateway, "unconstrained", PROSE, 7, tools=TOOLS, temperature=0, max_tokens=40)
    assert answer.message.tool_calls is None
    assert len(answer.message.content) > 40
    with pytest.raises(APIStatusError) as error:
        ask(gateway, "unconstrained", PROSE, 7, tools=TOOLS, tool_choice="required", temperature=0, max_tokens=40)
    assert error.value.code == "tool_choice_unmet"
