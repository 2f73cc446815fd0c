"""Tools that are declared in the conversation (`additional_tools`), wherever it is: each is offered, and its call comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import Gateway
from tests.model_server import ModelServer
from tests.oracles.tool_loop import MODELS, answer_with_call, answer_with_text, loop_gateway

CALLED = ("files__read", {"path": "a.md"})
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
GROUP = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [{"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}]}],
}
ASKED = {"type": "message", "role": "user", "content": "Read it."}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(server: ModelServer) -> Iterator[Gateway]:
    with loop_gateway(server) as started:
        yield started


def respond(gateway: Gateway, **members: Any) -> Any:
    answer = gateway.post("/v1/responses", members)
    assert answer.status_code == 200, answer.text
    return answer.json()


def continued(gateway: Gateway, model: str, place: str) -> dict[str, Any]:
    """Return the members of a request whose conversation declares the tool in this place."""
    match place:
        case "input":  # as Codex does for models that it calls lite: the request itself has no tools
            return {"input": [GROUP, ASKED]}
        case "previous response":
            return {"previous_response_id": respond(gateway, model=model, input=[GROUP, ASKED])["id"], "input": [ASKED]}
        case "response before the previous one":
            first = respond(gateway, model=model, input=[GROUP, ASKED])
            second = respond(gateway, model=model, input=[ASKED], previous_response_id=first["id"])
            return {"previous_response_id": second["id"], "input": [GROUP, ASKED]}
        case "new conversation":
            return {"conversation": gateway.post("/v1/conversations", {"items": [GROUP]}).json()["id"], "input": [ASKED]}
        case "conversation":
            conversation = gateway.post("/v1/conversations", {}).json()["id"]
            respond(gateway, model=model, input=[GROUP, ASKED], conversation=conversation)
            return {"conversation": conversation, "input": [ASKED]}
    raise AssertionError(place)


PLACES = ["input", "previous response", "response before the previous one", "new conversation", "conversation"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("model", MODELS)
def test_tool_of_the_conversation_is_offered_and_its_call_has_its_namespace(  # D2
    server: ModelServer, gateway: Gateway, model: str, place: str
) -> None:
    server.enqueue(*[answer_with_text(model, "Fine.", streamed=False)] * 2)
    members = continued(gateway, model, place)
    number = server.enqueue(answer_with_call(model, *CALLED, streamed=False))
    (call,) = respond(gateway, model=model, **members)["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "files", "read")
    offered = server.request_body(number)
    if model == "native":
        assert [tool["function"]["name"] for tool in offered["tools"]] == [CALLED[0]]
    else:
        assert str(offered["messages"][0]).count(f'"name": "{CALLED[0]}"') == 1


def test_malformed_tool_in_a_conversation_is_refused_by_its_place(gateway: Gateway) -> None:
    broken = {**GROUP, "tools": [{"type": "function", "name": ""}]}
    conversation = gateway.post("/v1/conversations", {"items": [broken]}).json()["id"]
    refused = gateway.post("/v1/responses", {"model": "native", "input": "hi", "conversation": conversation})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "conversation.tools[0].name")


@pytest.mark.parametrize("model", MODELS)
def test_namespace_with_500_functions_beside_one_with_the_same_functions(
    server: ModelServer, gateway: Gateway, model: str
) -> None:
    functions = [{"type": "function", "name": f"read_{number}", "parameters": SCHEMA} for number in range(500)]
    tools = [{"type": "namespace", "name": name, "tools": functions} for name in ("files", "notes")]
    number = server.enqueue(answer_with_call(model, "notes__read_499", {"path": "a.md"}, streamed=False))
    (call,) = respond(gateway, model=model, input="Read it.", tools=tools)["output"]
    assert (call["namespace"], call["name"]) == ("notes", "read_499")
    offered = str(server.request_body(number))
    assert all(offered.count(f"{name}__read_499") >= 1 for name in ("files", "notes"))
