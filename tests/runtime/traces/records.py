"""Recorded turns for tests of traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolrelay.core.events import Usage
from toolrelay.core.messages import Call, Message
from toolrelay.core.request import Request, Tool
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    CallsHandedOver,
    CallsTakenUp,
    QuestionAsked,
    QuestionClosed,
    QuestionLeft,
    StepEvent,
    TakenCall,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    TurnResumed,
    VerdictGiven,
)
from toolrelay.stores.turn_lists import TurnRecord, UnreadableStep
from toolrelay.stores.turns import StoredStep, TurnRow

TOKEN = "0123456789abcdef0123"
OWN = Call(id="call_1", name="own", arguments='{"city":"Rome"}')
SECOND = Call(id="call_2", name="own", arguments='{"city":"Oslo"}')
CLIENTS = Call(id="call_3", name="theirs", arguments="{}")
REQUEST = Request(
    wire="openai_chat", model="fast", items=(Message(role="user", content="Weather?"),), tools=(Tool(name="theirs"),), key="ann"
)
ACCEPTED = TurnAccepted(request=REQUEST)
CALLED = AnswerReceived(items=(OWN,), finish="calls", usage=Usage(input=7, output=3), first_ms=100, ms=400)
PLANNED = CallPlanned(call=OWN, owner="gateway", toolset="mine")
ASKED = QuestionAsked(call_id="call_1", tool="own", toolset="mine", arguments=OWN.arguments)
ALLOWED = VerdictGiven(call_id="call_1", verdict="allow", by="ann")
STARTED = ToolRunStarted(call_id="call_1", arguments=OWN.arguments)
RAN = ToolRunFinished(call_id="call_1", output="18 degrees")
SAID = AnswerReceived(items=(Message(role="assistant", content="18."),), finish="stop", usage=Usage(input=9, output=2), ms=300)
FINISHED = TurnFinished(finish="stop")
FAILED = TurnFailed(code="upstream_error", message="The server broke.", status=502)
ASKED_TO_SHARE = QuestionAsked(call_id="call_1", kind="share", tool="own", arguments='{"paths":["a.md"]}')
SHARED = VerdictGiven(call_id="call_1", kind="share", verdict="allow", output="part")
TAKEN_UP = CallsTakenUp(calls=(TakenCall(call=OWN, toolset="mine", arguments=OWN.arguments),))

# Each a second after the one before, and every kind of step in one of them.
STORIES: dict[str, Sequence[StepEvent]] = {
    "asked": (ACCEPTED, CALLED, PLANNED, ASKED, ALLOWED, STARTED, RAN, SAID, FINISHED),
    "rejected": (ACCEPTED, AnswerRejected(rule="unknown_tool", raw="<tool_call>"), SAID, FINISHED),
    "shared": (
        *(ACCEPTED, CALLED, PLANNED, STARTED, ToolRunFinished(call_id="call_1", output="[]", withheld=True)),
        *(ASKED_TO_SHARE, SHARED, SAID, FINISHED),
    ),
    "expired": (ACCEPTED, CALLED, PLANNED, ASKED, QuestionClosed(call_id="call_1", status="expired"), SAID, FINISHED),
    "returned": (ACCEPTED, CALLED, PLANNED, ASKED, QuestionLeft(call_id="call_1"), TurnFinished(finish="calls")),
    "taken up": (ACCEPTED, TAKEN_UP, ALLOWED, STARTED, RAN, SAID, FINISHED),
    "handed over": (
        *(ACCEPTED, AnswerReceived(items=(CLIENTS,), finish="calls"), CallPlanned(call=CLIENTS, owner="client")),
        *(CallsHandedOver(call_ids=("call_3",)), TurnFinished(finish="calls")),
    ),
    "resumed": (ACCEPTED, CALLED, PLANNED, STARTED, FAILED, TurnResumed(), STARTED, RAN, SAID, FINISHED),
}


def record_of(*steps: StepEvent, unreadable: Sequence[UnreadableStep] = (), **row: Any) -> TurnRecord:
    """Return a turn with a second between its steps. Without an end it runs."""
    ends = {TurnFinished: "finished", TurnFailed: "failed"}
    status = ends.get(type(steps[-1]), "running") if steps else "running"
    members = {"id": TOKEN, "owner": "ann", "model": "fast", "wire": "openai_chat", "created_at": 1000.0, "status": status}
    stored = [StoredStep(seq=seq, at=1000.0 + seq, step=step) for seq, step in enumerate(steps)]
    return TurnRecord(row=TurnRow(**{**members, **row}), steps=tuple(stored), unreadable=tuple(unreadable))
