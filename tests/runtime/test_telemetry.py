"""Log lines and metrics of the real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway import Gateway, running
from tests.model_server import (
    BEGUN,
    CLIENT_APIS,
    MODEL,
    STREAMED,
    WIRES,
    ClientApi,
    ModelServer,
    call,
    configuration,
    delta,
    end,
    error,
    whole,
)
from tests.raw_client import RawClient
from tests.upstream import CLOSE, LAST_CHUNK, Gate, chunk, stream_head

CANARY = "canary-7f3a"
ALWAYS = {"event", "level", "timestamp"}
TURN = ALWAYS | {"turn", "model", "wire", "key", "stream", "status", "ms"}
TOKENS = {"input_tokens", "output_tokens"}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def api(wire: str) -> ClientApi:
    return CLIENT_APIS[wire]


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


def lines(gateway: Gateway) -> list[dict[str, Any]]:
    """Stop the gateway and return its log."""
    assert gateway.stop() == 0
    return [json.loads(line) for line in gateway.log().splitlines()]


# Lines


def test_turn_is_logged_in_one_line(model_server: ModelServer, wire: str, api: ClientApi) -> None:
    model_server.enqueue(STREAMED, whole())
    with running(configuration(model_server)) as gateway:
        ids = [gateway.post(api.path, api.request_body(stream=stream)).headers["x-request-id"] for stream in (True, False)]
        logged = lines(gateway)
    assert [f"req_{line['turn']}" for line in logged] == ids
    for line, stream in zip(logged, (True, False), strict=True):
        assert set(line) == TURN | TOKENS | {"finish", "first_ms"}
        assert (line["event"], line["level"], line["model"], line["wire"]) == ("turn", "info", MODEL, wire)
        assert (line["status"], line["finish"], line["key"], line["stream"]) == (200, "stop", None, stream)
        assert (line["input_tokens"], line["output_tokens"]) == (7, 3)
        assert 0 < line["first_ms"] <= line["ms"]


def test_call_is_logged_in_its_own_line(model_server: ModelServer, wire: str, api: ClientApi) -> None:
    model_server.enqueue(whole(calls=(("search", '{"query": "é"}'), ("search", "{}"))))
    with running(configuration(model_server)) as gateway:
        gateway.post(api.path, api.request_body(tools=[api.tool("search")]))
        *calls, turn = lines(gateway)
    assert [(line["event"], line["tool"], line["owner"], line["bytes"]) for line in calls] == [
        ("tool_block", "search", "client", 15),
        ("tool_block", "search", "client", 2),
    ]
    assert {line["turn"] for line in calls} == {turn["turn"]}
    assert (turn["finish"], turn["calls"]) == ("calls", 2)


def test_failed_turn_is_logged_with_status_and_code(model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(error(400, "no", code="context_length_exceeded"), (BEGUN, CLOSE))
    with running(configuration(model_server)) as gateway:
        gateway.post(api.path, api.request_body())
        gateway.post(api.path, api.request_body(stream=True))
        refused, cut = lines(gateway)
    assert set(refused) == TURN | {"code"}
    assert (refused["status"], refused["code"]) == (400, "context_length_exceeded")
    assert (cut["status"], cut["code"]) == (502, "upstream_cut")


def test_refused_request_is_logged_with_its_id(model_server: ModelServer, wire: str, api: ClientApi) -> None:
    with running(configuration(model_server)) as gateway:
        answer = gateway.post(api.path, api.request_body(temperature="hot"))
        [line] = lines(gateway)
    assert (line["event"], line["wire"], line["status"], line["code"]) == ("refused", wire, 400, "invalid_type")
    assert f"req_{line['turn']}" == answer.headers["x-request-id"]


def history(api: ClientApi) -> dict[str, Any]:
    """Return a request with the canary wherever content can be."""
    tool = api.tool("search")
    (tool.get("function") or tool)["description"] = CANARY
    body = api.request_body(
        f"my secret is {CANARY}", tools=[tool], user=CANARY, metadata={"note": CANARY}, unknown_member=CANARY, stream=True
    )
    if "input_schema" in tool:
        body["system"] = CANARY
        body["messages"] += [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "search", "input": {"query": CANARY}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": CANARY}]},
        ]
    elif api.items == "messages":
        function = {"name": "search", "arguments": json.dumps({"query": CANARY})}
        body["messages"] += [
            {"role": "assistant", "content": CANARY, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_1", "content": CANARY},
        ]
    else:
        body["instructions"] = CANARY
        body["input"] += [
            {"type": "function_call", "call_id": "call_1", "name": "search", "arguments": json.dumps({"query": CANARY})},
            {"type": "function_call_output", "call_id": "call_1", "output": CANARY},
        ]
    return body


def canary_calls(api: ClientApi, model_server: ModelServer, gateway: Gateway) -> None:
    """Cause answers, failures and refusals that contain the canary."""
    answer = chunk(delta(CANARY) + call("search", json.dumps({"query": CANARY})) + end("tool_calls"))
    model_server.enqueue(
        stream_head() + answer + LAST_CHUNK,
        error(400, f"cannot: {CANARY}", type=CANARY),
        (stream_head() + chunk(delta(CANARY)), CLOSE),
        stream_head() + chunk(b"data: " + CANARY.encode() + b"\n\n") + LAST_CHUNK,
    )
    for _ in range(4):
        gateway.post(api.path, history(api))
    gateway.post(api.path, history(api) | {"tools": CANARY})
    gateway.post(api.path, history(api) | {"model": CANARY})
    gateway.post(api.path, history(api) | {"tool_choice": CANARY})
    gateway.get(f"/v1/models/{CANARY}?{CANARY}")
    with RawClient(gateway.port) as visitor:
        visitor.send(f"{CANARY} /{CANARY} {CANARY}\r\n\r\n".encode()).read_rest()


@pytest.mark.parametrize("form", ["json", "text"])
def test_content_is_not_logged(model_server: ModelServer, api: ClientApi, form: str) -> None:
    environ = {"TOOLRELAY_LOG_LEVEL": "debug", "TOOLRELAY_LOG": form}
    with running(configuration(model_server), environ=environ) as gateway:
        canary_calls(api, model_server, gateway)
        assert gateway.stop() == 0
        log = gateway.log()
    assert log.count("tool_block") == 1, "the call itself is there"
    assert CANARY not in log


def test_arguments_are_logged_with_log_content(model_server: ModelServer, api: ClientApi) -> None:
    with running(configuration(model_server, before="[server]\nlog_content = true\n")) as gateway:
        canary_calls(api, model_server, gateway)
        calls = [line for line in lines(gateway) if line["event"] == "tool_block"]
    assert [json.loads(line["arguments"]) for line in calls] == [{"query": CANARY}]


def test_text_log_format_is_plain(model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(whole())
    with running(configuration(model_server), environ={"TOOLRELAY_LOG": "text"}) as gateway:
        gateway.post(api.path, api.request_body())
        assert gateway.stop() == 0
        [line] = gateway.log().splitlines()
    assert " info " in line
    assert f"model={MODEL}" in line
    assert "\x1b[" not in line, "no colours where it is not a terminal"


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["turn", "tool_block", "tool_block", "turn", "refused", "refused"]),
        ("info", ["turn", "tool_block", "tool_block", "turn", "refused", "refused"]),
        ("warning", ["tool_block"]),
        ("error", []),
    ],
)
def test_log_level_filters_lines(model_server: ModelServer, level: str, events: list[str]) -> None:
    api = CLIENT_APIS["openai_chat"]
    model_server.enqueue(whole(), whole(calls=(("unknown", "{}"),)))
    with running(configuration(model_server), environ={"TOOLRELAY_LOG_LEVEL": level}) as gateway:
        gateway.post(api.path, api.request_body())
        gateway.post(api.path, api.request_body())
        gateway.post(api.path, {})
        with RawClient(gateway.port) as visitor:
            visitor.send(b"nonsense\r\n\r\n").read_rest()
        assert [line["event"] for line in lines(gateway)] == events


# Internal errors

BROKEN = f"""
from toolrelay import log
from toolrelay.app import App, serve_app
from toolrelay.runtime.models import Model

class Broken:
    async def stream_into(self, request, deliver):
        api_key = "{CANARY}"
        raise RuntimeError("as planned")

    async def close(self):
        pass

log.configure(settings.log, settings.log_level)
app = App(settings)
app.models["demo"] = Model(settings=settings.models["demo"], backend=Broken(), mode=app.models["demo"].mode)
sys.exit(serve_app(app, settings.server))
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_traceback_has_places_without_values(api: ClientApi, form: str) -> None:
    with running(program=BROKEN, environ={"TOOLRELAY_LOG": form}) as gateway:
        assert gateway.post(api.path, api.request_body(f"{CANARY} too") | {"model": "demo"}).status_code == 500
        assert gateway.stop() == 0
        log = gateway.log()
    assert "internal_error" in log
    assert "RuntimeError: as planned" in log
    assert "driver.py" in log
    assert CANARY not in log


CLOSED_PIPE = """
import os
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 2)
from toolrelay.app import serve
sys.exit(serve(settings))
"""


def test_closed_log_pipe_does_not_stop_turns(model_server: ModelServer, api: ClientApi) -> None:
    answer = whole(calls=(("search", "{}"),))
    model_server.enqueue(answer, answer)
    with (
        running(configuration(model_server), program=CLOSED_PIPE) as gateway,
        RawClient(gateway.port) as visitor,
    ):
        for _ in range(2):
            assert visitor.post(api.path, api.request_body(tools=[api.tool("search")])).reply().status == 200
            assert visitor.post(api.path, "nonsense").reply().status == 400


@pytest.mark.parametrize("form", ["json", "text"])
def test_lone_surrogate_in_name_is_logged(model_server: ModelServer, api: ClientApi, form: str) -> None:
    broken = call("half", "{}").replace(b"half", b"half\\ud83d")
    model_server.enqueue(stream_head() + chunk(broken + end("tool_calls")) + LAST_CHUNK)
    with running(configuration(model_server), environ={"TOOLRELAY_LOG": form}) as gateway:
        answer = gateway.post(api.path, api.request_body(stream=True))
        assert answer.status_code == 200
        assert "internal_error" not in answer.text
        assert gateway.stop() == 0
        assert gateway.log().count("tool_block") == 2, "the call, and that it is unknown"


def test_long_name_is_logged_cut(model_server: ModelServer, api: ClientApi) -> None:
    model_server.enqueue(stream_head() + chunk(call("n" * 5000, "{}") + end("tool_calls")) + LAST_CHUNK)
    with running(configuration(model_server), environ={"TOOLRELAY_LOG": "json"}) as gateway:
        assert gateway.post(api.path, api.request_body(stream=True)).status_code == 200
        assert gateway.stop() == 0
        assert [line["tool"] for line in lines(gateway) if line["event"] == "tool_block"] == ["n" * 100] * 2


# Metrics


class Samples:
    """The samples of /metrics at this moment."""

    def __init__(self, gateway: Gateway) -> None:
        response = gateway.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        self._samples = [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        return next((sample.value for sample in self._samples if (sample.name, sample.labels) == (name, labels)), None)


def test_metrics_count_turns_calls_and_tokens(model_server: ModelServer, wire: str, api: ClientApi) -> None:
    model_server.enqueue(STREAMED, whole(calls=(("search", "{}"), ("serch", "{}"))), error(400), (BEGUN, CLOSE), whole())
    with running(configuration(model_server)) as gateway:
        before = Samples(gateway)
        for stream in (True, False, False, True, False):
            gateway.post(api.path, api.request_body(stream=stream, tools=[api.tool("search")]))
        gateway.post(api.path, {})
        after = Samples(gateway)
    assert before("toolrelay_turns_open") == after("toolrelay_turns_open") == 0
    assert before("toolrelay_turns_total", model=MODEL, wire=wire, status="200") is None
    assert after("toolrelay_turns_total", model=MODEL, wire=wire, status="200") == 3
    assert after("toolrelay_turns_total", model=MODEL, wire=wire, status="400") == 1
    assert after("toolrelay_turns_total", model=MODEL, wire=wire, status="502") == 1
    assert after("toolrelay_tokens_total", model=MODEL, direction="input") == 21
    assert after("toolrelay_tokens_total", model=MODEL, direction="output") == 9
    assert after("toolrelay_tool_calls_total", model=MODEL, owner="client") == 2
    assert after("toolrelay_tool_blocks_total", model=MODEL, rule="unknown_tool") == 1
    assert after("toolrelay_turn_seconds_count", model=MODEL) == 5
    assert after("toolrelay_first_event_seconds_count", model=MODEL) == 4, "an error is not an event"


def test_open_turns_are_counted(model_server: ModelServer, api: ClientApi) -> None:
    gate = Gate()
    asked = model_server.enqueue((BEGUN, gate), (gate,))
    with running(configuration(model_server)) as gateway:
        with RawClient(gateway.port) as first, RawClient(gateway.port) as second:
            first.post(api.path, api.request_body(stream=True))
            model_server.request(asked).result(30)
            second.post(api.path, api.request_body())
            model_server.request(asked + 1).result(30)
            assert Samples(gateway)("toolrelay_turns_open") == 2
        for number in (asked, asked + 1):
            model_server.closed(number).result(30)
        gateway.await_no_turns()
