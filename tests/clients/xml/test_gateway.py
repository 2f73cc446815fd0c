"""XML clients of the running gateway: by setting or by header, on both wires, streamed and not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.xml import copilot
from tests.gateway import Gateway, running
from tests.model_server import CLIENT_APIS, frames

CONFIG = """
[models.demo]
provider = "demo"
[models.xml]
provider = "demo"
client_style = "use_tool"
[models.watched]
provider = "demo"
client_style = "use_tool"
no_result_seconds = 600
[models.kept]
provider = "demo"
client_style = "use_tool"
use_tool_order = "as_is"
no_result_seconds = 0.01
"""
XML = {"x-toolrelay-client": "use_tool"}
PRINTED = "<use_tool>\n<name>webSearch</name>\n<query>a & b</query>\n</use_tool>"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running(CONFIG) as started:
        yield started


@pytest.fixture(params=sorted(CLIENT_APIS))
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ask(gateway: Gateway, wire: str, text: str, headers: dict[str, str], **members: Any) -> Any:
    api = CLIENT_APIS[wire]
    answer = gateway.post(api.path, api.request_body(text, **members), **headers)
    assert answer.status_code == 200, answer.text
    return answer


def streamed(wire: str, answer: Any) -> list[str]:
    received = frames(answer.content)
    if wire == "openai_chat":
        deltas = [choice["delta"].get("content") for frame in received for choice in frame["choices"]]
    elif wire == "anthropic_messages":
        deltas = [frame["delta"].get("text") for frame in received if frame["type"] == "content_block_delta"]
    else:
        deltas = [frame["delta"] for frame in received if frame["type"] == "response.output_text.delta"]
    return [delta for delta in deltas if delta]


@pytest.mark.parametrize(("model", "headers"), [("xml", {}), ("demo", XML)], ids=["setting", "header"])
def test_call_becomes_block_streamed_and_whole(gateway: Gateway, wire: str, model: str, headers: dict[str, str]) -> None:
    tools = [CLIENT_APIS[wire].tool("get_weather")]
    whole = ask(gateway, wire, "get_weather", headers, model=model, tools=tools).json()
    block = "<use_tool>\n<name>get_weather</name>\n</use_tool>"
    assert CLIENT_APIS[wire].text(whole) == block
    assert streamed(wire, ask(gateway, wire, "get_weather", headers, model=model, tools=tools, stream=True)) == [block]
    if wire == "openai_chat":
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert "tool_calls" not in whole["choices"][0]["message"]
    elif wire == "anthropic_messages":
        assert [block["type"] for block in whole["content"]] == ["text"]
    else:
        assert [item["type"] for item in whole["output"]] == ["message"]


def test_openai_header_disables_blocks(gateway: Gateway) -> None:
    api = CLIENT_APIS["openai_chat"]
    asked = api.request_body("get_weather", model="xml", tools=[api.tool("get_weather")])
    [choice] = gateway.post(api.path, asked, **{"x-toolrelay-client": "openai"}).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"


def test_unknown_client_header_is_rejected(gateway: Gateway, wire: str) -> None:
    answer = gateway.post(
        CLIENT_APIS[wire].path, CLIENT_APIS[wire].request_body(model="demo"), **{"x-toolrelay-client": "klingon"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-toolrelay-client"


def test_results_in_user_text_reach_model_as_results(gateway: Gateway, wire: str) -> None:
    api = CLIENT_APIS[wire]
    history = [
        {"role": "user", "content": "get_weather"},
        {"role": "assistant", "content": "<use_tool>\n<name>get_weather</name>\n</use_tool>"},
        {"role": "user", "content": copilot.results(("get_weather", "18 degrees"))},
    ]
    asked = {"model": "xml", api.items: history, "tools": [api.tool("get_weather")]}
    assert api.text(gateway.post(api.path, asked).json()) == "get_weather says: 18 degrees"


def test_printed_blocks_come_first_each_in_own_delta(gateway: Gateway, wire: str) -> None:
    prompt = f"repeat: I will look in <use_tool> blocks. {PRINTED}\n{PRINTED}"
    received = streamed(wire, ask(gateway, wire, prompt, {}, model="xml", stream=True))
    assert copilot.calls("".join(received)) == copilot.calls(prompt)
    as_is = streamed(wire, ask(gateway, wire, f"repeat: Look: {PRINTED}{PRINTED}", {}, model="kept", stream=True))
    assert as_is[-2:] == [PRINTED, PRINTED]
    assert "".join(as_is) == f"Look: {PRINTED}{PRINTED}"


def test_blocks_and_results_are_logged_and_counted(gateway: Gateway) -> None:
    api = CLIENT_APIS["openai_chat"]
    first = {"role": "user", "content": f"repeat: {PRINTED}"}
    answer = api.text(gateway.post(api.path, {"model": "watched", "messages": [first]}).json())
    assert answer == PRINTED
    later = [first, {"role": "assistant", "content": answer}, {"role": "user", "content": copilot.results(("webSearch", "x"))}]
    gateway.post(api.path, {"model": "watched", "messages": later})
    logged = [line for line in map(json.loads, gateway.log().splitlines()) if line.get("model") == "watched"]
    assert [(line["tool"], line["split_emitted"]) for line in logged if line["event"] == "tool_block"] == [("webSearch", False)]
    assert [line["tools"] for line in logged if line["event"] == "tool_result"] == [["webSearch"]]
    assert 'toolrelay_result_wait_seconds_count{model="watched"} 1.0' in gateway.get("/metrics").text


def test_reemit_header_sends_block_again(gateway: Gateway, wire: str) -> None:
    asked = ask(gateway, wire, f"repeat: {PRINTED}", {"x-toolrelay-reemit": "1"}, model="kept", stream=True)
    assert streamed(wire, asked) == [PRINTED, PRINTED]
    assert "no_result" in gateway.log()


def test_recorded_turn_has_blocks_too(wire: str) -> None:
    api = CLIENT_APIS[wire]
    tools, block = [api.tool("get_weather")], "<use_tool>\n<name>get_weather</name>\n</use_tool>"
    with running(f'[store]\nrecord = "all"\n{CONFIG}') as recording:
        assert api.text(ask(recording, wire, "get_weather", XML, model="demo", tools=tools).json()) == block
        assert streamed(wire, ask(recording, wire, "get_weather", XML, model="demo", tools=tools, stream=True)) == [block]


@pytest.mark.parametrize("member", [{"background": True}, {"conversation": "conv_1"}])
def test_state_that_needs_real_calls_is_refused(gateway: Gateway, member: dict[str, Any]) -> None:
    api = CLIENT_APIS["openai_responses"]
    refused = gateway.post(api.path, api.request_body(model="xml", **member))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, next(iter(member)))
