"""Recorded turns: what they add to a conversation that goes on."""

from __future__ import annotations

from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN
from toolrelay.core.messages import Call, Message, Result
from toolrelay.core.request import Request
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    StepEvent,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
)
from toolrelay.runtime.past_turn import PastTurn
from toolrelay.stores.turns import TurnRow

TOKEN = "0123456789abcdef0123"
ROW = TurnRow(id=TOKEN, owner="local", model="fast", wire="openai_responses", created_at=0)
QUESTION = Message(role="user", content="Hi")
ACCEPTED = TurnAccepted(request=Request(wire="openai_responses", model="fast", items=(QUESTION,), store=True))
OWN, CLIENTS = Call(id="call_1", name="own", arguments="{}"), Call(id="call_2", name="theirs", arguments="{}")
PLANNED: list[StepEvent] = [
    ACCEPTED,
    AnswerReceived(items=(OWN, CLIENTS), finish="calls"),
    CallPlanned(call=OWN, owner="gateway", toolset="mine"),
    CallPlanned(call=CLIENTS, owner="client"),
    ToolRunStarted(call_id=OWN.id, arguments="{}"),
]
RESULT = ToolRunFinished(call_id=OWN.id, output="done")
FAILED = TurnFailed(code="cancelled", message="The turn was cancelled.")


def test_history_has_the_calls_of_both_owners_when_they_were_handed_over() -> None:
    end: list[StepEvent] = [RESULT, CallsHandedOver(call_ids=(CLIENTS.id,)), TurnFinished(finish="calls")]
    past = PastTurn(ROW, [*PLANNED, *end])
    assert past.history == [OWN, CLIENTS, Result(call_id=OWN.id, output="done")]


def test_history_of_a_failed_turn_has_no_call_that_was_not_run() -> None:
    planned = PLANNED[:-1]
    assert PastTurn(ROW, [*planned, FAILED]).history == []
    assert PastTurn(ROW, [*PLANNED, RESULT, FAILED]).history == [OWN, Result(call_id=OWN.id, output="done")]


def test_history_of_a_failed_turn_has_what_was_run() -> None:
    """One tool was done and one was running when the turn ended."""
    later = Call(id="call_3", name="own", arguments='{"n":2}')
    steps: list[StepEvent] = [
        ACCEPTED,
        AnswerReceived(items=(OWN, later), finish="calls"),
        CallPlanned(call=OWN, owner="gateway", toolset="mine"),
        CallPlanned(call=later, owner="gateway", toolset="mine"),
        ToolRunStarted(call_id=OWN.id, arguments="{}"),
        RESULT,
        ToolRunStarted(call_id=later.id, arguments='{"n":2}'),
        FAILED,
    ]
    past = PastTurn(ROW, steps)
    done, unknown = Result(call_id=OWN.id, output="done"), Result(call_id=later.id, output=OUTCOME_UNKNOWN)
    assert past.history == [OWN, later, done, unknown]
    assert [past.find_item(item.id) for item in past.conversation_items()[1:]] == [[OWN, done], [later, unknown]]


def test_items_are_found_by_the_ids_under_which_they_are_listed() -> None:
    past = PastTurn(ROW, [*PLANNED, RESULT, CallsHandedOver(call_ids=(CLIENTS.id,)), TurnFinished(finish="calls")])
    listed = past.conversation_items()
    found = [past.find_item(item.id) for item in listed]
    assert [item.data["type"] for item in listed] == ["message", "function_call", "mcp_call"]
    assert found == [[QUESTION], [CLIENTS], [OWN, Result(call_id=OWN.id, output="done")]]
    assert past.find_item(f"msg_{TOKEN}0009") == []
