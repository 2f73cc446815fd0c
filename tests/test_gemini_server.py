"""A model on Gemini's API, through the real gateway: the requests that its server gets, and what clients see of its answers.

The scripted server refuses what the real one refuses: other members than the types of Google's SDK have, and a conversation in
which the first call of a step has no thought signature (https://ai.google.dev/gemini-api/docs/thought-signatures).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gemini_server import call, frame, sse, text, thought
from tests.model_server import CLIENT_APIS, ModelServer, error_members, failure
from tests.tool_gateway import ToolGateway, running_tools
from tests.upstream import ReceivedRequest, Script, reply, stream
from tests.wires.gemini.oracle import check_body, checked

Json = dict[str, Any]

KEY = "AIza-kept-to-ourselves"
MODEL = "gemini-3-flash-preview"
HI = {"role": "user", "content": "Hi"}
SIG, TEXT_SIG = "c2lnbmVkIGNhbGw=", "c2lnbmVkIHRleHQ="
USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "totalTokenCount": 10}
DONE = [frame(text("Done.")), frame(text("", TEXT_SIG), finish="STOP", usage=USAGE)]


class GeminiServer:
    """Answers one request with these frames, in the way that its path asks for, or refuses it."""

    def __init__(self, *frames: Json) -> None:
        self.frames = checked(*frames)
        self.body: Json = {}

    def __call__(self, request: ReceivedRequest) -> Script:
        self.body = json.loads(request.body)
        problem = self._problem(request)
        if problem:
            return (reply(json.dumps({"error": {"code": 400, "message": problem, "status": "INVALID_ARGUMENT"}}).encode(), 400),)
        if request.path.endswith(f"/models/{MODEL}:streamGenerateContent?alt=sse"):
            return (stream(sse(*self.frames)),)
        parts = [part for each in self.frames for part in each["candidates"][0]["content"]["parts"]]
        candidate = {**self.frames[-1]["candidates"][0], "content": {"role": "model", "parts": parts}}
        return (reply(json.dumps({**self.frames[-1], "candidates": [candidate]}, indent=2).encode()),)

    def _problem(self, request: ReceivedRequest) -> str:
        if request.headers.get("x-goog-api-key") != KEY or "authorization" in request.headers:
            return "API key not valid."
        check_body(json.loads(request.body))
        for content in self.body["contents"]:
            first = next((part for part in content["parts"] if "functionCall" in part), None)
            if first is not None and "thoughtSignature" not in first:
                return "Function call is missing a thought_signature in functionCall parts."
        return ""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def tooled(server: ModelServer) -> Iterator[ToolGateway]:
    common = f'provider = "gemini"\nmodel = "{MODEL}"\nbase_url = "{server.url}/v1beta"\napi_key = "{KEY}"\n'
    with running_tools(f'[models.fast]\n{common}[models.tooled]\n{common}toolsets = ["mine"]\n') as gateway:
        yield gateway


@pytest.fixture(params=CLIENT_APIS)
def door(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ask(tooled: ToolGateway, server: ModelServer, door: str, body: Json, *answers: list[Json]) -> tuple[Any, list[GeminiServer]]:
    """Ask through a door. Return the response, and the server's side of each request."""
    servers = [GeminiServer(*frames) for frames in answers]
    server.enqueue(*servers)
    return tooled.gateway.post(CLIENT_APIS[door].path, body), servers


def body_of(door: str, items: list[Any] | None = None, model: str = "fast", **members: Any) -> Json:
    api = CLIENT_APIS[door]
    return {"model": model, api.items: items or [HI], "tools": [api.tool("theirs")], **members}


def client_calls(door: str, answer: Json) -> list[Json]:
    match door:
        case "openai_chat":
            return list(answer["choices"][0]["message"].get("tool_calls", ()))
        case "openai_responses":
            return [item for item in answer["output"] if item["type"] == "function_call"]
        case _:
            return [block for block in answer["content"] if block["type"] == "tool_use"]


def continued(door: str, answer: Json, *results: str) -> list[Any]:
    """Return what a client sends next: the answer, and the results of its calls."""
    calls = client_calls(door, answer)
    assert len(calls) == len(results)
    match door:
        case "openai_chat":
            told = [
                {"role": "tool", "tool_call_id": each["id"], "content": said} for each, said in zip(calls, results, strict=True)
            ]
            return [HI, answer["choices"][0]["message"], *told]
        case "openai_responses":
            items = [item for item in answer["output"] if item["type"] != "mcp_call"]
            outputs = [{"type": "function_call_output", "call_id": each["call_id"]} for each in calls]
            return [HI, *items, *({**each, "output": said} for each, said in zip(outputs, results, strict=True))]
        case _:
            blocks = [{"type": "tool_result", "tool_use_id": each["id"]} for each in calls]
            told = [{**each, "content": said} for each, said in zip(blocks, results, strict=True)]
            return [HI, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": told}]


# Requests and answers


@pytest.mark.parametrize("streamed", [True, False])
def test_answer_is_relayed_streamed_and_whole(tooled: ToolGateway, server: ModelServer, door: str, *, streamed: bool) -> None:
    frames = [frame(thought("I look.")), frame(text("It rains.")), *DONE]
    answer, _ = ask(tooled, server, door, body_of(door, stream=streamed), frames)
    assert answer.status_code == 200, answer.text
    for word in ("It rains.", "Done."):
        assert word in answer.text


def test_refused_key_is_an_error_of_the_gateway(tooled: ToolGateway, server: ModelServer, door: str) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    error = {"code": 400, "message": f"API key not valid: {KEY}", "status": "INVALID_ARGUMENT", "details": [info]}
    server.enqueue(reply(json.dumps({"error": error}).encode(), 400))
    answer = tooled.gateway.post(CLIENT_APIS[door].path, body_of(door))
    assert answer.status_code == 502
    assert error_members(answer.json())["code"] == "upstream_auth"
    assert KEY not in answer.text


def test_quota_error_says_when_to_retry(tooled: ToolGateway, server: ModelServer, door: str) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    error = {"code": 429, "message": "You exceeded your quota.", "status": "RESOURCE_EXHAUSTED", "details": [info]}
    server.enqueue(reply(json.dumps([{"error": error}]).encode(), 429))
    answer = tooled.gateway.post(CLIENT_APIS[door].path, body_of(door))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "35")
    assert error_members(answer.json())["code"] == "rate_limit_exceeded"


def test_error_inside_a_stream_ends_it(tooled: ToolGateway, server: ModelServer, door: str) -> None:
    broken = {"error": {"code": 500, "message": "An internal error has occurred.", "status": "INTERNAL"}}
    answer, _ = ask(tooled, server, door, body_of(door, stream=True), [frame(text("Once")), broken])
    assert failure(answer.content)["message"] == "An internal error has occurred."


# Signatures


def test_signatures_of_client_calls_come_back(tooled: ToolGateway, server: ModelServer, door: str) -> None:
    """Without gateway tools nothing is recorded: the client itself carries them."""
    first = [frame(thought("Two calls.")), frame(call("theirs", {"n": 1}, signature=SIG), call("theirs", {"n": 2})), DONE[-1]]
    answer, _ = ask(tooled, server, door, body_of(door, store=False) if door == "openai_responses" else body_of(door), first)
    assert answer.status_code == 200, answer.text
    again, (asked,) = ask(tooled, server, door, body_of(door, continued(door, answer.json(), "one", "two")), DONE)
    assert again.status_code == 200, again.text
    _, made, results = asked.body["contents"]
    assert [(part["functionCall"]["args"], part.get("thoughtSignature")) for part in made["parts"] if "functionCall" in part] == [
        ({"n": 1}, SIG),
        ({"n": 2}, None),
    ]
    assert [part["functionResponse"]["response"] for part in results["parts"]] == [{"output": "one"}, {"output": "two"}]


def test_signatures_stay_in_the_gateways_own_loop(tooled: ToolGateway, server: ModelServer, door: str) -> None:
    look = [frame(call("get_weather", {"city": "Rome"}, signature=SIG)), frame(finish="STOP", usage=USAGE)]
    answer, (_, second) = ask(tooled, server, door, body_of(door, model="tooled"), look, DONE)
    assert answer.status_code == 200, answer.text
    assert tooled.runs() == ["get_weather Rome"]
    _, made, results = second.body["contents"]
    assert (made["parts"][0]["thoughtSignature"], len(made["parts"])) == (SIG, 1)
    given = results["parts"][0]["functionResponse"]
    assert (given["id"], given["response"]) == (made["parts"][0]["functionCall"]["id"], {"output": "18 degrees in Rome"})


def test_signatures_and_gateway_calls_come_back_once_and_in_order(tooled: ToolGateway, server: ModelServer, door: str) -> None:
    mixed = [
        frame(thought("I should look.")),
        frame(text("I look.")),
        frame(call("get_weather", {"city": "Rome"}, signature=SIG), call("theirs")),
        frame(finish="STOP", usage=USAGE),
    ]
    members: Json = {"model": "tooled"}
    answer, _ = ask(tooled, server, door, body_of(door, **members), mixed)
    assert answer.status_code == 200, answer.text
    again, (asked,) = ask(tooled, server, door, body_of(door, continued(door, answer.json(), "r"), **members), DONE)
    assert again.status_code == 200, again.text
    _, said, results = asked.body["contents"]
    assert [part.get("text") or part["functionCall"]["name"] for part in said["parts"]] == ["I look.", "get_weather", "theirs"]
    assert [part.get("thoughtSignature") for part in said["parts"]] == [None, SIG, None]
    assert [part["functionResponse"]["response"]["output"] for part in results["parts"]] == ["18 degrees in Rome", "r"]
    assert tooled.runs() == ["get_weather Rome"]


def test_history_of_another_model_is_marked_as_such(tooled: ToolGateway, server: ModelServer) -> None:
    made = {"id": "call_1", "type": "function", "function": {"name": "theirs", "arguments": "{}"}}
    items = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "content": "r"},
    ]
    answer, (asked,) = ask(tooled, server, "openai_chat", body_of("openai_chat", items), DONE)
    assert answer.status_code == 200, answer.text
    assert asked.body["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


# Rules that the gateway enforces


def test_only_the_first_call_passes_without_parallel_calls(tooled: ToolGateway, server: ModelServer) -> None:
    two = [frame(call("theirs", {"n": 1}, signature=SIG), call("theirs", {"n": 2})), DONE[-1]]
    answer, _ = ask(tooled, server, "openai_chat", body_of("openai_chat", parallel_tool_calls=False), two)
    (made,) = client_calls("openai_chat", answer.json())
    assert json.loads(made["function"]["arguments"]) == {"n": 1}


def test_blocked_prompt_ends_with_content_filter(tooled: ToolGateway, server: ModelServer) -> None:
    server.enqueue(stream(sse({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}})))
    answer = tooled.gateway.post("/v1/chat/completions", body_of("openai_chat"))
    assert answer.json()["choices"][0]["finish_reason"] == "content_filter"


def test_dropped_keyword_is_named_in_the_log(tooled: ToolGateway, server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "multipleOf": 3}}}
    tools = [{"type": "function", "function": {"name": "theirs", "parameters": schema}}]
    answer, (asked,) = ask(tooled, server, "openai_chat", {**body_of("openai_chat"), "tools": tools}, DONE)
    assert answer.status_code == 200, answer.text
    declared = asked.body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]
    assert declared["properties"] == {"n": {"type": "number"}}
    lines = [json.loads(line) for line in tooled.gateway.log().splitlines() if "multipleOf" in line]
    assert [(line["event"], line["field"], line["wire"]) for line in lines] == [("field_dropped", "multipleOf", "gemini")]
