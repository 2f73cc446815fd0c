"""A scripted model server with the Chat Completions API, and the gateway's APIs as clients see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

from msgspec import Struct

from tests.gateway import RUNNING
from tests.upstream import LAST_CHUNK, Connection, Player, Script, Step, Upstream, as_script, chunk, reply, stream_head
from toolrelay.wires.base import discover

MODEL = "fast"
KEY = "sk-upstream-kept-to-ourselves"
Json: TypeAlias = dict[str, Any]


class ModelServer(Upstream):
    """An upstream that many tests share, one after the other. Each test queues the responses to its own requests."""

    def enqueue(self, *scripts: Script | Step | Player) -> int:
        """Queue the responses to the next requests. Return the number of the first of these requests.

        A response that was queued earlier and not taken may be that of a turn which still comes for it, and which would take one
        of these. So in this case the turns of the gateways in front of this server must end first.
        """
        if len(self.requests) < len(self._scripts):
            for gateway in RUNNING:
                if self.url in gateway.config and gateway.process.poll() is None:
                    gateway.await_no_turns()
        first = len(self.requests)
        unused: list[Script | Player] = [()] * (first - len(self._scripts))
        self._scripts = self._scripts[:first] + unused + [as_script(script) for script in scripts]
        return first

    def connection(self, request: int) -> Connection:
        """Return the connection of a request."""
        return self.connections[self.request(request).result(30).connection]

    def closed(self, request: int) -> Future[float]:
        """Return a future that ends with the connection of a request."""
        return self.connection(request).closed

    def request_body(self, request: int) -> Json:
        body: Json = json.loads(self.request(request).result(30).body)
        return body


def configuration(upstream: Upstream, *, model: str = "", before: str = "") -> str:
    """Return a configuration with the model `fast` at the upstream. `model` is added to its table, `before` stands before it."""
    return f"""{before}
[models.{MODEL}]
provider = "compatible"
base_url = "{upstream.url}/v1"
wire = "chat"
api_key = "{KEY}"
{model}
"""


# Responses of the model server


def frame(delta: Json, **members: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **members}
    return b"data: %b\n\n" % json.dumps({"id": "u", "object": "chat.completion.chunk", "choices": [choice]}).encode()


def delta(text: str) -> bytes:
    return frame({"role": "assistant", "content": text})


def call(name: str, arguments: str) -> bytes:
    function = {"name": name, "arguments": arguments}
    return frame({"tool_calls": [{"index": 0, "id": "up_1", "type": "function", "function": function}]})


def end(finish: str = "stop") -> bytes:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    last = b"data: %b\n\n" % json.dumps({"id": "u", "object": "chat.completion.chunk", "choices": [], "usage": usage}).encode()
    return frame({}, finish_reason=finish) + last + b"data: [DONE]\n\n"


BEGUN = stream_head() + chunk(delta("Hello"))
"""A stream up to its first word."""
REST = chunk(delta(" there") + end()) + LAST_CHUNK
STREAMED = BEGUN + REST


def whole(text: str = "Hello there", calls: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Encode a response that is not streamed."""
    message: Json = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"up_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return reply(json.dumps({"id": "u", "object": "chat.completion", "choices": [choice], "usage": usage}).encode())


def error(status: int, message: str = "no", headers: str = "", **members: Any) -> bytes:
    return reply(json.dumps({"error": {"message": message, **members}}).encode(), status, headers=headers)


# APIs of the gateway


class ClientApi(Struct, frozen=True, kw_only=True):
    """One API as its clients see it. `items` is the key of the messages in a request; `text` extracts the text of a response.

    `choice` is a tool_choice that names a tool, `auto` one that leaves it to the model.
    """

    path: str
    items: str
    text: Callable[[Json], str]
    tool: Callable[[str], Json]
    choice: Callable[[str], Json]
    auto: str | Json = "auto"

    def request_body(self, text: str = "Hi", **members: Any) -> Json:
        return {"model": MODEL, self.items: [{"role": "user", "content": text}], **members}


CLIENT_APIS = {
    "openai_chat": ClientApi(
        path="/v1/chat/completions",
        items="messages",
        text=lambda body: str(body["choices"][0]["message"]["content"]),
        tool=lambda name: {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}},
        choice=lambda name: {"type": "function", "function": {"name": name}},
    ),
    "openai_responses": ClientApi(
        path="/v1/responses",
        items="input",
        text=lambda body: str(body["output"][0]["content"][0]["text"]),
        tool=lambda name: {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}},
        choice=lambda name: {"type": "function", "name": name},
    ),
    "anthropic_messages": ClientApi(
        path="/v1/messages",
        items="messages",
        text=lambda body: str(body["content"][0]["text"]),
        tool=lambda name: {"name": name, "input_schema": {"type": "object", "properties": {}}},
        choice=lambda name: {"type": "tool", "name": name},
        auto={"type": "auto"},
    ),
}
WIRES = sorted(discover())


def error_members(body: Json) -> Json:
    """Return the members of an error in OpenAI's form, into which Anthropic's is translated. Every API has its own form."""
    found: Json = body["error"]
    if body.get("type") != "error":
        assert set(found) == {"message", "type", "param", "code"}
        return found
    assert set(found) - {"param", "code", "details"} == {"message", "type"}
    assert found.get("details") == ({"error_code": found["code"]} if "code" in found else None)
    kind = {"authentication_error": "invalid_request_error", "not_found_error": "invalid_request_error"}.get(found["type"])
    return {"message": found["message"], "type": kind or found["type"], "param": found.get("param"), "code": found.get("code")}


def frames(stream: bytes) -> list[Any]:
    """Decode the events of a stream, which must end with its API's end mark: [DONE], or the event message_stop or error."""
    events = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: ")]
    assert events, stream
    if events[-1] == b"[DONE]":
        return [json.loads(event) for event in events[:-1]]
    decoded = [json.loads(event) for event in events]
    assert decoded[-1].get("type") in ("message_stop", "error"), stream[-500:]
    return decoded


def failure(stream: bytes) -> Json:
    """Return the error that ends a stream. Responses has two events for it: `error`, with our code, and `response.failed`."""
    events: list[Json] = [{}, *frames(stream)]
    if "error" in events[-1]:
        found: Json = events[-1]["error"]
        return found
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"], events[-2:]
    return events[-2]
