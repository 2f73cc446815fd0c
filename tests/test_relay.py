"""The real gateway as a relay between real sockets, over both wires on both sides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from tests.exchange import decode_all, fold, gist
from tests.gateway import Gateway, running
from tests.golden.transcripts import BACKS, EXCHANGES, FRONTS
from tests.model_server import BEGUN, CLIENT_APIS, ModelServer, delta, end
from tests.upstream import CLOSE, RESET, Disconnect, reply, stream

Json = dict[str, Any]

FRONT = pytest.mark.parametrize("front", ["chat", "responses"])
BACK = pytest.mark.parametrize("back", ["chat", "responses"])


def models(model_server: ModelServer) -> str:
    """Configure the models `chat` and `responses`, each over the wire of that name."""
    return "".join(
        f'[models.{wire}]\nprovider = "compatible"\nbase_url = "{model_server.url}/v1"\nwire = "{wire}"\n'
        for wire in ("chat", "responses")
    )


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(model_server: ModelServer) -> Iterator[Gateway]:
    with running(models(model_server)) as started:
        yield started


def recorded(exchange: str, back: str) -> bytes:
    return (EXCHANGES / exchange / f"upstream.{back}.sse").read_bytes()


def ask(exchange: str, front: str, back: str, **members: Any) -> Json:
    body: Json = json.loads((EXCHANGES / exchange / f"request.{front}.json").read_bytes())
    return {**body, "model": back, **members}


def notices(gateway: Gateway, rule: str) -> int:
    lines = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    return sum(line.get("event") == "tool_block" and line.get("rule") == rule for line in lines)


# All four pairs of wires


@FRONT
@BACK
@pytest.mark.parametrize(
    "exchange",
    ["text-with-usage", "one-call", "parallel-calls", "reasoning-then-call", "custom-grammar-tool", "call-cut-by-length"],
)
def test_streamed_answer_is_the_same_over_every_pair_of_wires(
    gateway: Gateway, model_server: ModelServer, front: str, back: str, exchange: str
) -> None:  # bug 4, 7, 8, 10, 33, 40
    first = model_server.enqueue(stream(*recorded(exchange, back).splitlines(keepends=True)))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask(exchange, front, back))
    assert answer.status_code == 200, answer.text
    got = gist(fold(decode_all(FRONTS[front], answer.content)))
    assert got == gist(fold(decode_all(BACKS[back].wire, recorded(exchange, back))))
    assert model_server.request(first).result(30).path == f"/v1{FRONTS[back].path}"
    assert model_server.request_body(first)["stream"] is True


@FRONT
@BACK
def test_whole_answer_equals_the_streamed_one(
    gateway: Gateway, model_server: ModelServer, front: str, back: str
) -> None:  # bug 4
    """The upstream request does not stream either. An upstream that streams nevertheless is decoded."""
    first = model_server.enqueue(stream(recorded("text-then-call", back)))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("text-then-call", front, back, stream=False))
    assert answer.headers["content-type"] == "application/json"
    got = gist(fold(FRONTS[front].decode_answer(answer.content)))
    assert got == gist(fold(decode_all(BACKS[back].wire, recorded("text-then-call", back))))
    assert "stream" not in model_server.request_body(first)


@FRONT
@BACK
def test_usage_is_returned_over_every_pair_of_wires(
    gateway: Gateway, model_server: ModelServer, front: str, back: str
) -> None:  # bug 40
    model_server.enqueue(stream(recorded("one-call", back)))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("one-call", front, back, stream=False)).json()
    counts = {key: value for key, value in answer["usage"].items() if isinstance(value, int)}
    assert sorted(counts.values()) == [15, 57, 72]


# Text that looks like a call, and calls that break a rule

LOOKS_LIKE_A_CALL = """Like this: <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>
```json
{"name": "get_weather", "arguments": {}}
```
<function=get_weather>[TOOL_CALLS]<|tool_call|></tool_call"""


@FRONT
def test_text_that_looks_like_a_call_stays_text(
    gateway: Gateway, model_server: ModelServer, front: str
) -> None:  # bug 11, 14, 15
    """The text of a model with native calls is neither parsed nor held back."""
    model_server.enqueue(
        stream(*(delta(LOOKS_LIKE_A_CALL[start : start + 7]) for start in range(0, len(LOOKS_LIKE_A_CALL), 7)), end())
    )
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("one-call", front, "chat"))
    got = gist(fold(decode_all(FRONTS[front], answer.content)))
    assert (got.text, got.calls, got.finish) == (LOOKS_LIKE_A_CALL, (), "stop")


@FRONT
@pytest.mark.parametrize(
    ("rule", "members", "calls"),
    [
        ("tool_choice_none", {"tool_choice": "none"}, []),
        ("parallel_tool_calls_false", {"parallel_tool_calls": False}, ['{"city":"Paris"}']),
    ],
)
def test_call_that_breaks_a_rule_is_dropped_and_logged(
    gateway: Gateway, model_server: ModelServer, front: str, *, rule: str, members: Json, calls: list[str]
) -> None:  # bug 26, 27
    before = notices(gateway, rule)
    model_server.enqueue(stream(recorded("parallel-calls", "chat")))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("parallel-calls", front, "chat", **members))
    got = gist(fold(decode_all(FRONTS[front], answer.content)))
    assert [arguments for _, _, arguments in got.calls] == calls
    assert got.finish == ("calls" if calls else "stop")
    assert notices(gateway, rule) == before + 2 - len(calls)


@FRONT
def test_call_of_a_tool_that_is_not_allowed_is_dropped_and_logged(
    gateway: Gateway, model_server: ModelServer, front: str
) -> None:  # bug 26
    before = notices(gateway, "not_in_allowed_tools")
    model_server.enqueue(stream(recorded("allowed-tools", "chat")))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("allowed-tools", front, "chat"))
    assert [name for _, name, _ in gist(fold(decode_all(FRONTS[front], answer.content))).calls] == ["get_weather"]
    assert notices(gateway, "not_in_allowed_tools") == before + 1


@FRONT
def test_call_of_an_undeclared_tool_is_passed_on_and_logged(
    gateway: Gateway, model_server: ModelServer, front: str
) -> None:  # bug 28
    before = notices(gateway, "unknown_tool")
    model_server.enqueue(stream(recorded("one-call", "chat").replace(b"get_weather", b"get_wether")))
    answer = gateway.post(f"/v1{FRONTS[front].path}", ask("one-call", front, "chat"))
    assert answer.status_code == 200
    assert [name for _, name, _ in gist(fold(decode_all(FRONTS[front], answer.content))).calls] == ["get_wether"]
    assert notices(gateway, "unknown_tool") == before + 1


# No second request, no stored state


@FRONT
@pytest.mark.parametrize("how", [CLOSE, RESET])
@pytest.mark.parametrize("streaming", [True, False])
def test_upstream_that_breaks_off_its_answer_is_not_asked_again(
    gateway: Gateway, model_server: ModelServer, front: str, how: Disconnect, *, streaming: bool
) -> None:  # bug 45
    """A second answer could run a tool twice."""
    begun = BEGUN if streaming else reply(b'{"choices":[{"index":0,"message":{"content":"Hel')[:-5]
    first = model_server.enqueue((begun, how))
    api = CLIENT_APIS["openai_chat" if front == "chat" else "openai_responses"]
    answer = gateway.post(api.path, {**api.request_body(stream=streaming), "model": "chat"})
    assert answer.status_code == (200 if streaming else 502)
    assert b"upstream_cut" in answer.content
    assert len(model_server.requests) == first + 1


def test_second_round_works_on_another_gateway(gateway: Gateway, model_server: ModelServer) -> None:  # bug 29, 42
    """No state is shared: the request contains all that a round needs."""
    model_server.enqueue(stream(recorded("one-call", "chat")))
    (call_item,) = gateway.post("/v1/responses", ask("one-call", "responses", "chat", stream=False)).json()["output"]
    with running(models(model_server)) as other:
        first = model_server.enqueue(stream(delta("Sunny."), end()))
        items = [
            {"role": "user", "content": "What is the weather in Paris?"},
            call_item,
            {"type": "function_call_output", "call_id": call_item["call_id"], "output": "sun"},
        ]
        answer = other.post("/v1/responses", {"model": "chat", "input": items})
    assert answer.json()["output"][0]["content"][0]["text"] == "Sunny."
    _, call, result = model_server.request_body(first)["messages"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == call_item["call_id"]
    assert len(call_item["call_id"]) == len("call_") + 24


def test_responses_of_another_key_cannot_be_read(model_server: ModelServer) -> None:  # bug 43
    keys = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\nmodels = ["{model}"]\n'
        for name, model in (("anna", "chat"), ("berta", "responses"))
    )
    with running(keys + models(model_server)) as guarded:
        anna, berta = ({"authorization": f"Bearer {name}"} for name in ("anna", "berta"))
        assert [model["id"] for model in guarded.get("/v1/models", **anna).json()["data"]] == ["chat"]
        body = {"model": "chat", "input": "Hi", "store": True}
        assert guarded.post("/v1/responses", body, **berta).json()["error"]["code"] == "model_not_found"
        model_server.enqueue(stream(delta("A secret."), end()))
        answer = guarded.post("/v1/responses", body, **anna).json()
        assert answer["store"] is True
        assert guarded.get(f"/v1/responses/{answer['id']}", **anna).json() == answer
        for path in (answer["id"], f"{answer['id']}/input_items", "resp_unknown"):
            found = guarded.get(f"/v1/responses/{path}", **berta)
            assert (found.status_code, found.json()["error"]["code"]) == (404, "response_not_found")
        model_server.enqueue(stream(delta("What secret?"), end()))
        stolen = {"model": "responses", "input": "Go on", "previous_response_id": answer["id"]}
        assert guarded.post("/v1/responses", stolen, **berta).json()["error"]["code"] == "previous_response_not_found"
        assert guarded.get(f"/v1/responses/{answer['id']}").status_code == 401
