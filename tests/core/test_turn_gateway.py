"""Turns with gateway tools: held back from the client, asked about, run as approved, one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.core.playbook import (
    IDS,
    Playbook,
    allowed,
    answered,
    asked,
    asking,
    called,
    denied,
    emitted,
    made,
    next_request,
    notices,
    ran,
    recorded,
    running,
    seen,
    shown,
    turn,
)
from tests.exchange import trusting_layer
from toolrelay.core.commands import AskPerson, CallModel, Emit, End, Notice, Record, RunTool
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    CallStarted,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Message, Result, Text
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.core.steps import (
    AnswerReceived,
    CallPlanned,
    CallsHandedOver,
    QuestionAsked,
    RunFinished,
    RunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.turn import Turn
from toolrelay.errors import InternalError

CALLS = AnswerFinished(finish="calls")
STOP = AnswerFinished(finish="stop")


def test_the_model_is_offered_the_tools_of_both_and_always_streams() -> None:
    request = asked("f")
    offered = next_request(turn(request, approved="g", free="h").start())
    assert offered == replace(request, tools=(Tool(name="f"), Tool(name="g"), Tool(name="h")), stream=True)


def test_a_free_tool_runs_at_once_and_the_model_hears_of_it() -> None:
    (
        Playbook(turn(free="g"))
        >> [AnswerStarted(), TextDelta("Let me see."), *called(0, "g", '{"x":1}')]
        << [Emit([AnswerStarted(), TextDelta("Let me see.")])]
        >> [CALLS]
        << [
            Record(
                AnswerReceived(
                    items=(Message(role="assistant", content=(Text(text="Let me see."),)), made(0, "g", '{"x":1}')),
                    finish="calls",
                )
            ),
            Record(CallPlanned(call=made(0, "g", '{"x":1}'), owner="gateway")),
            *running(0, "g", '{"x":1}'),
        ]
        >> ran(0)
        << [
            Record(ran(0)),
            CallModel(
                Request(
                    wire="openai_chat",
                    model="m",
                    items=(
                        Message(role="assistant", content=(Text(text="Let me see."),)),
                        made(0, "g", '{"x":1}'),
                        answered(0),
                    ),
                    tools=(Tool(name="g"),),
                    stream=True,
                )
            ),
        ]
        >> [AnswerStarted(), TextDelta("It rains."), STOP]
        << [
            Emit([TextDelta("It rains.")]),
            Record(AnswerReceived(items=(Message(role="assistant", content=(Text(text="It rains."),)),), finish="stop")),
            Record(TurnFinished(finish="stop")),
            Emit([STOP]),
            End(),
        ]
    )


def test_the_client_sees_nothing_of_a_gateway_call() -> None:
    assert turn(free="g").handle(called(0, "g")) == []


def test_a_tool_that_needs_approval_waits_for_the_verdict() -> None:  # bug 48
    story = Playbook(turn(approved="g")) >> [*called(0, "g", '{"x":1}'), CALLS]
    assert story.commands[-2:] == asking(0, "g", '{"x":1}')
    assert not any(isinstance(command, RunTool) for command in story.commands)
    story >> allowed(0) << [Record(allowed(0)), *running(0, "g", '{"x":1}')]


def test_what_runs_is_what_was_approved() -> None:  # bug 50
    edited = allowed(0, '{"x":2}')
    story = Playbook(turn(approved="g")) >> [*called(0, "g", '{"x":1}'), CALLS] << ...
    story >> edited << [Record(edited), *running(0, "g", '{"x":2}')]


def test_a_person_may_empty_the_arguments() -> None:  # bug 50
    story = Playbook(turn(approved="g")) >> [*called(0, "g", '{"x":1}'), CALLS] << ...
    story >> allowed(0, "") << [Record(allowed(0, "")), *running(0, "g", "")]


def test_a_denied_call_does_not_run_and_the_model_is_told() -> None:
    story = Playbook(turn(approved="g")) >> [*called(0, "g"), CALLS] << ...
    story >> denied(0, "too broad")
    assert recorded(story.commands) == [denied(0, "too broad")]
    assert not any(isinstance(command, RunTool) for command in story.commands)
    told = next_request(story.commands).items[-1]
    assert told == answered(0, "The user denied this call. It was not run. Reason: too broad")


def test_a_denial_without_a_reason_gives_none() -> None:
    story = Playbook(turn(approved="g")) >> [*called(0, "g"), CALLS] << ...
    story >> denied(0)
    assert next_request(story.commands).items[-1] == answered(0, "The user denied this call. It was not run.")


def test_several_calls_are_asked_about_and_run_one_after_the_other() -> None:
    story = Playbook(turn(approved="g h", free="i")) >> [*called(0, "g"), *called(1, "i"), *called(2, "h"), CALLS]
    assert story.commands[-2:] == asking(0, "g")
    (
        story
        >> allowed(0)
        << [Record(allowed(0)), *running(0, "g")]
        >> ran(0, "one")
        << [Record(ran(0, "one")), *running(1, "i")]
        >> ran(1, "two")
        << [Record(ran(1, "two")), *asking(2, "h")]
        >> denied(2)
    )
    items = next_request(story.commands).items
    assert items[:5] == (made(0, "g"), made(1, "i"), made(2, "h"), answered(0, "one"), answered(1, "two"))


def test_a_verdict_on_another_call_is_ignored() -> None:  # bug 29
    story = Playbook(turn(approved="g")) >> [*called(0, "g"), *called(1, "g"), CALLS]
    assert story.commands[-2:] == asking(0, "g")
    (
        story
        >> allowed(1)
        << []
        >> VerdictGiven(call_id="call_of_another_turn", verdict="allow")
        << []
        >> allowed(0)
        << [Record(allowed(0)), *running(0, "g")]
    )


@pytest.mark.parametrize("second", [allowed(0), allowed(0, '{"x":2}'), denied(0)], ids=shown)
def test_a_second_verdict_is_ignored(second: VerdictGiven) -> None:  # bug 45
    story = Playbook(turn(approved="g")) >> [*called(0, "g"), *called(1, "g"), CALLS] << ...
    (
        story
        >> allowed(0)
        << [Record(allowed(0)), *running(0, "g")]
        >> second
        << []
        >> ran(0)
        << [Record(ran(0)), *asking(1, "g")]
        >> second
        << []
    )


def test_a_verdict_that_nobody_asked_for_is_ignored() -> None:  # bug 45
    story = Playbook(turn(free="g")) >> [*called(0, "g"), CALLS]
    assert story.commands[-2:] == running(0, "g")
    story >> allowed(0) << [] >> denied(0) << []


def test_the_result_of_a_tool_that_does_not_run_is_ignored() -> None:  # bug 48
    story = Playbook(turn(approved="g")) >> [*called(0, "g"), *called(1, "g"), CALLS]
    assert story.commands[-2:] == asking(0, "g")
    story >> ran(0) << [] >> ran(1) << [] >> allowed(0) << [Record(allowed(0)), *running(0, "g")]
    story >> ran(1) << [] >> ran(0) << [Record(ran(0)), *asking(1, "g")] >> ran(0) << []


@pytest.mark.parametrize("steps", [[], [allowed(0)]], ids=["a person thinks", "a tool runs"])
def test_what_a_backend_says_after_its_end_is_ignored_while_the_turn_goes_on(steps: list[VerdictGiven]) -> None:  # bug 45
    story = Playbook(turn(asked("f"), approved="g")) >> [*called(0, "g"), CALLS, TextDelta("late")]
    assert emitted(story.commands) == []
    for step in steps:
        story >> step << ...
    story >> [TextDelta("late"), *called(0, "f"), *called(1, "g"), CALLS] << []


@pytest.mark.parametrize("steps", [[], [allowed(0)]], ids=["a person thinks", "a tool runs"])
def test_the_turn_can_fail_while_it_waits_for_something_else_than_the_model(steps: list[VerdictGiven]) -> None:
    failed = AnswerFailed(InternalError("Out of time.", code="timeout"))
    story = Playbook(turn(approved="g")) >> [*called(0, "g"), CALLS]
    for step in steps:
        story << ... >> step
    story << ...
    (
        story
        >> [TextDelta("late"), failed]
        << [Record(TurnFailed(code="timeout", message="Out of time.")), Emit([failed]), End()]
        >> allowed(0)
        << []
        >> ran(0)
        << []
    )


def test_a_name_that_both_declare_is_the_clients_and_a_notice_says_so() -> None:
    request = asked("g")
    (
        Playbook(turn(request, approved="g"))
        << [
            Record(TurnAccepted(model="m", wire="openai_chat")),
            Notice(event="tool_block", rule="declared_by_both", tool="g"),
            CallModel(request),
        ]
        >> called(0, "g")
        << [Emit(seen(0, "g", number=0))]
    )


def test_a_call_within_a_namespace_of_the_clients_is_never_the_gateways() -> None:
    started = CallStarted(0, "g", namespace="crm")
    Playbook(turn(free="g")) >> [started] << [Emit([replace(started, id=IDS[0])])]


def test_of_a_mixed_answer_the_gateway_runs_its_own_and_then_hands_over_the_rest() -> None:
    story = Playbook(turn(asked("f"), free="g"))
    story >> [*called(0, "g"), *called(1, "f"), *called(2, "g"), *called(3, "f")]
    story << [Emit([*seen(0, "f", number=1), *seen(1, "f", number=3)])]
    story >> [AnswerFinished(finish="stop", service_tier="flex", usage=Usage(input=1, output=2))]
    assert [step.owner for step in recorded(story.commands) if isinstance(step, CallPlanned)] == [
        "gateway",
        "client",
        "gateway",
        "client",
    ]
    assert story.commands[-2:] == running(0, "g")
    (
        story
        >> ran(0)
        << [Record(ran(0)), *running(2, "g")]
        >> ran(2)
        << [
            Record(ran(2)),
            Record(CallsHandedOver(call_ids=(IDS[1], IDS[3]))),
            Record(TurnFinished(finish="calls", usage=Usage(input=1, output=2))),
            Emit([AnswerFinished(finish="calls", service_tier="flex", usage=Usage(input=1, output=2))]),
            End(),
        ]
    )


def test_a_legacy_client_may_get_its_call_beside_one_of_the_gateways() -> None:
    calls = [*called(0, "g"), *called(1, "f"), *called(2, "g"), *called(3, "f")]
    story = Playbook(turn(asked("f", legacy_functions=True), free="g")) >> calls
    story << [Notice(event="tool_block", rule="legacy_functions", tool="f"), Emit(seen(0, "f", number=1))]


def test_gateway_tools_that_the_client_did_not_allow_do_not_run() -> None:  # bug 26
    limited = turn(asked("f", tool_choice=ToolChoice(names=(("function", "f"),))), free="g")
    story = Playbook(trusting_layer(limited)) >> [*called(0, "g"), CALLS]
    assert notices(story.commands) == [("not_in_allowed_tools", "g")]
    assert limited.finish == "stop"


def test_a_gateway_call_in_another_choice_is_dropped_with_a_notice() -> None:
    story = Playbook(turn(free="g")) >> [*called(0, "g", choice=1), STOP]
    assert notices(story.commands) == [("gateway_tool_in_another_choice", "g")]
    assert emitted(story.commands) == [STOP]


def test_the_result_of_a_custom_tool_is_one() -> None:  # bug 33
    tool = Tool(name="g", kind="custom")
    own = Turn(token="t", request=asked(), policy=Policy(tools={"g": GatewayTool(tool=tool, needs_approval=False)}))
    story = Playbook(own) >> [CallStarted(0, "g", kind="custom"), *called(0, "g")[1:], CALLS]
    (run,) = [command for command in story.commands if isinstance(command, RunTool)]
    story >> RunFinished(call_id=run.call.id, output="")
    assert next_request(story.commands).items[-1] == Result(call_id=run.call.id, output="", kind="custom")


def test_whatever_is_done_is_recorded_before() -> None:
    story = Playbook(turn(asked("f"), approved="g", free="h"))
    commands = list(story.commands)
    for comes in (
        [*called(0, "h"), *called(1, "g"), CALLS],
        ran(0),
        allowed(1, '{"x":2}'),
        ran(1),
        [*called(0, "g"), *called(1, "f"), CALLS],
        denied(2),
    ):
        story >> comes
        commands += story.commands
    for before, command in pairwise(commands):
        match command:
            case RunTool(call):
                assert before == Record(RunStarted(call_id=call.id, arguments=call.arguments))
            case AskPerson(call):
                assert before == Record(QuestionAsked(call_id=call.id))
    assert [type(step).__name__ for step in recorded(commands)] == [
        "TurnAccepted",
        *("AnswerReceived", "CallPlanned", "CallPlanned"),
        *("RunStarted", "RunFinished"),
        *("QuestionAsked", "VerdictGiven", "RunStarted", "RunFinished"),
        *("AnswerReceived", "CallPlanned", "CallPlanned"),
        *("QuestionAsked", "VerdictGiven"),
        *("CallsHandedOver", "TurnFinished"),
    ]
