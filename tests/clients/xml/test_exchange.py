"""Exchanges with XML clients, from the request to the events for the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.clients.xml import copilot
from tests.scripted_backend import ScriptedBackend, ScriptStep
from toolrelay import log
from toolrelay.clients.xml.exchange import XmlClientOptions, XmlExchange, xml_client_options
from toolrelay.clients.xml.watchdog import ResultWatchdog
from toolrelay.core.commands import Notice, RecordStep
from toolrelay.core.events import (
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    StreamEvent,
    TextDelta,
)
from toolrelay.core.messages import Call, Message, Result
from toolrelay.core.policy import Policy
from toolrelay.core.request import Request, Tool
from toolrelay.core.turn import Turn
from toolrelay.errors import ClientError
from toolrelay.runtime.driver import drive
from toolrelay.runtime.telemetry import Metrics, TurnLog
from toolrelay.settings import ModelSettings

TIME = Tool(name="getTime", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
ASK = Message(role="user", content="What time is it in Paris?")
CALLED: list[StreamEvent] = [CallStarted(0, "getTime"), ArgumentsDelta(0, '{"city": "Paris"}'), CallFinished(0)]
BLOCK = "<use_tool>\n<name>getTime</name>\n<city>Paris</city>\n</use_tool>"
STARTED = AnswerStarted()


def end(finish: Any = "stop") -> AnswerFinished:
    return AnswerFinished(finish=finish)


class Recorder:
    """A sink and an observer that record. `has_blocks` is set at the first text."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        self.rules: list[str] = []
        self.has_blocks = asyncio.Event()

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        self.events += events
        if self.chunks:
            self.has_blocks.set()
        return None

    def record(self, command: RecordStep) -> None:
        pass

    def notice(self, command: Notice) -> None:
        self.rules.append(command.rule)

    @property
    def chunks(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, TextDelta)]

    @property
    def ended(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], AnswerFinished)


def asked(*items: Any, tools: tuple[Tool, ...] = (TIME,)) -> Request:
    return Request(wire="openai_chat", model="m", items=(ASK, *items), tools=tools, stream=True, key="obsidian")


async def play(
    received: Request,
    *steps: ScriptStep,
    options: XmlClientOptions | None = None,
    watchdog: ResultWatchdog | None = None,
    recorder: Recorder | None = None,
    turn: str = "T",
) -> tuple[Recorder, ScriptedBackend]:
    recorder = recorder or Recorder()
    backend = ScriptedBackend([steps])
    exchange = XmlExchange(received, options or XmlClientOptions(), watchdog)
    policy = Policy(records_answers=False)
    running = Turn(token=turn * 20, request=exchange.request, policy=policy)
    await drive(running, backend, exchange.sink(recorder, recorder, turn=turn), recorder)
    return recorder, backend


# Options


def headers(**values: str) -> dict[bytes, bytes]:
    return {f"x-toolrelay-{name}".encode(): value.encode() for name, value in values.items()}


def test_header_overrides_model_setting() -> None:
    plain = ModelSettings(name="m", provider="demo")
    styled = ModelSettings(name="m", provider="demo", client_style="use_tool", use_tool_order="as_is", no_result_seconds=5)
    assert xml_client_options(plain, headers()) is None
    assert xml_client_options(plain, headers(client="use_tool")) == XmlClientOptions()
    assert xml_client_options(styled, headers()) == XmlClientOptions(order="as_is", no_result_seconds=5)
    assert xml_client_options(styled, headers(client="OpenAI ")) is None
    assert xml_client_options(styled, headers(reemit="1")) == XmlClientOptions(order="as_is", no_result_seconds=5, reemit=True)


def test_unknown_client_header_is_rejected() -> None:
    with pytest.raises(ClientError, match="it can be openai or use_tool"):
        xml_client_options(ModelSettings(name="m", provider="demo"), headers(client="xml"))


# Calls and results


def test_declared_tools_give_blocks_to_client_and_calls_to_model() -> None:
    recorder, _ = asyncio.run(play(asked(), STARTED, TextDelta("Let me see."), CALLED, end("calls")))
    assert recorder.chunks == [BLOCK, "Let me see."]
    assert recorder.events[-1] == end("stop")
    assert recorder.rules == ["split_emitted"]
    answered = Message(role="user", content=copilot.results(("getTime", "noon")))
    _, backend = asyncio.run(play(asked(Message(role="assistant", content="".join(recorder.chunks)), answered), STARTED, end()))
    asked_of_model = backend.requests[0].items
    assert [type(item) for item in asked_of_model] == [Message, Message, Call, Result]
    call, result = asked_of_model[2:]
    assert isinstance(call, Call)
    assert isinstance(result, Result)
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert (result.call_id, result.output) == (call.id, "noon")


def test_without_declared_tools_blocks_and_history_are_unchanged() -> None:
    system = Message(role="system", content="Call tools with <use_tool>.")
    recorder, _ = asyncio.run(play(asked(system, tools=()), STARTED, TextDelta(f"Let me see. {BLOCK}"), end()))
    assert recorder.chunks == [BLOCK, "Let me see. "]
    history = (
        system,
        Message(role="assistant", content=BLOCK),
        Message(role="user", content=copilot.results(("getTime", "noon"))),
    )
    _, backend = asyncio.run(play(asked(*history, tools=()), STARTED, end()))
    assert backend.requests[0].items == (ASK, *history)


def test_notices_of_history_are_reported() -> None:
    results = Message(role="user", content=copilot.results(("getTime", "a"), ("getTime", "b")))
    recorder, _ = asyncio.run(play(asked(Message(role="assistant", content=BLOCK), results), STARTED, end()))
    assert recorder.rules == ["ambiguous_results"]


def test_block_is_logged_with_split_emitted() -> None:
    turn_log = TurnLog(Metrics().model("m"), {"turn": "T"}, "openai_chat", 0.0, owner="local", with_content=False)
    with log.captured() as lines:
        for is_split in (True, False):
            turn_log.notice(Notice(event="tool_block", rule="emitted", tool="getTime", split_emitted=is_split))
    assert lines == [
        {"level": "info", "event": "tool_block", "tool": "getTime", "split_emitted": True, "turn": "T"},
        {"level": "info", "event": "tool_block", "tool": "getTime", "split_emitted": False, "turn": "T"},
    ]


# The watchdog

WATCHED = XmlClientOptions(no_result_seconds=1000)
REEMITTED = XmlClientOptions(no_result_seconds=1000, reemit=True)
FOLLOWED = asked(Message(role="assistant", content=BLOCK), Message(role="user", content=copilot.results(("getTime", "noon"))))


def test_next_request_of_conversation_ends_the_wait() -> None:
    async def story() -> None:
        watchdog = ResultWatchdog(Metrics())
        recorder, _ = await play(asked(), STARTED, CALLED, end("calls"), options=WATCHED, watchdog=watchdog)
        assert recorder.ended
        assert recorder.chunks == [BLOCK]
        assert not lines
        await play(FOLLOWED, STARTED, TextDelta("Noon."), end(), options=WATCHED, watchdog=watchdog)
        watchdog.close()

    with log.captured() as lines:
        asyncio.run(story())
    assert [(line["event"], line["tools"]) for line in lines] == [("tool_result", ["getTime"])]


def test_answer_without_blocks_or_without_timeout_is_not_watched() -> None:
    async def story() -> None:
        watchdog = ResultWatchdog(Metrics())
        await play(asked(), STARTED, TextDelta("Hello."), end(), options=WATCHED, watchdog=watchdog)
        await play(asked(), STARTED, CALLED, end("calls"), options=XmlClientOptions(), watchdog=watchdog)
        watchdog.observe(FOLLOWED)

    with log.captured() as lines:
        asyncio.run(story())
    assert lines == []


def test_open_stream_ends_without_reemission_when_results_come() -> None:
    async def story() -> Recorder:
        watchdog = ResultWatchdog(Metrics())
        recorder = Recorder()
        first = asyncio.create_task(
            play(asked(), STARTED, CALLED, end("calls"), options=REEMITTED, watchdog=watchdog, recorder=recorder, turn="1")
        )
        await recorder.has_blocks.wait()
        assert not recorder.ended
        await play(FOLLOWED, STARTED, TextDelta("Noon."), end(), options=WATCHED, watchdog=watchdog, turn="2")
        await first
        watchdog.close()
        return recorder

    with log.captured():
        recorder = asyncio.run(story())
    assert recorder.chunks == [BLOCK]
    assert recorder.ended


def test_open_stream_reemits_first_block_without_results() -> None:
    async def story() -> Recorder:
        second: list[StreamEvent] = [CallStarted(1, "getTime"), CallFinished(1)]
        options = XmlClientOptions(no_result_seconds=0.01, reemit=True)
        watchdog = ResultWatchdog(Metrics())
        recorder, _ = await play(asked(), STARTED, CALLED, second, end("calls"), options=options, watchdog=watchdog)
        return recorder

    with log.captured() as lines:
        recorder = asyncio.run(story())
    assert [line["event"] for line in lines] == ["no_result"]
    assert recorder.chunks == [BLOCK, "<use_tool>\n<name>getTime</name>\n</use_tool>", BLOCK]
    assert recorder.ended
    assert recorder.rules[-1] == "reemitted"
