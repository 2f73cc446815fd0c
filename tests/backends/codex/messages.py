"""Messages of a Codex turn, shaped as the real binary's, and helpers to decode them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from toolrelay.backends.codex.decoder import CodexDecoder, DecoderOptions
from toolrelay.backends.codex.rails import NO_RAILS, Rails
from toolrelay.backends.codex.request import TurnPlan
from toolrelay.backends.codex.rpc import Notification, ServerRequest
from toolrelay.core.assembly import Answer, Assembly
from toolrelay.core.events import (
    AnswerFailed,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Noticed,
    StreamEvent,
    Usage,
)
from toolrelay.core.request import Tool
from toolrelay.errors import ToolrelayError

CodexMessage: TypeAlias = Notification | ServerRequest

NOW = datetime(2026, 11, 16, 2, 0, 0)  # noqa: DTZ001 -- Codex uses local time
THREAD, TURN = "thread-1", "turn-1"
WEATHER = Tool(name="get_weather")
PYTHON = Tool(name="python.run", kind="custom")
OFFERED = {"get_weather": WEATHER, "python_run": PYTHON}
USAGE = Usage(input=11, output=7, total=18, cached=3, reasoning=2)
STARTED = AnswerStarted(model="m")


# Messages


def notification(method: str, turn: str = TURN, **params: Any) -> Notification:
    return Notification(method, {"threadId": THREAD, "turnId": turn, **params})


def delta(text: str, item: str = "msg_1") -> Notification:
    return notification("item/agentMessage/delta", itemId=item, delta=text)


def item_started(kind: str, item: str, **members: Any) -> Notification:
    return notification("item/started", item={"type": kind, "id": item, **members})


def message_completed(text: str, item: str = "msg_1") -> Notification:
    return notification("item/completed", item={"type": "agentMessage", "id": item, "text": text})


def raw(kind: str, **members: Any) -> Notification:
    return notification("rawResponseItem/completed", item={"type": kind, **members})


def raw_call(name: str, arguments: str = "{}", call_id: str = "c1") -> Notification:
    return raw("function_call", id=f"fc_{call_id}", name=name, arguments=arguments, call_id=call_id)


_request_ids = itertools.count()


def tool_call(call_id: str = "c1", tool: str = "get_weather", arguments: Any = None) -> ServerRequest:
    params = {"threadId": THREAD, "turnId": TURN, "callId": call_id, "tool": tool, "arguments": arguments or {}}
    return ServerRequest(next(_request_ids), "item/tool/call", params)


def token_counts(input_: int = 11, output: int = 7, cached: int = 3, reasoned: int = 2) -> dict[str, int]:
    return {
        "totalTokens": input_ + output,
        "inputTokens": input_,
        "cachedInputTokens": cached,
        "cacheWriteInputTokens": 0,
        "outputTokens": output,
        "reasoningOutputTokens": reasoned,
    }


def response_completed(**usage: int) -> Notification:
    return notification("rawResponse/completed", responseId="resp_1", usage=token_counts(**usage))


def turn_completed(status: str = "completed", error: Any = None, turn: str = TURN) -> Notification:
    return Notification("turn/completed", {"threadId": THREAD, "turn": {"id": turn, "status": status, "error": error}})


def failed(message: str, info: Any = "other") -> Notification:
    return turn_completed("failed", {"message": message, "codexErrorInfo": info})


def will_retry(message: str) -> Notification:
    return notification("error", error={"message": message, "codexErrorInfo": "other"}, willRetry=True)


def refused_response(number: int, name: str = "exec_command") -> list[CodexMessage]:
    return [
        raw_call(name, '{"cmd":"ls"}', f"c{number}"),
        response_completed(),
        raw("function_call_output", call_id=f"c{number}", output=f"unsupported call: {name}"),
    ]


# Decoded events


def decoder_for(*, reported_calls: Any = "none", is_account: bool = False, rails: Rails = NO_RAILS, **plan: Any) -> CodexDecoder:
    options = DecoderOptions(model="m", reported_calls=reported_calls, is_account=is_account, rails=rails)
    return CodexDecoder(TurnPlan(thread={}, items=[], turn={}, offered=OFFERED, **plan), TURN, options=options, now=NOW)


def decode(*messages: CodexMessage, turn: CodexDecoder | None = None, **members: Any) -> list[StreamEvent]:
    """Feed one message at a time; test_batching_does_not_matter covers batches."""
    turn = turn or decoder_for(**members)
    return [event for message in messages for event in turn.feed([message])]


def visible(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if not isinstance(event, Noticed)]


def rules(events: Sequence[StreamEvent]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Noticed)]


def fold(events: Sequence[StreamEvent]) -> Answer:
    assembly = Assembly()
    for event in events:
        assembly.add(event)
    return assembly.answer()


def error_of(events: Sequence[StreamEvent]) -> ToolrelayError:
    last = events[-1]
    assert isinstance(last, AnswerFailed)
    return last.error


def call_events(index: int, name: str = "get_weather", arguments: str = "{}") -> list[StreamEvent]:
    return [CallStarted(index, name), ArgumentsDelta(index, arguments), CallFinished(index)]
