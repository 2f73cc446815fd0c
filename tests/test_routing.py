"""Aliases, default parameters and fallbacks, through the real gateway with scripted servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import Gateway, running
from tests.model_server import BEGUN, CLIENT_APIS, STREAMED, Json, ModelServer, error, failure, whole
from tests.upstream import CLOSE, Gate, reply
from toolrelay.config import load
from toolrelay.errors import ConfigurationError

FRONT = pytest.mark.parametrize("front", sorted(CLIENT_APIS))
KEY = "sk-of-a-client"
UNREACHABLE = "http://127.0.0.1:1/v1"  # nothing listens there
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
PRINTED = '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>'


@pytest.fixture
def first() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def second() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def table(name: str, url: str, more: str = "") -> str:
    return f'[models.{name}]\nprovider = "compatible"\nbase_url = "{url}"\n{more}\n'


def routed(first: str, second: ModelServer, more: str = "", of_second: str = "") -> str:
    return table("fast", first, f'fallbacks = ["home"]\n{more}') + table("home", f"{second.url}/v1", of_second)


def ask(gateway: Gateway, front: str = "openai_chat", **members: Any) -> httpx.Response:
    return gateway.post(CLIENT_APIS[front].path, CLIENT_APIS[front].request_body(**members))


def lines(gateway: Gateway, event: str) -> list[Json]:
    found = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


# Fallbacks


@FRONT
@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (error(500), "status_500"),
        (error(401), "upstream_auth"),
        (error(402), "status_402"),
        (error(404), "status_404"),
        (error(429, headers="retry-after: 60\r\n"), "status_429"),
        (reply(b'{"error":{"code":503,"message":"down"}}'), "status_503"),
        (reply(b"<html>", content_type="text/html"), "status_502"),
        (CLOSE, "upstream_cut"),
    ],
    ids=["500", "401", "402", "404", "429", "503 inside 200", "web page", "cut"],
)
def test_fault_of_a_server_is_answered_by_the_fallback(
    first: ModelServer, second: ModelServer, front: str, fault: Any, rule: str
) -> None:
    first.enqueue(fault)
    asked = second.enqueue(whole())
    with running(routed(f"{first.url}/v1", second)) as gateway:
        answer = ask(gateway, front)
        assert answer.status_code == 200, answer.text
        assert CLIENT_APIS[front].text(answer.json()) == "Hello there"
        assert answer.json()["model"] == "fast"
        [line] = lines(gateway, "upstream_fallback")
        assert (line["rule"], line["failed"], line["fallback"], line["model"]) == (rule, "fast", "home", "fast")
        assert answer.headers["x-request-id"] == f"req_{line['turn']}"
        assert 'toolrelay_fallbacks_total{failed="fast",fallback="home",model="fast"} 1.0' in gateway.get("/metrics").text
    assert second.request_body(asked)["model"] == "home"


@FRONT
def test_unreachable_server_is_answered_by_the_fallback_as_a_stream(second: ModelServer, front: str) -> None:
    second.enqueue(STREAMED)
    with running(routed(UNREACHABLE, second)) as gateway:
        answer = ask(gateway, front, stream=True)
        assert "there" in answer.text
        assert [line["rule"] for line in lines(gateway, "upstream_fallback")] == ["upstream_unreachable"]


def test_silent_server_is_answered_by_the_fallback(first: ModelServer, second: ModelServer) -> None:
    first.enqueue((Gate(),))
    second.enqueue(whole())
    with running(routed(f"{first.url}/v1", second, "timeout_seconds = 0.2")) as gateway:
        assert ask(gateway).status_code == 200
        assert [line["rule"] for line in lines(gateway, "upstream_fallback")] == ["upstream_timeout"]
        first.closed(0).result(30)


@FRONT
@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_fault_of_the_client_has_no_fallback(first: ModelServer, second: ModelServer, front: str, status: int) -> None:
    first.enqueue(error(status, "too long"))
    with running(routed(f"{first.url}/v1", second)) as gateway:
        assert ask(gateway, front).status_code == status
        assert lines(gateway, "upstream_fallback") == []
    assert not second.requests


@FRONT
def test_answer_that_has_begun_has_no_fallback(first: ModelServer, second: ModelServer, front: str) -> None:
    first.enqueue((BEGUN, CLOSE))
    with running(routed(f"{first.url}/v1", second)) as gateway:
        answer = ask(gateway, front, stream=True)
        assert "Hello" in answer.text
        assert failure(answer.content)["code"] == "upstream_cut"
    assert not second.requests


def test_failed_model_is_passed_over_until_it_has_cooled_down(first: ModelServer, second: ModelServer) -> None:
    first.enqueue(error(500))
    second.enqueue(whole(), whole())
    with running(routed(f"{first.url}/v1", second, "fallback_cooldown_seconds = 1000")) as gateway:
        assert [ask(gateway).status_code for _ in range(2)] == [200, 200]
        assert [line["rule"] for line in lines(gateway, "upstream_fallback")] == ["status_500", "cooling_down"]
    assert (len(first.requests), len(second.requests)) == (1, 2)


def test_without_cooldown_the_model_is_asked_every_time(first: ModelServer, second: ModelServer) -> None:
    first.enqueue(error(500), whole())
    second.enqueue(whole())
    with running(routed(f"{first.url}/v1", second, "fallback_cooldown_seconds = 0")) as gateway:
        assert [ask(gateway).status_code for _ in range(2)] == [200, 200]
    assert (len(first.requests), len(second.requests)) == (2, 1)


def test_last_error_is_returned_if_all_models_fail(first: ModelServer, second: ModelServer) -> None:
    first.enqueue(error(500, "first"))
    second.enqueue(error(502, "second"))
    with running(routed(f"{first.url}/v1", second)) as gateway:
        answer = ask(gateway)
    assert (answer.status_code, answer.json()["error"]["message"]) == (502, "second")


@FRONT
def test_fallback_that_prints_its_calls_makes_tool_calls(second: ModelServer, front: str) -> None:
    asked = second.enqueue(whole(PRINTED), whole("Sunny"))
    with running(routed(UNREACHABLE, second, "fallback_cooldown_seconds = 0", 'tool_calling = "hermes"')) as gateway:
        answer = ask(gateway, front, tools=[CLIENT_APIS[front].tool("get_weather")])
        assert answer.status_code == 200, answer.text
        assert '"name":"get_weather"' in answer.text
        assert "<tool_call>" not in answer.text
    assert "tools" not in second.request_body(asked)


def test_native_fallback_stands_in_for_a_model_that_prints_its_calls(second: ModelServer) -> None:
    asked = second.enqueue(whole("", calls=(("get_weather", "{}"),)))
    with running(routed(UNREACHABLE, second, 'tool_calling = "hermes"')) as gateway:
        answer = ask(gateway, tools=[TOOL])
        assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert second.request_body(asked)["tools"] == [TOOL]


def test_embeddings_have_no_fallback(second: ModelServer) -> None:
    with running(routed(UNREACHABLE, second)) as gateway:
        assert gateway.post("/v1/embeddings", {"model": "fast", "input": "x"}).status_code == 502
    assert not second.requests


# Aliases and default parameters


@FRONT
def test_alias_is_another_name_of_the_model(first: ModelServer, front: str) -> None:
    asked = first.enqueue(whole())
    with running(table("fast", f"{first.url}/v1", 'aliases = ["gpt-4o", "other/name"]')) as gateway:
        answer = ask(gateway, front, model="gpt-4o")
        assert (answer.status_code, answer.json()["model"]) == (200, "fast")
        names = [model["id"] for model in gateway.get("/v1/models").json()["data"]]
        assert [name for name in names if name != "demo"] == ["fast", "gpt-4o", "other/name"]
        assert gateway.get("/v1/models/other/name").json()["id"] == "other/name"
        [line] = lines(gateway, "turn")
        assert line["model"] == "fast"
    assert first.request_body(asked)["model"] == "fast"


def test_alias_gives_no_rights(first: ModelServer) -> None:
    key = f'[[keys]]\nname = "a"\nsha256 = "{sha256(KEY.encode()).hexdigest()}"\nmodels = ["gpt-*"]\n'
    with running(key + table("fast", f"{first.url}/v1", 'aliases = ["gpt-4o"]')) as gateway:
        headers = {"authorization": f"Bearer {KEY}"}
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
        assert gateway.post("/v1/chat/completions", body, **headers).status_code == 404
        assert gateway.get("/v1/models", **headers).json()["data"] == []
    assert not first.requests


@FRONT
def test_defaults_are_sent_unless_the_request_sets_them(first: ModelServer, front: str) -> None:
    asked = first.enqueue(whole())
    more = 'defaults = { temperature = 0.2, top_p = 0.5, max_tokens = 64, reasoning_effort = "low" }'
    with running(table("fast", f"{first.url}/v1", more)) as gateway:
        ask(gateway, front, temperature=0)
    sent = first.request_body(asked)
    assert {name: sent[name] for name in ("temperature", "top_p", "max_tokens", "reasoning_effort")} == {
        "temperature": 0,
        "top_p": 0.5,
        "max_tokens": 64,
        "reasoning_effort": "low",
    }


# Mistakes in the configuration


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('fallbacks = ["hom"]', 'fallbacks: there is no model "hom"; did you mean home?'),
        ('fallbacks = ["fast"]', 'fallbacks: "fast" is this model itself; expected other models'),
        ('fallbacks = ["home", "home"]', 'fallbacks: "home" is named twice'),
        ('local = true\nfallbacks = ["home"]', 'fallbacks: "home" is not local, and this model may see private notes'),
        ('aliases = ["home"]', 'aliases: "home" is the name of a model; expected another name'),
        ('aliases = ["a", "a"]', 'aliases: "a" is an alias of models.fast already; expected another name'),
        ("defaults = { temperature = 3 }", "defaults: expected a table with any of temperature,"),
        ("defaults = { temprature = 1 }", "defaults: expected a table with any of temperature,"),
    ],
)
def test_mistake_is_reported(tmp_path: Path, more: str, problem: str) -> None:
    file = tmp_path / "toolrelay.toml"
    file.write_text(table("fast", UNREACHABLE, more) + table("home", UNREACHABLE))
    with pytest.raises(ConfigurationError) as caught:
        load(str(file), {})
    assert f"models.fast.{problem}" in str(caught.value)
