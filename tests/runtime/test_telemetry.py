"""Log lines and metrics of the real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway import Gateway, running
from tests.raw_client import RawClient
from tests.stage import (
    BEGUN,
    FRONTS,
    MODEL,
    STREAMED,
    WIRES,
    Front,
    Stage,
    call,
    configuration,
    delta,
    end,
    error,
    whole,
)
from tests.upstream import CUT, LAST_CHUNK, Gate, chunk, stream_head

CANARY = "canary-7f3a"
ALWAYS = {"event", "level", "timestamp"}
TURN = ALWAYS | {"turn", "model", "wire", "key", "stream", "status", "ms"}
TOKENS = {"input_tokens", "output_tokens"}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def front(wire: str) -> Front:
    return FRONTS[wire]


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as upstream:
        yield upstream


def lines(gateway: Gateway) -> list[dict[str, Any]]:
    """Stop the gateway and return its log."""
    assert gateway.stop() == 0
    return [json.loads(line) for line in gateway.log().splitlines()]


# Lines


def test_turn_is_logged_in_one_line(stage: Stage, wire: str, front: Front) -> None:
    stage.play(STREAMED, whole())
    with running(configuration(stage)) as gateway:
        ids = [gateway.post(front.path, front.ask(stream=stream)).headers["x-request-id"] for stream in (True, False)]
        logged = lines(gateway)
    assert [f"req_{line['turn']}" for line in logged] == ids
    for line, stream in zip(logged, (True, False), strict=True):
        assert set(line) == TURN | TOKENS | {"finish", "first_ms"}
        assert (line["event"], line["level"], line["model"], line["wire"]) == ("turn", "info", MODEL, wire)
        assert (line["status"], line["finish"], line["key"], line["stream"]) == (200, "stop", None, stream)
        assert (line["input_tokens"], line["output_tokens"]) == (7, 3)
        assert 0 < line["first_ms"] <= line["ms"]


def test_call_is_logged_in_its_own_line(stage: Stage, wire: str, front: Front) -> None:
    stage.play(whole(calls=(("search", '{"query": "é"}'), ("search", "{}"))))
    with running(configuration(stage)) as gateway:
        gateway.post(front.path, front.ask(tools=[front.tool("search")]))
        *calls, turn = lines(gateway)
    assert [(line["event"], line["tool"], line["owner"], line["bytes"]) for line in calls] == [
        ("tool_block", "search", "client", 15),
        ("tool_block", "search", "client", 2),
    ]
    assert {line["turn"] for line in calls} == {turn["turn"]}
    assert (turn["finish"], turn["calls"]) == ("calls", 2)


def test_failed_turn_is_logged_with_status_and_code(stage: Stage, front: Front) -> None:
    stage.play(error(400, "no", code="context_length_exceeded"), (BEGUN, CUT))
    with running(configuration(stage)) as gateway:
        gateway.post(front.path, front.ask())
        gateway.post(front.path, front.ask(stream=True))
        refused, cut = lines(gateway)
    assert set(refused) == TURN | {"code"}
    assert (refused["status"], refused["code"]) == (400, "context_length_exceeded")
    assert (cut["status"], cut["code"]) == (502, "upstream_cut")


def test_refused_request_is_logged_with_its_id(stage: Stage, wire: str, front: Front) -> None:
    with running(configuration(stage)) as gateway:
        answer = gateway.post(front.path, front.ask(temperature="hot"))
        [line] = lines(gateway)
    assert (line["event"], line["wire"], line["status"], line["code"]) == ("refused", wire, 400, "invalid_type")
    assert f"req_{line['turn']}" == answer.headers["x-request-id"]


def history(front: Front) -> dict[str, Any]:
    """Return a request with the canary wherever content can be."""
    tool = front.tool("search")
    (tool.get("function") or tool)["description"] = CANARY
    body = front.ask(
        f"my secret is {CANARY}", tools=[tool], user=CANARY, metadata={"note": CANARY}, unknown_member=CANARY, stream=True
    )
    if front.items == "messages":
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


def canary_calls(front: Front, stage: Stage, gateway: Gateway) -> None:
    """Cause answers, failures and refusals that contain the canary."""
    answer = chunk(delta(CANARY) + call("search", json.dumps({"query": CANARY})) + end("tool_calls"))
    stage.play(
        stream_head() + answer + LAST_CHUNK,
        error(400, f"cannot: {CANARY}", type=CANARY),
        (stream_head() + chunk(delta(CANARY)), CUT),
        stream_head() + chunk(b"data: " + CANARY.encode() + b"\n\n") + LAST_CHUNK,
    )
    for _ in range(4):
        gateway.post(front.path, history(front))
    gateway.post(front.path, history(front) | {"tools": CANARY})
    gateway.post(front.path, history(front) | {"model": CANARY})
    gateway.post(front.path, history(front) | {"tool_choice": CANARY})
    gateway.get(f"/v1/models/{CANARY}?{CANARY}")
    with RawClient(gateway.port) as visitor:
        visitor.send(f"{CANARY} /{CANARY} {CANARY}\r\n\r\n".encode()).read_rest()


@pytest.mark.parametrize("form", ["json", "text"])
def test_content_is_not_logged(stage: Stage, front: Front, form: str) -> None:
    environ = {"TOOLRELAY_LOG_LEVEL": "debug", "TOOLRELAY_LOG": form}
    with running(configuration(stage), environ=environ) as gateway:
        canary_calls(front, stage, gateway)
        assert gateway.stop() == 0
        log = gateway.log()
    assert log.count("tool_block") == 1, "the call itself is there"
    assert CANARY not in log


def test_arguments_are_logged_with_log_content(stage: Stage, front: Front) -> None:
    with running(configuration(stage, before="[server]\nlog_content = true\n")) as gateway:
        canary_calls(front, stage, gateway)
        calls = [line for line in lines(gateway) if line["event"] == "tool_block"]
    assert [json.loads(line["arguments"]) for line in calls] == [{"query": CANARY}]


def test_text_log_format_is_plain(stage: Stage, front: Front) -> None:
    stage.play(whole())
    with running(configuration(stage), environ={"TOOLRELAY_LOG": "text"}) as gateway:
        gateway.post(front.path, front.ask())
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
def test_log_level_filters_lines(stage: Stage, level: str, events: list[str]) -> None:
    front = FRONTS["openai_chat"]
    stage.play(whole(), whole(calls=(("unknown", "{}"),)))
    with running(configuration(stage), environ={"TOOLRELAY_LOG_LEVEL": level}) as gateway:
        gateway.post(front.path, front.ask())
        gateway.post(front.path, front.ask())
        gateway.post(front.path, {})
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
def test_traceback_has_places_without_values(front: Front, form: str) -> None:
    with running(program=BROKEN, environ={"TOOLRELAY_LOG": form}) as gateway:
        assert gateway.post(front.path, front.ask(f"{CANARY} too") | {"model": "demo"}).status_code == 500
        assert gateway.stop() == 0
        log = gateway.log()
    assert "internal_error" in log
    assert "RuntimeError: as planned" in log
    assert "endpoints.py" in log
    assert CANARY not in log


CLOSED_PIPE = """
import os
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 2)
from toolrelay.app import serve
sys.exit(serve(settings))
"""


def test_closed_log_pipe_does_not_stop_turns(stage: Stage, front: Front) -> None:
    answer = whole(calls=(("search", "{}"),))
    stage.play(answer, answer)
    with (
        running(configuration(stage), program=CLOSED_PIPE) as gateway,
        RawClient(gateway.port, timeout=5) as visitor,
    ):
        for _ in range(2):
            assert visitor.post(front.path, front.ask(tools=[front.tool("search")])).reply().status == 200
            assert visitor.post(front.path, "nonsense").reply().status == 400


@pytest.mark.parametrize("form", ["json", "text"])
def test_lone_surrogate_in_name_is_logged(stage: Stage, front: Front, form: str) -> None:
    broken = call("half", "{}").replace(b"half", b"half\\ud83d")
    stage.play(stream_head() + chunk(broken + end("tool_calls")) + LAST_CHUNK)
    with running(configuration(stage), environ={"TOOLRELAY_LOG": form}) as gateway:
        answer = gateway.post(front.path, front.ask(stream=True))
        assert answer.status_code == 200
        assert "internal_error" not in answer.text
        assert gateway.stop() == 0
        assert gateway.log().count("tool_block") == 2, "the call, and that it is unknown"


# Metrics


class Samples:
    """The samples of /metrics at this moment."""

    def __init__(self, gateway: Gateway) -> None:
        response = gateway.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        self._samples = [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        return next((sample.value for sample in self._samples if (sample.name, sample.labels) == (name, labels)), None)


def test_metrics_count_turns_calls_and_tokens(stage: Stage, wire: str, front: Front) -> None:
    stage.play(STREAMED, whole(calls=(("search", "{}"), ("serch", "{}"))), error(400), (BEGUN, CUT), whole())
    with running(configuration(stage)) as gateway:
        before = Samples(gateway)
        for stream in (True, False, False, True, False):
            gateway.post(front.path, front.ask(stream=stream, tools=[front.tool("search")]))
        gateway.post(front.path, {})
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


def test_open_turns_are_counted(stage: Stage, front: Front) -> None:
    gate = Gate()
    asked = stage.play((BEGUN, gate), (gate,))
    with running(configuration(stage)) as gateway:
        with RawClient(gateway.port) as first, RawClient(gateway.port) as second:
            first.post(front.path, front.ask(stream=True))
            stage.request(asked).result(30)
            second.post(front.path, front.ask())
            stage.request(asked + 1).result(30)
            assert Samples(gateway)("toolrelay_turns_open") == 2
        for number in (asked, asked + 1):
            stage.left(number).result(30)
        assert Samples(gateway)("toolrelay_turns_open") == 0
