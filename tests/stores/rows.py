"""Rows for tests of the store."""

from __future__ import annotations

from typing import Any

from toolrelay.core.messages import Call, Message
from toolrelay.core.request import Request
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    QuestionAsked,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFinished,
)
from toolrelay.stores.conversations import Conversation, ConversationItem
from toolrelay.stores.turns import StoredStep, TurnRow

CALL = Call(id="call_1", name="get_weather", arguments='{"city":"Rome"}')
REQUEST = Request(wire="openai_chat", model="fast", items=(Message(role="user", content="Weather in Rome?"),))
ACCEPTED = TurnAccepted(request=REQUEST)
ANSWERED = AnswerReceived(items=(CALL,), finish="calls")
PLANNED = CallPlanned(call=CALL, owner="gateway")
ASKED = QuestionAsked(call_id="call_1")
STARTED = ToolRunStarted(call_id="call_1", arguments='{"city":"Rome"}')
RAN = ToolRunFinished(call_id="call_1", output="18 °C")
FINISHED = TurnFinished(finish="stop")


def turn(identifier: str = "t1", owner: str = "me", **members: Any) -> TurnRow:
    return TurnRow(id=identifier, owner=owner, **{"model": "fast", "wire": "openai_chat", "created_at": 1000.0, **members})


def steps(*events: StepEvent, start: int = 0, at: float = 1000.0) -> list[StoredStep]:
    return [StoredStep(seq=seq, at=at, step=event) for seq, event in enumerate(events, start)]


def conversation(identifier: str = "conv_1", owner: str = "me", **members: Any) -> Conversation:
    return Conversation(id=identifier, owner=owner, **{"created_at": 1000.0, "last_used_at": 1000.0, **members})


def items(*identifiers: str) -> list[ConversationItem]:
    return [ConversationItem(id=each, data={"type": "message", "id": each}) for each in identifiers]
