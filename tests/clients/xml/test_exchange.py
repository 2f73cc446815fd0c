"""An XML client's exchange from end to end, on both wires, without the web."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.clients.xml import copilot
from toolrelay import log
from toolrelay.backends.demo import ScriptedBackend, ScriptStep
from toolrelay.clients.xml.exchange import XmlClientOptions, XmlExchange, xml_client_options
from toolrelay.clients.xml.watchdog import ResultWatchdog, Waited
from toolrelay.core.commands import Notice, Record
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


class Kept:
    """A sink that keeps, and an observer that does too. `has_blocks`: as many have come as were waited for."""

    def __init__(self, blocks: int = 1) -> None:
        self.blocks = blocks
        self.events: list[StreamEvent] = []
        self.rules: list[str] = []
        self.has_blocks = asyncio.Event()

    def put(self, events: list[StreamEvent]) -> Awaitable[None] | None:
        self.events += events
        if len(self.chunks) >= self.blocks:
            self.has_blocks.set()
        return None

    def record(self, command: Record) -> None:
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
    came: Request,
    *steps: ScriptStep,
    wish: XmlClientOptions | None = None,
    guard: ResultWatchdog | None = None,
    kept: Kept | None = None,
    turn: str = "T",
) -> tuple[Kept, ScriptedBackend]:
    kept = kept or Kept()
    backend = ScriptedBackend([steps])
    exchange = XmlExchange(came, wish or XmlClientOptions(), guard)
    policy = Policy(keeps=False)
    running = Turn(token=turn * 20, request=exchange.request, policy=policy)
    await drive(running, backend, exchange.sink(kept, kept, turn=turn), kept)
    return kept, backend


# Who is one


def headers(**said: str) -> dict[bytes, bytes]:
    return {f"x-toolrelay-{name}".encode(): value.encode() for name, value in said.items()}


def test_the_header_stands_above_the_models_setting() -> None:
    plain = ModelSettings(name="m", provider="demo")
    styled = ModelSettings(name="m", provider="demo", client_style="use_tool", use_tool_order="as_is", no_result_seconds=5)
    assert xml_client_options(plain, headers()) is None
    assert xml_client_options(plain, headers(client="use_tool")) == XmlClientOptions()
    assert xml_client_options(styled, headers()) == XmlClientOptions(order="as_is", no_result_seconds=5)
    assert xml_client_options(styled, headers(client="OpenAI ")) is None
    assert xml_client_options(styled, headers(reemit="1")) == XmlClientOptions(order="as_is", no_result_seconds=5, reemit=True)


def test_a_header_that_says_something_else_is_refused() -> None:
    with pytest.raises(ClientError, match="it can be openai or use_tool"):
        xml_client_options(ModelSettings(name="m", provider="demo"), headers(client="xml"))


# A loop


def test_a_client_that_declares_tools_gets_blocks_and_its_model_gets_calls() -> None:
    kept, _ = asyncio.run(play(asked(), STARTED, TextDelta("Let me see."), CALLED, end("calls")))
    assert kept.chunks == [BLOCK, "Let me see."]
    assert kept.events[-1] == end("stop")
    assert kept.rules == ["split_emitted"]
    answered = Message(role="user", content=copilot.results(("getTime", "noon")))
    _, backend = asyncio.run(play(asked(Message(role="assistant", content="".join(kept.chunks)), answered), STARTED, end()))
    asked_of_model = backend.requests[0].items
    assert [type(item) for item in asked_of_model] == [Message, Message, Call, Result]
    call, result = asked_of_model[2:]
    assert isinstance(call, Call)
    assert isinstance(result, Result)
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert (result.call_id, result.output) == (call.id, "noon")


def test_a_client_that_declares_none_gets_the_models_own_blocks_and_its_model_the_clients_own_words() -> None:
    system = Message(role="system", content="Call tools with <use_tool>.")
    kept, _ = asyncio.run(play(asked(system, tools=()), STARTED, TextDelta(f"Let me see. {BLOCK}"), end()))
    assert kept.chunks == [BLOCK, "Let me see. "]
    history = (
        system,
        Message(role="assistant", content=BLOCK),
        Message(role="user", content=copilot.results(("getTime", "noon"))),
    )
    _, backend = asyncio.run(play(asked(*history, tools=()), STARTED, end()))
    assert backend.requests[0].items == (ASK, *history)


def test_what_was_odd_about_the_history_is_logged() -> None:
    told = Message(role="user", content=copilot.results(("getTime", "a"), ("getTime", "b")))
    kept, _ = asyncio.run(play(asked(Message(role="assistant", content=BLOCK), told), STARTED, end()))
    assert kept.rules == ["ambiguous_results"]


def test_each_block_has_a_line_in_the_log_that_says_whether_it_was_split() -> None:
    account = TurnLog(Metrics().model("m"), {"turn": "T"}, "openai_chat", 0.0, with_content=False)
    with log.captured() as lines:
        for rule in ("split_emitted", "emitted"):
            account.notice(Notice(event="tool_block", rule=rule, tool="getTime", dialect="use_tool"))
    assert lines == [
        {"level": "info", "event": "tool_block", "tool": "getTime", "split_emitted": True, "turn": "T"},
        {"level": "info", "event": "tool_block", "tool": "getTime", "split_emitted": False, "turn": "T"},
    ]


# The guard

WATCHED = XmlClientOptions(no_result_seconds=1000)
REEMITTED = XmlClientOptions(no_result_seconds=1000, reemit=True)
FOLLOWED = asked(Message(role="assistant", content=BLOCK), Message(role="user", content=copilot.results(("getTime", "noon"))))


def test_the_next_request_of_the_conversation_ends_the_wait() -> None:
    async def story() -> list[Waited]:
        ended: list[Waited] = []
        guard = ResultWatchdog(ended.append)
        kept, _ = await play(asked(), STARTED, CALLED, end("calls"), wish=WATCHED, guard=guard)
        assert kept.ended
        assert kept.chunks == [BLOCK]
        assert not ended
        await play(FOLLOWED, STARTED, TextDelta("Noon."), end(), wish=WATCHED, guard=guard)
        guard.close()
        return ended

    assert [(each.ran, each.expectation.tools) for each in asyncio.run(story())] == [(True, ("getTime",))]


def test_an_answer_without_blocks_is_not_watched_nor_one_of_a_model_without_a_guard() -> None:
    async def story() -> list[Waited]:
        ended: list[Waited] = []
        guard = ResultWatchdog(ended.append, lambda: 0.0)
        await play(asked(), STARTED, TextDelta("Hello."), end(), wish=WATCHED, guard=guard)
        await play(asked(), STARTED, CALLED, end("calls"), wish=XmlClientOptions(), guard=guard)
        assert guard._awaited.next_due() is None
        return ended

    assert asyncio.run(story()) == []


def test_a_stream_that_is_kept_open_ends_when_results_come_and_says_nothing_twice() -> None:
    async def story() -> Kept:
        guard = ResultWatchdog(lambda _: None)
        kept = Kept()
        first = asyncio.create_task(
            play(asked(), STARTED, CALLED, end("calls"), wish=REEMITTED, guard=guard, kept=kept, turn="1")
        )
        await kept.has_blocks.wait()
        assert not kept.ended
        await play(FOLLOWED, STARTED, TextDelta("Noon."), end(), wish=WATCHED, guard=guard, turn="2")
        await first
        guard.close()
        return kept

    kept = asyncio.run(story())
    assert kept.chunks == [BLOCK]
    assert kept.ended


def test_a_stream_that_is_kept_open_says_the_first_block_once_more_and_then_ends() -> None:
    async def story() -> Kept:
        now = [0.0]
        guard = ResultWatchdog(lambda _: None, lambda: now[0])
        kept = Kept(blocks=2)
        second: list[StreamEvent] = [CallStarted(1, "getTime"), CallFinished(1)]
        first = asyncio.create_task(play(asked(), STARTED, CALLED, second, end("calls"), wish=REEMITTED, guard=guard, kept=kept))
        await kept.has_blocks.wait()
        now[0] = 1001
        guard.look()
        await first
        return kept

    kept = asyncio.run(story())
    assert kept.chunks == [BLOCK, "<use_tool>\n<name>getTime</name>\n</use_tool>", BLOCK]
    assert kept.ended
    assert kept.rules[-1] == "reemitted"
