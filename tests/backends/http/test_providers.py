"""The contract of the presets: the gateway sends each provider's server nothing that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, Json, ModelServer, delta, end, error, whole
from tests.provider_servers import CHECKS, ProviderServer
from tests.upstream import reply, stream
from toolrelay.backends.providers import PROVIDERS, Quirk
from toolrelay.core.profiles import Profile

HTTP = sorted(name for name, preset in PROVIDERS.items() if preset.backend == "http" and preset.wire == "chat")
QUIRKS = [(name, quirk) for name, preset in PROVIDERS.items() for quirk in preset.quirks]
CALL = "call_0123456789abcdefABCDEF01"
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}, "strict": None}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
SAMPLING: Json = {"temperature": 0.5, "top_p": 0.9, "user": "u", "prompt_cache_key": "k", "safety_identifier": "s"}
CHAT: Json = {
    **SAMPLING,
    "messages": [
        {"role": "developer", "content": "Be brief. Answer as JSON."},
        {"role": "user", "name": "ann", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I need the tool.",
            "tool_calls": [
                {"id": CALL, "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": CALL, "content": "Rain"},
    ],
    "seed": 7,
    "stop": ["END"],
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"50256": -100},
    "max_completion_tokens": 100,
    "store": False,
    "service_tier": "auto",
    "parallel_tool_calls": False,
    "tools": [{"type": "function", "function": TOOL}, {"type": "function", "function": {**TOOL, "name": "get_time"}}],
    "response_format": {"type": "json_object"},
}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}
VARIANTS: dict[str, Json] = {
    "json_object": {},
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}},
    "allowed_tools": {"tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED}},
    "streamed": {"stream": True, "stream_options": {"include_usage": True}},
}
RESPONSES: Json = {
    **SAMPLING,
    "input": [
        {"role": "developer", "content": "Be brief. Answer as JSON."},
        {"role": "user", "content": "Weather in Paris?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I need the tool."}]},
        {"type": "function_call", "call_id": CALL, "name": "get_weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": CALL, "output": "Rain"},
    ],
    "store": False,
    "max_output_tokens": 100,
    "text": {"verbosity": "low"},
    "tools": [{"type": "function", **TOOL}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    """Run a gateway with each provider, with each provider's server as `plain-NAME`, and Responses at LM Studio and at Azure."""
    tables = [f'[models.{name}]\nprovider = "{name}"\nbase_url = "{server.url}/{name}/v1"\n' for name in HTTP]
    tables += [f'[models.plain-{name}]\nprovider = "compatible"\nbase_url = "{server.url}/{name}/v1"\n' for name in CHECKS]
    tables += [
        f'[models.{name}-responses]\nprovider = "{name}"\nbase_url = "{server.url}/{name}/v1"\nwire = "responses"\n'
        for name in ("lmstudio", "openai")
    ]
    key = 'api_key = "sk-of-azure"\n'
    tables = [table + key if "azure" in table else table for table in tables]
    dated = (
        f'[models.dated]\nprovider = "azure"\nbase_url = "{server.url}/azure/openai/deployments/d"\napi_version = "2024-10-21"\n'
    )
    with running("".join([*tables, dated, key])) as started:
        yield started


def ask(gateway: Gateway, server: ModelServer, model: str, body: Json, front: str = "openai_chat") -> tuple[Any, ProviderServer]:
    provider = ProviderServer()
    server.enqueue(provider)
    return gateway.post(CLIENT_APIS[front].path, {"model": model, **body}), provider


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("provider", HTTP)
def test_provider_accepts_a_chat_request_with_everything(
    gateway: Gateway, server: ModelServer, provider: str, variant: str
) -> None:
    answer, asked = ask(gateway, server, provider, CHAT | VARIANTS[variant])
    assert asked.refusals == []
    assert answer.status_code == 200, answer.text
    assert "Hello" in answer.text


@pytest.mark.parametrize("provider", [*HTTP, "lmstudio-responses", "openai-responses"])
def test_provider_accepts_a_responses_request_with_everything(gateway: Gateway, server: ModelServer, provider: str) -> None:
    answer, asked = ask(gateway, server, provider, RESPONSES, "openai_responses")
    assert asked.refusals == []
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("provider", CHECKS)
def test_scripted_server_refuses_what_the_preset_adapts(gateway: Gateway, server: ModelServer, provider: str) -> None:
    body = CHAT | VARIANTS["json_schema"] | {"max_tokens": 100}
    del body["max_completion_tokens"]
    answer, asked = ask(
        gateway, server, f"plain-{provider}", body | ({} if provider == "deepseek" else VARIANTS["allowed_tools"])
    )
    assert asked.refusals != []
    assert answer.status_code == 400 or provider == "azure"


@pytest.mark.parametrize(("provider", "quirk"), QUIRKS, ids=[f"{name}-{quirk.field}" for name, quirk in QUIRKS])
def test_quirk_differs_from_the_default_and_has_a_source(provider: str, quirk: Quirk) -> None:
    assert quirk.value != getattr(Profile(), quirk.field)
    assert quirk.value == getattr(PROVIDERS[provider].profile, quirk.field)
    assert quirk.source.startswith("https://")
    assert quirk.meaning.endswith(".")


@pytest.mark.parametrize("provider", HTTP)
def test_profile_is_made_of_quirks_alone(provider: str) -> None:
    preset = PROVIDERS[provider]
    assert structs.asdict(preset.profile) == structs.asdict(Profile()) | {quirk.field: quirk.value for quirk in preset.quirks}


# What the adapted requests say


def test_mistral_gets_its_own_names(gateway: Gateway, server: ModelServer) -> None:
    _, asked = ask(gateway, server, "mistral", CHAT)
    [body] = asked.bodies
    assert (body["random_seed"], body["max_tokens"]) == (7, 100)
    call, result = body["messages"][2], body["messages"][3]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]


def test_lm_studio_gets_only_allowed_tools_and_a_schema_for_any_object(gateway: Gateway, server: ModelServer) -> None:
    _, asked = ask(gateway, server, "lmstudio", CHAT | VARIANTS["allowed_tools"])
    [body] = asked.bodies
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["get_weather"], "auto")
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_deepseek_gets_the_schema_as_text_and_reasoning_back(gateway: Gateway, server: ModelServer) -> None:
    _, asked = ask(gateway, server, "deepseek", CHAT | VARIANTS["json_schema"])
    [body] = asked.bodies
    assert body["response_format"] == {"type": "json_object"}
    assert '"required":["city"]' in body["messages"][0]["content"]
    assert body["messages"][3]["reasoning_content"] == "I need the tool."


def test_stop_sequences_are_emulated_for_xai(gateway: Gateway, server: ModelServer) -> None:
    answer, _ = ask(gateway, server, "xai", {"messages": [{"role": "user", "content": "Hi"}], "stop": ["there"]})
    assert answer.json()["choices"][0]["message"]["content"] == "Hello "


def test_dropped_fields_are_logged(gateway: Gateway, server: ModelServer) -> None:
    ask(gateway, server, "groq", CHAT)
    lines = [line for line in gateway.log().splitlines() if '"field_dropped"' in line and '"groq"' in line]
    for field in ("logit_bias", "messages[].name"):
        assert any(f'"field":"{field}"' in line.replace(" ", "") for line in lines)


def test_azure_deployment_gets_the_dated_version(gateway: Gateway, server: ModelServer) -> None:
    first = len(server.requests)
    answer, asked = ask(gateway, server, "dated", CHAT)
    assert (answer.status_code, asked.refusals) == (200, [])
    assert server.request(first).result(30).path == "/azure/openai/deployments/d/chat/completions?api-version=2024-10-21"


# Answers


def test_ollama_model_without_tools_is_asked_in_text_from_then_on(server: ModelServer) -> None:
    refusal = error(400, "registry.ollama.ai/library/llama3:8b does not support tools", type="api_error")
    config = f'[models.old]\nprovider = "ollama"\nmodel = "llama3:8b"\nbase_url = "{server.url}/v1"\n'
    body = {"model": "old", "messages": [{"role": "user", "content": "Hi"}], "tools": CHAT["tools"]}
    with running(config) as gateway:
        first = server.enqueue(refusal, whole(), whole())
        for _ in range(2):
            answer = gateway.post("/v1/chat/completions", body)
            assert answer.status_code == 200, answer.text
    assert ["tools" in server.request_body(first + place) for place in range(3)] == [True, False, False]
    assert "get_weather" in str(server.request_body(first + 2)["messages"])


@pytest.mark.parametrize("streamed", [False, True])
def test_openrouter_error_inside_200_is_an_error_with_its_status(
    gateway: Gateway,
    server: ModelServer,
    streamed: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    failed = b'{"error":{"code":429,"message":"Provider is rate limited","metadata":{"provider_name":"p"}},"user_id":"u"}'
    server.enqueue(stream(b": OPENROUTER PROCESSING\n\n", b"data: " + failed + b"\n\n") if streamed else reply(failed))
    answer = gateway.post(
        "/v1/chat/completions", {"model": "openrouter", "messages": [{"role": "user", "content": "Hi"}], "stream": streamed}
    )
    assert (answer.status_code, answer.json()["error"]["message"]) == (429, "Provider is rate limited")


@pytest.mark.parametrize("member", ["reasoning", "reasoning_content"])
def test_reasoning_of_openrouter_and_vllm_reaches_the_client(gateway: Gateway, server: ModelServer, member: str) -> None:
    thought = delta("x").replace(b'"content": "x"', b'"%b": "Hmm"' % member.encode())
    server.enqueue(stream(thought, delta("Yes"), end()))
    answer = gateway.post(
        "/v1/chat/completions", {"model": "vllm", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    )
    assert '"reasoning_content":"Hmm"' in answer.text


@pytest.mark.parametrize(
    ("model", "field"), [("vllm", {"structured_outputs": {"regex": "a+"}}), ("llamacpp", {"grammar": 'root ::= "yes"'})]
)
def test_servers_own_constraints_are_passed_on(gateway: Gateway, server: ModelServer, model: str, field: Json) -> None:
    _, asked = ask(gateway, server, model, {"messages": [{"role": "user", "content": "Hi"}], **field})
    assert asked.bodies[0].items() >= field.items()
