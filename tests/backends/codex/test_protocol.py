"""Every line that the backend sends, checked against the schema that the binary generates of its protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.backends.codex.app_server import MODEL, protocol_schema, running_pool, turn_params
from tests.backends.codex.upstream import Call as MadeCall
from tests.backends.codex.upstream import calls, says
from tests.upstream import Upstream
from toolrelay.backends.codex import CodexBackend
from toolrelay.backends.codex.decoder import CodexDecoder
from toolrelay.backends.codex.process import INITIALIZE_PARAMS, AppServerProcess
from toolrelay.backends.codex.rails import BUILTIN_ITEMS
from toolrelay.backends.codex.rpc import LineReader, RpcReply, ServerRequest
from toolrelay.backends.codex.server_requests import REFUSALS, encode_refusal
from toolrelay.backends.codex.settings import CodexSettings
from toolrelay.core.events import AnswerFinished, StreamEvent
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import Call, Image, Item, Message, Reasoning, Text
from toolrelay.core.messages import Result as ToolResult
from toolrelay.core.request import OutputFormat, ReasoningOptions, Request, Tool

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
PARAMETERS: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = Tool(name="get_weather", description="The weather at a place", parameters=PARAMETERS)
HISTORY: tuple[Item, ...] = (
    Message(role="system", content="Be brief."),
    Message(role="user", content=(Text(text="What is this, and how is the weather?"), Image(url=PIXEL))),
    Reasoning(summary=("Thinking.",), encrypted="sealed", id="rs_1"),
    Message(role="assistant", content="Let me see."),
    Call(id="call_1", name="get_weather", arguments='{"city":"Oslo"}'),
    ToolResult(call_id="call_1", output="Rain."),
)


def ask(*items: Item, **members: Any) -> Request:
    return Request(wire="openai_chat", model=MODEL, items=items, stream=True, **members)


HELLO_THERE = Message(role="user", content="Hello\ud800")
REQUESTS = (
    ask(HELLO_THERE, instructions="Be kind."),
    ask(HELLO_THERE, tools=(TOOL, Tool(name="bare"))),
    ask(*HISTORY, tools=(TOOL,)),
    ask(
        *HISTORY,
        HELLO_THERE,
        tools=(TOOL,),
        output=OutputFormat(type="json_schema", name="x", schema=PARAMETERS, strict=True),
        reasoning=ReasoningOptions(effort="low", summary="auto"),
    ),
)


def test_sent_requests_match_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []
    send = AppServerProcess.send

    def spied(process: AppServerProcess, line: bytes) -> None:
        lines.append(line)
        send(process, line)

    async def main() -> None:
        called = calls(MadeCall("get_weather", {"city": "Oslo"}))
        with Upstream(*[says("Hi")] * len(REQUESTS), called) as upstream:
            async with running_pool(tmp_path, upstream) as pool:
                backend = CodexBackend(CodexSettings(name="mine", provider="codex", model=MODEL, base_url="x"), pool)
                for request in [*REQUESTS, *REQUESTS[1:]]:
                    events: list[StreamEvent] = []
                    await backend.stream_into(request, events.extend)
                    assert isinstance(events[-1], AnswerFinished)

    monkeypatch.setattr(AppServerProcess, "send", spied)
    asyncio.run(main())
    assert all(line.isascii() for line in lines)
    sent = [msgspec.json.decode(line) for line in lines]
    asked = [line for line in sent if "method" in line and "id" in line]
    assert {line["method"] for line in asked} == {
        "initialize", "thread/start", "thread/inject_items", "turn/start", "turn/interrupt"
    }  # fmt: skip
    for line in asked:
        protocol_schema().check_request(line["method"], line["params"])
    answered = [line for line in sent if "result" in line]
    assert answered
    for line in answered:
        protocol_schema().check_answer("item/tool/call", line["result"])


def test_fixed_params_and_refusals_match_the_schema() -> None:
    found = protocol_schema()
    found.check_request("initialize", INITIALIZE_PARAMS)
    found.check_request("turn/start", turn_params("t"))
    found.check_request("turn/interrupt", {"threadId": "t", "turnId": "u"})
    for method, result in REFUSALS.items():
        found.check_answer(method, result)


def test_every_server_request_of_the_schema_is_refused() -> None:
    methods = protocol_schema().server_requests.keys()
    for method in methods:
        [message] = LineReader().feed(encode_refusal(ServerRequest(0, method, {})))
        assert isinstance(message, RpcReply)
        assert (message.error is None) == (method in REFUSALS)
    # Nobody can answer these: they get a JSON-RPC error.
    assert methods - REFUSALS.keys() == {"account/chatgptAuthTokens/refresh", "attestation/generate", "currentTime/read"}
    assert methods >= REFUSALS.keys()


def test_schema_check_rejects_wrong_params() -> None:
    wrong: list[JsonObject] = [
        {"threadId": 7, "turnId": "u"},
        {"threadId": "t"},
        {"threadId": "t", "turnId": "u", "more": 1},
    ]
    for params in wrong:
        with pytest.raises((ValueError, AssertionError)):
            protocol_schema().check_request("turn/interrupt", params)


def test_handled_notifications_are_in_the_schema() -> None:
    told = protocol_schema()
    unknown = CodexDecoder.HANDLERS.keys() - told.notifications.keys()
    assert unknown <= {"rawResponseItem/completed", "rawResponse/completed"}, "only these two are opt-in and not in the schema"
    items = str(told._read("ServerNotification")["definitions"]["ThreadItem"])
    assert not [kind for kind in BUILTIN_ITEMS if f"'{kind}'" not in items]
