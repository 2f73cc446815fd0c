"""Who may use the gateway's tools, time-outs of a turn's tools, and keep-alive while they run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.durable import Workshop
from tests.model_server import ModelServer, frames
from tests.raw_client import RawClient
from tests.scripted_models import MODELS
from tests.tool_gateway import ToolGateway, running_tools
from tests.tool_rounds import Round, play
from tests.upstream import Gate, Upstream

MODEL = MODELS["chat"]
HI = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
WEATHER = MODEL.answer("", [("get_weather", '{"city": "Paris"}')])
DONE = MODEL.answer("Done.")


def table(name: str, url: str, more: str) -> str:
    return MODEL.table(url, more).replace("[models.chat]", f"[models.{name}]")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def tooled(server: ModelServer) -> Iterator[ToolGateway]:
    short = table("short", server.url, "timeout_seconds = 0.5")
    none = table("none", server.url, "max_tool_rounds = 0")
    with running_tools("[server]\nkeepalive_seconds = 0.2\n" + MODEL.table(server.url) + short + none) as tooled:
        yield tooled


def offered(server: ModelServer, number: int) -> list[str]:
    return [tool.name for tool in MODEL.request(server, number).functions()]


def test_keep_alive_comments_flow_while_a_tool_runs(tooled: ToolGateway, server: ModelServer) -> None:
    server.enqueue(MODEL.answer("", [("wait", "{}")]), DONE)
    with RawClient(tooled.gateway.port) as client:
        client.post("/v1/chat/completions", {**HI, "stream": True}, "connection: close")
        client.read_until(b": keep-alive\n\n")
        client.read_until(b": keep-alive\n\n")
        tooled.release("at last")
        assert b'"finish_reason":"stop"' in client.read_until(b"data: [DONE]\n\n")
    assert "at last" in server.request(len(server.requests) - 1).result(30).body.decode()


def test_tools_of_a_turn_are_stopped_when_their_time_is_used_up(tooled: ToolGateway, server: ModelServer) -> None:
    tooled.runs()
    weather = ("get_weather", '{"city": "Paris"}')
    first = server.enqueue(MODEL.answer("", [("hang", "{}"), weather]), DONE)
    answer = tooled.gateway.post("/v1/chat/completions", {**HI, "model": "short"}).json()
    assert answer["choices"][0]["message"]["content"] == "Done."
    assert tooled.runs() == ["hang"]
    sent = server.request(first + 1).result(30).body.decode()
    assert "The tool was stopped, its outcome is unknown" in sent
    assert "The tool was not run" in sent


def test_without_rounds_gateway_tools_are_not_offered(tooled: ToolGateway, server: ModelServer) -> None:
    first = server.enqueue(DONE)
    tooled.gateway.post("/v1/chat/completions", {**HI, "model": "none", "stream": True})
    assert offered(server, first) == []


def test_environment_turns_all_tools_off(server: ModelServer) -> None:
    with running_tools(MODEL.table(server.url), environ={"TOOLRELAY_TOOLS": "off"}) as tooled:
        first = server.enqueue(DONE)
        response = tooled.gateway.post("/v1/chat/completions", {**HI, "stream": True})
    assert frames(response.content)
    assert offered(server, first) == []


def test_tools_are_granted_by_model_and_by_key(server: ModelServer) -> None:
    """The model that has all, with each key; then the model that has one toolset."""
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\ntoolsets = [{toolsets}]\n'
        for name, toolsets in (("all", '"*"'), ("odd", '"odd"'), ("no", ""))
    )
    one = table("one", server.url, "").replace('toolsets = ["mine", "odd"]', 'toolsets = ["mine"]')
    with running_tools(keys + MODEL.table(server.url) + one) as tooled:
        for key, model, tools in (
            ("all", "chat", ["get_weather", "get_time", "big", "wait", "hang"]),
            ("odd", "chat", ["big", "wait", "hang"]),
            ("no", "chat", []),
            ("all", "one", ["get_weather", "get_time"]),
            ("odd", "one", []),
        ):
            first = server.enqueue(DONE)
            body = {**HI, "model": model, "stream": True}
            tooled.gateway.post("/v1/chat/completions", body, authorization=f"Bearer {key}")
            assert offered(server, first) == tools, (key, model)


def test_call_of_a_tool_that_was_not_granted_is_not_run(server: ModelServer) -> None:
    one = MODEL.table(server.url).replace('toolsets = ["mine", "odd"]', 'toolsets = ["odd"]')
    with running_tools(one) as tooled:
        first = server.enqueue(WEATHER, DONE)
        answer = tooled.gateway.post("/v1/chat/completions", HI).json()
        assert answer["choices"][0]["message"]["content"] == "Done."
        assert tooled.runs() == []
    assert "Unknown tool: get_weather" in server.request(first + 1).result(30).body.decode()


@pytest.mark.parametrize(("model", "headers"), [("", {"x-toolrelay-tools": "off"}), ('tool_calling = "off"', {})])
def test_turn_without_gateway_tools_has_none_after_kill_9(tmp_path: Path, model: str, headers: dict[str, str]) -> None:
    gate = Gate()
    with Upstream(play(Round(calls=(("once", {"number": 1}),), gate=gate))) as upstream:
        workshop = Workshop(tmp_path, upstream, model=model)
        with workshop.start() as gateway, RawClient(gateway.port) as client:
            body = {"model": "fast", "input": "Hi", "background": True, "stream": True}
            client.post("/v1/responses", body, *(f"{name}: {value}" for name, value in headers.items()))
            gate.reached.result(30)
            workshop.kill(gateway)
        gate.open()
        with workshop.start():
            workshop.await_that(lambda: workshop.statuses() == ["finished"], workshop.statuses)
    assert workshop.lines() == []
    assert ["tools" in json.loads(request.body) for request in upstream.requests] == [False, False]
