"""Turns without gateway tools."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.playbook import (
    IDS,
    TOKEN,
    Playbook,
    call_item,
    client_call,
    emitted,
    make_request,
    make_turn,
    model_call,
    notices,
    recorded,
)
from tests.exchange import trusting_layer
from toolrelay.core.commands import AskAgain, CallModel, Emit, End, Notice, RecordStep
from toolrelay.core.events import (
    AnnotationAdded,
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ChoiceFinished,
    Finish,
    ItemReceived,
    MessageStarted,
    ReasoningDelta,
    ReasoningFinished,
    ReasoningStarted,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import Message, Text
from toolrelay.core.policy import Policy
from toolrelay.core.request import OpaqueTool, Sampling, Tool, ToolChoice
from toolrelay.core.steps import (
    AnswerReceived,
    AnswerRejected,
    CallPlanned,
    CallsHandedOver,
    ToolRunFinished,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.turn import Turn
from toolrelay.errors import BackendError

STOP = AnswerFinished(finish="stop")


def message(text: str) -> Message:
    return Message(role="assistant", content=(Text(text=text),))


def notice(rule: str, tool: str) -> Notice:
    return Notice(event="tool_block", rule=rule, tool=tool)


def test_text_is_emitted_as_it_arrives() -> None:
    request = make_request()
    usage = Usage(input=3, output=2)
    (
        Playbook(make_turn(request))
        << [RecordStep(TurnAccepted(request=request)), CallModel(request)]
        >> [AnswerStarted(model="m-1"), TextDelta("Hel")]
        << [Emit([AnswerStarted(model="m-1"), TextDelta("Hel")])]
        >> [TextDelta("lo")]
        << [Emit([TextDelta("lo")])]
        >> []
        << []
        >> [AnswerFinished(finish="stop", usage=usage, service_tier="flex")]
        << [
            RecordStep(AnswerReceived(items=(message("Hello"),), finish="stop", usage=usage, service_tier="flex")),
            RecordStep(TurnFinished(finish="stop", usage=usage)),
            Emit([AnswerFinished(finish="stop", usage=usage, service_tier="flex")]),
            End(),
        ]
    )


def test_request_is_sent_to_the_model_unchanged() -> None:
    request = make_request("f", parallel_tool_calls=True)
    (call,) = [command for command in make_turn(request).start() if isinstance(command, CallModel)]
    assert call.request is request


def test_other_events_are_passed_on() -> None:
    events: list[StreamEvent] = [
        AnswerStarted(),
        ReasoningStarted(id="rs_1"),
        ReasoningDelta("hm"),
        ReasoningFinished(encrypted="x"),
        MessageStarted(phase="final_answer"),
        RefusalDelta("no"),
        TextDelta("but"),
        AnnotationAdded({"type": "url_citation"}),
        ItemReceived(wire="openai_responses", raw={"type": "web_search_call"}),
    ]
    Playbook(make_turn()) >> events << [Emit(events)]


def test_call_is_handed_over_with_an_id_of_the_gateway() -> None:
    (
        Playbook(make_turn(make_request("f")))
        >> model_call(0, "f", '{"x":1}')
        << [Emit(client_call(0, "f", '{"x":1}', number=0))]
        >> [AnswerFinished(finish="calls")]
        << [
            RecordStep(AnswerReceived(items=(call_item(0, "f", '{"x":1}'),), finish="calls", call_count=1)),
            RecordStep(CallPlanned(call=call_item(0, "f", '{"x":1}'), owner="client")),
            RecordStep(CallsHandedOver(call_ids=(IDS[0],))),
            RecordStep(TurnFinished(finish="calls")),
            Emit([AnswerFinished(finish="calls")]),
            End(),
        ]
    )


def test_interleaved_parallel_calls_are_passed_on() -> None:  # bug 8
    (
        Playbook(make_turn(make_request("f", "g")))
        >> [CallStarted(0, "f"), ArgumentsDelta(0, '{"x"')]
        << [Emit([CallStarted(0, "f", IDS[0]), ArgumentsDelta(0, '{"x"')])]
        >> [CallStarted(1, "g"), ArgumentsDelta(1, '{"y"'), ArgumentsDelta(0, ":1}"), ArgumentsDelta(1, ":2}")]
        << [Emit([CallStarted(1, "g", IDS[1]), ArgumentsDelta(1, '{"y"'), ArgumentsDelta(0, ":1}"), ArgumentsDelta(1, ":2}")])]
        >> [CallFinished(1), CallFinished(0), AnswerFinished(finish="calls")]
        << [
            Emit([CallFinished(1), CallFinished(0)]),
            RecordStep(
                AnswerReceived(items=(call_item(0, "f", '{"x":1}'), call_item(1, "g", '{"y":2}')), finish="calls", call_count=2)
            ),
            RecordStep(CallPlanned(call=call_item(0, "f", '{"x":1}'), owner="client")),
            RecordStep(CallPlanned(call=call_item(1, "g", '{"y":2}'), owner="client")),
            RecordStep(CallsHandedOver(call_ids=(IDS[0], IDS[1]))),
            RecordStep(TurnFinished(finish="calls")),
            Emit([AnswerFinished(finish="calls")]),
            End(),
        ]
    )


def test_call_ids_are_unique_within_and_between_turns() -> None:  # bug 29
    ids = []
    for token in (TOKEN, TOKEN[::-1]):
        playbook = Playbook(Turn(token=token, request=make_request("f")))
        playbook >> [event for index in range(50) for event in model_call(index, "f")]
        ids += [event.id for event in emitted(playbook.commands) if isinstance(event, CallStarted)]
    assert len(set(ids)) == 100


def test_call_id_of_a_backend_is_replaced() -> None:  # bug 29
    Playbook(make_turn(make_request("f"))) >> [CallStarted(0, "f", "fc_001")] << [Emit([CallStarted(0, "f", IDS[0])])]


@pytest.mark.parametrize("finish", ["stop", "calls"])
def test_finish_is_corrected_to_match_the_calls(finish: Finish) -> None:  # bug 10
    with_call = make_turn(make_request("f"))
    with_call.handle([*model_call(0, "f"), AnswerFinished(finish=finish)])
    without = make_turn(make_request("f"))
    without.handle([TextDelta("none"), AnswerFinished(finish=finish)])
    assert (with_call.finish, without.finish) == ("calls", "stop")


def test_tool_in_a_namespace_is_passed_on() -> None:
    raw = OpaqueTool(wire="openai_responses", raw={"type": "namespace", "name": "crm"})
    events: list[StreamEvent] = [CallStarted(0, "find", namespace="crm")]
    (
        Playbook(make_turn(replace(make_request(), tools=(raw,))))
        >> events
        << [Emit([CallStarted(0, "find", IDS[0], namespace="crm")])]
    )


@pytest.mark.parametrize("arguments", ["", "{", '{"x":1}}', "[1]", '"x"', "{'x':1}", '{"x":' * 100_000])
def test_invalid_arguments_are_passed_on_with_a_notice(arguments: str) -> None:
    playbook = Playbook(make_turn(make_request("f"))) >> [*model_call(0, "f", arguments), STOP]
    assert notices(playbook.commands) == [("malformed_arguments", "f")]
    assert emitted(playbook.commands)[:3] == client_call(0, "f", arguments, number=0)
    assert playbook.turn.finish == "calls"


@pytest.mark.parametrize("arguments", ["{}", '{"x": {"y": [1, "\u00e9"]}}', ' {"x":1}\n'])
def test_valid_arguments_give_no_notice(arguments: str) -> None:
    assert notices(make_turn(make_request("f")).handle([*model_call(0, "f", arguments), STOP])) == []


def test_custom_tool_input_need_not_be_json() -> None:  # bug 33
    request = replace(make_request(), tools=(Tool(name="sql", kind="custom"),))
    events: list[StreamEvent] = [CallStarted(0, "sql", kind="custom"), ArgumentsDelta(0, "SELECT"), CallFinished(0), STOP]
    assert notices(make_turn(request).handle(events)) == []


def test_required_choice_allows_every_declared_tool() -> None:
    events = make_turn(make_request("f", tool_choice=ToolChoice(mode="required"))).handle(model_call(0, "f"))
    assert events == [Emit(client_call(0, "f", number=0))]


@pytest.mark.parametrize("parallel", [True, None])
def test_parallel_calls_are_kept_by_default(parallel: bool | None) -> None:  # noqa: FBT001 -- a parameter of the test
    playbook = Playbook(make_turn(make_request("f", parallel_tool_calls=parallel))) >> [*model_call(0, "f"), *model_call(1, "f")]
    assert emitted(playbook.commands) == [*client_call(0, "f", number=0), *client_call(1, "f", number=1)]


def test_legacy_functions_client_gets_one_call() -> None:
    (
        Playbook(make_turn(make_request("f", "g", legacy_functions=True)))
        >> [*model_call(0, "f"), *model_call(1, "g")]
        << [notice("legacy_functions", "g"), Emit(client_call(0, "f", number=0))]
    )


def test_each_choice_has_its_own_calls_and_finish() -> None:
    playbook = Playbook(make_turn(make_request("f"))) >> [
        TextDelta("zero"),
        TextDelta("one", 1),
        *model_call(0, "f", choice=1),
        *model_call(0, "f", choice=2),
        ChoiceFinished(1, "stop"),
        ChoiceFinished(2, "length"),
        STOP,
    ]
    assert emitted(playbook.commands) == [
        TextDelta("zero"),
        TextDelta("one", 1),
        *client_call(0, "f", number=0, choice=1),
        *client_call(0, "f", number=1, choice=2),
        ChoiceFinished(1, "calls"),
        ChoiceFinished(2, "length"),
        STOP,
    ]
    assert recorded(playbook.commands) == [
        AnswerReceived(items=(message("zero"),), finish="stop", call_count=2),
        TurnFinished(finish="stop"),
    ]


def test_choice_with_only_dropped_calls_finishes_with_stop() -> None:  # bug 10
    playbook = Playbook(trusting_layer(make_turn(make_request("f", tool_choice=ToolChoice(mode="none"), sampling=Sampling(n=2)))))
    playbook >> [*model_call(0, "f", choice=1), ChoiceFinished(1, "calls")]
    assert emitted(playbook.commands) == [ChoiceFinished(1, "stop")]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_truncated_call_is_not_handed_over(finish: Finish) -> None:  # bug 5
    end = AnswerFinished(finish=finish)
    (
        Playbook(make_turn(make_request("f")))
        >> [*model_call(0, "f"), CallStarted(1, "f"), ArgumentsDelta(1, '{"x'), end]
        << [
            Emit([*client_call(0, "f", number=0), CallStarted(1, "f", IDS[1]), ArgumentsDelta(1, '{"x')]),
            RecordStep(AnswerReceived(items=(call_item(0, "f"),), finish=finish, cut=True, call_count=2)),
            RecordStep(CallPlanned(call=call_item(0, "f"), owner="client")),
            RecordStep(CallsHandedOver(call_ids=(IDS[0],))),
            RecordStep(TurnFinished(finish=finish)),
            Emit([end]),
            End(),
        ]
    )


def test_truncated_answer_with_complete_calls_keeps_its_finish() -> None:
    cut = make_turn(make_request("f"))
    cut.handle([*model_call(0, "f"), AnswerFinished(finish="length")])
    assert cut.finish == "length"


def test_failure_before_any_output_ends_the_turn() -> None:
    failed = AnswerFailed(BackendError("It is down.", code="upstream_unreachable"))
    playbook = Playbook(make_turn()) >> [failed]
    playbook << [RecordStep(TurnFailed(code="upstream_unreachable", message="It is down.", status=502)), Emit([failed]), End()]
    assert (playbook.turn.error, playbook.turn.finish) == (failed, None)


def test_text_before_a_failure_is_emitted_first() -> None:  # bug 38
    failed = AnswerFailed(BackendError("It died.", code="upstream_cut"))
    (
        Playbook(make_turn())
        >> [TextDelta("half a")]
        << [Emit([TextDelta("half a")])]
        >> [TextDelta(" word"), failed, TextDelta("never")]
        << [
            Emit([TextDelta(" word")]),
            RecordStep(TurnFailed(code="upstream_cut", message="It died.", status=502)),
            Emit([failed]),
            End(),
        ]
    )


@pytest.mark.parametrize("end", [STOP, AnswerFailed(BackendError("It died."))])
def test_events_after_the_end_are_ignored(end: StreamEvent) -> None:
    playbook = Playbook(make_turn(make_request("f"))) >> [end, TextDelta("late"), STOP]
    assert emitted(playbook.commands) == [end]
    (
        playbook
        >> [TextDelta("later"), *model_call(0, "f"), STOP]
        << []
        >> [AnswerFailed(BackendError("too late"))]
        << []
        >> VerdictGiven(call_id=IDS[0], verdict="allow")
        << []
        >> ToolRunFinished(call_id=IDS[0], output="")
        << []
    )


def test_deltas_of_a_call_that_never_started_are_dropped() -> None:
    Playbook(make_turn(make_request("f"))) >> [ArgumentsDelta(3, "{}"), CallFinished(3)] << []


def test_reused_call_index_gives_two_calls() -> None:  # bug 7
    playbook = Playbook(make_turn(make_request("f"))) >> [*model_call(0, "f", '{"x":1}'), *model_call(0, "f", '{"x":2}'), STOP]
    assert emitted(playbook.commands)[:-1] == [
        *client_call(0, "f", '{"x":1}', number=0),
        *client_call(1, "f", '{"x":2}', number=1),
    ]
    assert CallsHandedOver(call_ids=(IDS[0], IDS[1])) in recorded(playbook.commands)


def test_unrecorded_answer_still_records_its_calls() -> None:
    events: list[StreamEvent] = [TextDelta("Let me see. "), CallStarted(0, "f"), ArgumentsDelta(0, "{}"), CallFinished(0), STOP]
    unrecorded = Turn(token=TOKEN, request=make_request("f"), policy=Policy(records_answers=False))
    recorded_turn = Turn(token=TOKEN, request=make_request("f"))
    steps = []
    for recording in (unrecorded, recorded_turn):
        recording.start()
        steps.append([command for command in recording.handle(events) if isinstance(command, RecordStep | Emit)])
    assert steps[0] == [command for command in steps[1] if not isinstance(getattr(command, "step", None), AnswerReceived)]
    assert len(steps[0]) == len(steps[1]) - 1


def test_rejected_answer_is_recorded_and_asked_again() -> None:
    request = make_request("f")
    assert make_turn(request).ask_again("invalid_json", request) == [
        RecordStep(AnswerRejected(rule="invalid_json")),
        AskAgain(request),
    ]


def test_model_stream_without_an_end_fails_the_turn() -> None:
    commands = make_turn(make_request("f")).handle_model_stop()
    assert isinstance(commands[-1], End)
    (failed,) = emitted(commands)
    assert isinstance(failed, AnswerFailed)
