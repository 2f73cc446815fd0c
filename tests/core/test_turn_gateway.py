"""Turns with gateway tools: approval, runs, results."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.core.playbook import (
    IDS,
    Playbook,
    allow,
    allowed,
    ask_commands,
    call_item,
    client_call,
    deny,
    emitted,
    finish_commands,
    format_value,
    make_request,
    make_turn,
    model_call,
    next_request,
    notices,
    recorded,
    result_item,
    run_commands,
    run_finished,
)
from tests.exchange import trusting_layer
from toolrelay.core.approvals import denial_text
from toolrelay.core.commands import AskPerson, CallModel, Emit, End, Notice, RecordStep, RunTool
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
    QuestionClosed,
    ToolRunFinished,
    ToolRunStarted,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.turn import Turn
from toolrelay.errors import InternalError

CALLS = AnswerFinished(finish="calls")
STOP = AnswerFinished(finish="stop")


def test_gateway_tools_are_added_and_the_model_streams() -> None:
    request = make_request("f")
    offered = next_request(make_turn(request, approval="g", auto="h").start())
    assert offered == replace(request, tools=(Tool(name="f"), Tool(name="g"), Tool(name="h")), stream=True)


def test_tool_without_approval_runs_at_once_and_its_result_goes_to_the_model() -> None:
    (
        Playbook(make_turn(auto="g"))
        >> [AnswerStarted(), TextDelta("Let me see."), *model_call(0, "g", '{"x":1}')]
        << [Emit([AnswerStarted(), TextDelta("Let me see.")])]
        >> [CALLS]
        << [
            RecordStep(
                AnswerReceived(
                    items=(Message(role="assistant", content=(Text(text="Let me see."),)), call_item(0, "g", '{"x":1}')),
                    finish="calls",
                    call_count=1,
                )
            ),
            RecordStep(CallPlanned(call=call_item(0, "g", '{"x":1}'), owner="gateway")),
            *run_commands(0, "g", '{"x":1}'),
        ]
        >> run_finished(0)
        << [
            *finish_commands(run_finished(0)),
            CallModel(
                Request(
                    wire="openai_chat",
                    model="m",
                    items=(
                        Message(role="assistant", content=(Text(text="Let me see."),)),
                        call_item(0, "g", '{"x":1}'),
                        result_item(0),
                    ),
                    tools=(Tool(name="g"),),
                    stream=True,
                )
            ),
        ]
        >> [AnswerStarted(), TextDelta("It rains."), STOP]
        << [
            Emit([TextDelta("It rains.")]),
            RecordStep(
                AnswerReceived(items=(Message(role="assistant", content=(Text(text="It rains."),)),), finish="stop", call_count=1)
            ),
            RecordStep(TurnFinished(finish="stop")),
            Emit([STOP]),
            End(),
        ]
    )


def test_gateway_call_is_not_emitted() -> None:
    assert make_turn(auto="g").handle(model_call(0, "g")) == []


def test_tool_with_approval_waits_for_the_verdict() -> None:  # bug 48
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g", '{"x":1}'), CALLS]
    assert playbook.commands[-2:] == ask_commands(0, "g", '{"x":1}')
    assert not any(isinstance(command, RunTool) for command in playbook.commands)
    playbook >> allow(0) << [RecordStep(allowed(0, '{"x":1}')), *run_commands(0, "g", '{"x":1}', asked=True)]


def test_edited_arguments_are_run() -> None:  # bug 50
    edited = allowed(0, '{"x":2}', edited=True)
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g", '{"x":1}'), CALLS] << ...
    playbook >> allow(0, '{"x":2}') << [RecordStep(edited), *run_commands(0, "g", '{"x":2}', asked=True)]


def test_arguments_may_be_edited_to_nothing() -> None:  # bug 50
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g", '{"x":1}'), CALLS] << ...
    playbook >> allow(0, "") << [RecordStep(allowed(0, "", edited=True)), *run_commands(0, "g", "", asked=True)]


def test_denied_call_is_not_run_and_the_denial_is_its_result() -> None:
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g"), CALLS] << ...
    playbook >> deny(0, "too broad")
    assert recorded(playbook.commands) == [deny(0, "too broad")]
    assert not any(isinstance(command, RunTool) for command in playbook.commands)
    denial = next_request(playbook.commands).items[-1]
    assert denial == result_item(0, denial_text("run", "too broad"))


def test_denial_without_a_reason_names_none() -> None:
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g"), CALLS] << ...
    playbook >> deny(0)
    assert next_request(playbook.commands).items[-1] == result_item(0, denial_text("run", None))


def test_gateway_calls_are_run_one_after_the_other() -> None:
    playbook = Playbook(make_turn(approval="g h", auto="i")) >> [
        *model_call(0, "g"),
        *model_call(1, "i"),
        *model_call(2, "h"),
        CALLS,
    ]
    assert playbook.commands[-2:] == ask_commands(0, "g")
    (
        playbook
        >> allow(0)
        << [RecordStep(allowed(0)), *run_commands(0, "g", asked=True)]
        >> run_finished(0, "one")
        << [*finish_commands(run_finished(0, "one")), *run_commands(1, "i")]
        >> run_finished(1, "two")
        << [*finish_commands(run_finished(1, "two")), *ask_commands(2, "h")]
        >> deny(2)
    )
    items = next_request(playbook.commands).items
    assert items[:5] == (call_item(0, "g"), call_item(1, "i"), call_item(2, "h"), result_item(0, "one"), result_item(1, "two"))


def test_verdict_on_another_call_is_ignored() -> None:  # bug 29
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g"), *model_call(1, "g"), CALLS]
    assert playbook.commands[-2:] == ask_commands(0, "g")
    (
        playbook
        >> allow(1)
        << []
        >> VerdictGiven(call_id="call_of_another_turn", verdict="allow")
        << []
        >> allow(0)
        << [RecordStep(allowed(0)), *run_commands(0, "g", asked=True)]
    )


@pytest.mark.parametrize("second", [allow(0), allow(0, '{"x":2}'), deny(0)], ids=format_value)
def test_second_verdict_is_ignored(second: VerdictGiven) -> None:  # bug 45
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g"), *model_call(1, "g"), CALLS] << ...
    (
        playbook
        >> allow(0)
        << [RecordStep(allowed(0)), *run_commands(0, "g", asked=True)]
        >> second
        << []
        >> run_finished(0)
        << [*finish_commands(run_finished(0)), *ask_commands(1, "g")]
        >> second
        << []
    )


def test_verdict_without_a_question_is_ignored() -> None:  # bug 45
    playbook = Playbook(make_turn(auto="g")) >> [*model_call(0, "g"), CALLS]
    assert playbook.commands[-3:] == run_commands(0, "g")
    playbook >> allow(0) << [] >> deny(0) << []


def test_result_of_a_tool_that_is_not_running_is_ignored() -> None:  # bug 48
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g"), *model_call(1, "g"), CALLS]
    assert playbook.commands[-2:] == ask_commands(0, "g")
    (
        playbook
        >> run_finished(0)
        << []
        >> run_finished(1)
        << []
        >> allow(0)
        << [RecordStep(allowed(0)), *run_commands(0, "g", asked=True)]
    )
    (
        playbook
        >> run_finished(1)
        << []
        >> run_finished(0)
        << [*finish_commands(run_finished(0)), *ask_commands(1, "g")]
        >> run_finished(0)
        << []
    )


@pytest.mark.parametrize("steps", [[], [allow(0)]], ids=["a person thinks", "a tool runs"])
def test_model_events_are_ignored_outside_of_an_answer(steps: list[VerdictGiven]) -> None:  # bug 45
    playbook = Playbook(make_turn(make_request("f"), approval="g")) >> [*model_call(0, "g"), CALLS, TextDelta("late")]
    assert emitted(playbook.commands) == []
    for step in steps:
        playbook >> step << ...
    playbook >> [TextDelta("late"), *model_call(0, "f"), *model_call(1, "g"), CALLS] << []


@pytest.mark.parametrize("steps", [[], [allow(0)]], ids=["a person thinks", "a tool runs"])
def test_turn_can_fail_while_it_waits_for_a_person_or_a_tool(steps: list[VerdictGiven]) -> None:
    failed = AnswerFailed(InternalError("Out of time.", code="timeout"))
    playbook = Playbook(make_turn(approval="g")) >> [*model_call(0, "g"), CALLS]
    for step in steps:
        playbook << ... >> step
    playbook << ...
    withdrawn = [] if steps else [RecordStep(QuestionClosed(call_id=IDS[0], status="withdrawn"))]
    (
        playbook
        >> [TextDelta("late"), failed]
        << [*withdrawn, RecordStep(TurnFailed(code="timeout", message="Out of time.")), Emit([failed]), End()]
        >> allow(0)
        << []
        >> run_finished(0)
        << []
    )


def test_name_declared_by_both_is_the_clients_with_a_notice() -> None:
    request = make_request("g")
    (
        Playbook(make_turn(request, approval="g"))
        << [
            Notice(event="tool_block", rule="declared_by_both", tool="g"),
            RecordStep(TurnAccepted(request=request)),
            CallModel(request),
        ]
        >> model_call(0, "g")
        << [Emit(client_call(0, "g", number=0))]
    )


def test_call_in_a_namespace_is_never_the_gateways() -> None:
    started = CallStarted(0, "g", namespace="crm")
    Playbook(make_turn(auto="g")) >> [started] << [Emit([replace(started, id=IDS[0])])]


def test_mixed_answer_runs_gateway_calls_then_hands_over_client_calls() -> None:
    playbook = Playbook(make_turn(make_request("f"), auto="g"))
    playbook >> [*model_call(0, "g"), *model_call(1, "f"), *model_call(2, "g"), *model_call(3, "f")]
    playbook << [Emit([*client_call(0, "f", number=1), *client_call(1, "f", number=3)])]
    playbook >> [AnswerFinished(finish="stop", service_tier="flex", usage=Usage(input=1, output=2))]
    assert [step.owner for step in recorded(playbook.commands) if isinstance(step, CallPlanned)] == [
        "gateway",
        "client",
        "gateway",
        "client",
    ]
    assert playbook.commands[-3:] == run_commands(0, "g")
    (
        playbook
        >> run_finished(0)
        << [*finish_commands(run_finished(0)), *run_commands(2, "g")]
        >> run_finished(2)
        << [
            *finish_commands(run_finished(2)),
            RecordStep(CallsHandedOver(call_ids=(IDS[1], IDS[3]))),
            RecordStep(TurnFinished(finish="calls", usage=Usage(input=1, output=2))),
            Emit([AnswerFinished(finish="calls", service_tier="flex", usage=Usage(input=1, output=2))]),
            End(),
        ]
    )


def test_legacy_client_gets_one_call_besides_gateway_calls() -> None:
    calls = [*model_call(0, "g"), *model_call(1, "f"), *model_call(2, "g"), *model_call(3, "f")]
    playbook = Playbook(make_turn(make_request("f", legacy_functions=True), auto="g")) >> calls
    playbook << [Notice(event="tool_block", rule="legacy_functions", tool="f"), Emit(client_call(0, "f", number=1))]


@pytest.mark.parametrize(
    "choice",
    [
        ToolChoice(names=(("function", "f"),)),
        ToolChoice(names=(("function", "f"),), raw={"type": "allowed_tools"}),
        ToolChoice(mode="required", names=(("function", "f"),), raw={"type": "allowed_tools"}),
        ToolChoice(raw={"type": "allowed_tools"}),
    ],
    ids=["allowed", "with a provider's tool", "required", "only a provider's tool"],
)
def test_gateway_tool_outside_allowed_tools_is_not_run(choice: ToolChoice) -> None:  # bug 26
    limited = make_turn(make_request("f", tool_choice=choice), auto="g")
    playbook = Playbook(trusting_layer(limited)) >> [*model_call(0, "g"), CALLS]
    assert notices(playbook.commands) == [("not_in_allowed_tools", "g")]
    assert limited.finish == "stop"


def test_gateway_call_in_another_choice_is_dropped_with_a_notice() -> None:
    playbook = Playbook(make_turn(auto="g")) >> [*model_call(0, "g", choice=1), STOP]
    assert notices(playbook.commands) == [("gateway_tool_in_another_choice", "g")]
    assert emitted(playbook.commands) == [STOP]


def test_custom_gateway_tool_gets_a_custom_result() -> None:  # bug 33
    tool = Tool(name="g", kind="custom")
    own = Turn(token="t", request=make_request(), policy=Policy(tools={"g": GatewayTool(tool=tool, needs_approval=False)}))
    playbook = Playbook(own) >> [CallStarted(0, "g", kind="custom"), *model_call(0, "g")[1:], CALLS]
    (run,) = [command for command in playbook.commands if isinstance(command, RunTool)]
    playbook >> ToolRunFinished(call_id=run.call.id, output="")
    assert next_request(playbook.commands).items[-1] == Result(call_id=run.call.id, output="", kind="custom")


def test_every_action_is_recorded_before_it_is_executed() -> None:
    playbook = Playbook(make_turn(make_request("f"), approval="g", auto="h"))
    commands = list(playbook.commands)
    for received in (
        [*model_call(0, "h"), *model_call(1, "g"), CALLS],
        run_finished(0),
        allow(1, '{"x":2}'),
        run_finished(1),
        [*model_call(0, "g"), *model_call(1, "f"), CALLS],
        deny(2),
    ):
        playbook >> received
        commands += playbook.commands
    for before, command in pairwise(command for command in commands if not isinstance(command, Emit)):
        match command:
            case RunTool(call):
                assert before == RecordStep(ToolRunStarted(call_id=call.id, arguments=call.arguments))
            case AskPerson(call, arguments):
                assert before == RecordStep(QuestionAsked(call_id=call.id, tool=call.name, arguments=arguments))
    assert [type(step).__name__ for step in recorded(commands)] == [
        "TurnAccepted",
        *("AnswerReceived", "CallPlanned", "CallPlanned"),
        *("ToolRunStarted", "ToolRunFinished"),
        *("QuestionAsked", "VerdictGiven", "ToolRunStarted", "ToolRunFinished"),
        *("AnswerReceived", "CallPlanned", "CallPlanned"),
        *("QuestionAsked", "VerdictGiven"),
        *("CallsHandedOver", "TurnFinished"),
    ]
