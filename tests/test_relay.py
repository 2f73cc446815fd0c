"""The relay as a whole: the real gateway between real sockets, over both wires at both of its ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.exchange import decoded, fold, gist
from tests.gateway import Gateway, running
from tests.golden.transcripts import BACKS, EXCHANGES, FRONTS
from tests.stage import BEGUN, Stage, delta, end
from tests.stage import FRONTS as DOORS
from tests.upstream import CUT, RESET, Ending, reply, stream

Json = dict[str, Any]

FRONT = pytest.mark.parametrize("front", ["chat", "responses"])
BACK = pytest.mark.parametrize("back", ["chat", "responses"])


def models(stage: Stage) -> str:
    """The models `chat` and `responses`, each reached over that wire."""
    return "".join(
        f'[models.{wire}]\nprovider = "compatible"\nbase_url = "{stage.url}/v1"\nwire = "{wire}"\n'
        for wire in ("chat", "responses")
    )


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(stage: Stage) -> Iterator[Gateway]:
    with running(models(stage)) as started:
        yield started


def recorded(exchange: str, back: str) -> bytes:
    return (EXCHANGES / exchange / f"upstream.{back}.sse").read_bytes()


def ask(exchange: str, front: str, back: str, **members: Any) -> Json:
    body: Json = json.loads((EXCHANGES / exchange / f"request.{front}.json").read_bytes())
    return {**body, "model": back, **members}


def notices(gateway: Gateway, rule: str) -> int:
    lines = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    return sum(line.get("event") == "tool_block" and line.get("rule") == rule for line in lines)


# All four ways


@FRONT
@BACK
@pytest.mark.parametrize(
    "exchange",
    ["text-with-usage", "one-call", "parallel-calls", "reasoning-then-call", "custom-grammar-tool", "call-cut-by-length"],
)
def test_an_answer_comes_through_every_pair_of_wires(
    gateway: Gateway, stage: Stage, front: str, back: str, exchange: str
) -> None:  # bug 4, 7, 8, 10, 33, 40
    asked = stage.play(stream(*recorded(exchange, back).splitlines(keepends=True)))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask(exchange, front, back))
    assert answer.status_code == 200, answer.text
    got = gist(fold(decoded(FRONTS[front], answer.content)))
    assert got == gist(fold(decoded(BACKS[back].wire, recorded(exchange, back))))
    assert stage.request(asked).result(30).path == f"/v1{BACKS[back].wire.path}"
    assert stage.asked(asked)["stream"] is True


@FRONT
@BACK
def test_an_answer_that_is_not_streamed_says_the_same(gateway: Gateway, stage: Stage, front: str, back: str) -> None:  # bug 4
    """The provider is asked as the client asked; a provider that streams all the same is understood."""
    asked = stage.play(stream(recorded("text-then-call", back)))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("text-then-call", front, back, stream=False))
    assert answer.headers["content-type"] == "application/json"
    got = gist(fold(FRONTS[front].decode_answer(answer.content)))
    assert got == gist(fold(decoded(BACKS[back].wire, recorded("text-then-call", back))))
    assert "stream" not in stage.asked(asked)


@FRONT
@BACK
def test_usage_is_told_whichever_way(gateway: Gateway, stage: Stage, front: str, back: str) -> None:  # bug 40
    stage.play(stream(recorded("one-call", back)))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("one-call", front, back, stream=False)).json()
    counted = {key: value for key, value in answer["usage"].items() if isinstance(value, int)}
    assert sorted(counted.values()) == [15, 57, 72]


# What looks like a call and is none, and the other way round

LOOKS_LIKE_A_CALL = """Like this: <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>
```json
{"name": "get_weather", "arguments": {}}
```
<function=get_weather>[TOOL_CALLS]<|tool_call|></tool_call"""


@FRONT
def test_words_that_look_like_a_call_are_words(gateway: Gateway, stage: Stage, front: str) -> None:  # bug 11, 14, 15
    """From a model that calls tools natively nothing is read out of its words, and nothing of them is held back."""
    stage.play(stream(*(delta(LOOKS_LIKE_A_CALL[place : place + 7]) for place in range(0, len(LOOKS_LIKE_A_CALL), 7)), end()))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("one-call", front, "chat"))
    got = gist(fold(decoded(FRONTS[front], answer.content)))
    assert (got.text, got.calls, got.finish) == (LOOKS_LIKE_A_CALL, (), "stop")


@FRONT
@pytest.mark.parametrize(
    ("rule", "members", "calls"),
    [
        ("tool_choice_none", {"tool_choice": "none"}, []),
        ("parallel_tool_calls_false", {"parallel_tool_calls": False}, ['{"city":"Paris"}']),
    ],
)
def test_a_call_that_breaks_a_rule_is_left_out_and_the_log_says_so(
    gateway: Gateway, stage: Stage, front: str, *, rule: str, members: Json, calls: list[str]
) -> None:  # bug 26, 27
    before = notices(gateway, rule)
    stage.play(stream(recorded("parallel-calls", "chat")))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("parallel-calls", front, "chat", **members))
    got = gist(fold(decoded(FRONTS[front], answer.content)))
    assert [arguments for _, _, arguments in got.calls] == calls
    assert got.finish == ("calls" if calls else "stop")
    assert notices(gateway, rule) == before + 2 - len(calls)


@FRONT
def test_a_call_of_a_tool_that_is_not_allowed_is_left_out_and_the_log_says_so(
    gateway: Gateway, stage: Stage, front: str
) -> None:  # bug 26
    before = notices(gateway, "not_in_allowed_tools")
    stage.play(stream(recorded("allowed-tools", "chat")))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("allowed-tools", front, "chat"))
    assert [name for _, name, _ in gist(fold(decoded(FRONTS[front], answer.content))).calls] == ["get_weather"]
    assert notices(gateway, "not_in_allowed_tools") == before + 1


@FRONT
def test_a_call_of_a_tool_that_nobody_declared_is_the_clients_to_judge(
    gateway: Gateway, stage: Stage, front: str
) -> None:  # bug 28
    before = notices(gateway, "unknown_tool")
    stage.play(stream(recorded("one-call", "chat").replace(b"get_weather", b"get_wether")))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("one-call", front, "chat"))
    assert answer.status_code == 200
    assert [name for _, name, _ in gist(fold(decoded(FRONTS[front], answer.content))).calls] == ["get_wether"]
    assert notices(gateway, "unknown_tool") == before + 1


# Nothing is asked twice, nothing is kept


@FRONT
@pytest.mark.parametrize("how", [CUT, RESET])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_provider_that_has_begun_to_answer_is_not_asked_again(
    gateway: Gateway, stage: Stage, front: str, how: Ending, *, streaming: bool
) -> None:  # bug 45
    """It may have begun to act: a second answer could be a second call."""
    begun = BEGUN if streaming else reply(b'{"choices":[{"index":0,"message":{"content":"Hel')[:-5]
    asked = stage.play((begun, how))
    door = DOORS["openai_chat" if front == "chat" else "openai_responses"]
    answer = gateway.post(door.path, {**door.ask(stream=streaming), "model": "chat"})
    assert answer.status_code == (200 if streaming else 502)
    assert b"upstream_cut" in answer.content
    assert len(stage.requests) == asked + 1


def test_the_second_round_may_come_to_another_gateway(gateway: Gateway, stage: Stage) -> None:  # bug 29, 42
    """There is no state to share: what a round needs comes with it."""
    stage.play(stream(recorded("one-call", "chat")))
    (made,) = gateway.post("/v1/responses", ask("one-call", "responses", "chat", stream=False)).json()["output"]
    with running(models(stage)) as other:
        asked = stage.play(stream(delta("Sunny."), end()))
        given = [
            "What is the weather in Paris?",
            made,
            {"type": "function_call_output", "call_id": made["call_id"], "output": "sun"},
        ]
        items = [{"role": "user", "content": given[0]}, *given[1:]]
        answer = other.post("/v1/responses", {"model": "chat", "input": items})
    assert answer.json()["output"][0]["content"][0]["text"] == "Sunny."
    _, call, result = stage.asked(asked)["messages"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == made["call_id"]
    assert len(made["call_id"]) == len("call_") + 24


def test_no_key_reads_what_another_was_answered(stage: Stage) -> None:  # bug 43
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\nmodels = ["{model}"]\n'
        for name, model in (("anna", "chat"), ("berta", "responses"))
    )
    with running(keys + models(stage)) as guarded:
        anna, berta = ({"authorization": f"Bearer {name}"} for name in ("anna", "berta"))
        assert [model["id"] for model in guarded.get("/v1/models", **anna).json()["data"]] == ["chat"]
        body = {"model": "chat", "input": "Hi", "store": True}
        assert guarded.post("/v1/responses", body, **berta).json()["error"]["code"] == "model_not_found"
        stage.play(stream(delta("A secret."), end()))
        answer = guarded.post("/v1/responses", body, **anna).json()
        assert answer["store"] is False, "nothing is kept, and the client is told"
        for headers in (anna, berta):
            for path in (answer["id"], f"{answer['id']}/input_items", "resp_of_nobody"):
                found = guarded.get(f"/v1/responses/{path}", **headers)
                assert (found.status_code, found.json()["error"]["code"]) == (404, "response_not_found")
        assert guarded.get(f"/v1/responses/{answer['id']}").status_code == 401
