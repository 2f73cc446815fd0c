"""Turns without gateway tools: what the model says goes to the client, and what it must not say does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.playbook import IDS, TOKEN, Playbook, asked, called, emitted, made, notices, recorded, seen, turn
from tests.exchange import trusting_layer
from toolrelay.core.commands import AskAgain, CallModel, Emit, End, Notice, Record
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
    RunFinished,
    TurnAccepted,
    TurnFailed,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.turn import Turn
from toolrelay.errors import BackendError

STOP = AnswerFinished(finish="stop")


def said(text: str) -> Message:
    return Message(role="assistant", content=(Text(text=text),))


def notice(rule: str, tool: str) -> Notice:
    return Notice(event="tool_block", rule=rule, tool=tool)


def test_text_goes_to_the_client_as_it_comes() -> None:
    request = asked()
    usage = Usage(input=3, output=2)
    (
        Playbook(turn(request))
        << [Record(TurnAccepted(model="m", wire="openai_chat")), CallModel(request)]
        >> [AnswerStarted(model="m-1"), TextDelta("Hel")]
        << [Emit([AnswerStarted(model="m-1"), TextDelta("Hel")])]
        >> [TextDelta("lo")]
        << [Emit([TextDelta("lo")])]
        >> []
        << []
        >> [AnswerFinished(finish="stop", usage=usage, service_tier="flex")]
        << [
            Record(AnswerReceived(items=(said("Hello"),), finish="stop", usage=usage)),
            Record(TurnFinished(finish="stop", usage=usage)),
            Emit([AnswerFinished(finish="stop", usage=usage, service_tier="flex")]),
            End(),
        ]
    )


def test_the_request_goes_to_the_model_untouched() -> None:
    request = asked("f", parallel_tool_calls=True)
    (call,) = [command for command in turn(request).start() if isinstance(command, CallModel)]
    assert call.request is request


def test_everything_else_that_a_model_says_is_passed_on() -> None:
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
    Playbook(turn()) >> events << [Emit(events)]


def test_a_call_is_handed_over_with_an_id_of_the_gateways() -> None:
    (
        Playbook(turn(asked("f")))
        >> called(0, "f", '{"x":1}')
        << [Emit(seen(0, "f", '{"x":1}', number=0))]
        >> [AnswerFinished(finish="calls")]
        << [
            Record(AnswerReceived(items=(made(0, "f", '{"x":1}'),), finish="calls")),
            Record(CallPlanned(call=made(0, "f", '{"x":1}'), owner="client")),
            Record(CallsHandedOver(call_ids=(IDS[0],))),
            Record(TurnFinished(finish="calls")),
            Emit([AnswerFinished(finish="calls")]),
            End(),
        ]
    )


def test_parallel_calls_may_interleave() -> None:  # bug 8
    (
        Playbook(turn(asked("f", "g")))
        >> [CallStarted(0, "f"), ArgumentsDelta(0, '{"x"')]
        << [Emit([CallStarted(0, "f", IDS[0]), ArgumentsDelta(0, '{"x"')])]
        >> [CallStarted(1, "g"), ArgumentsDelta(1, '{"y"'), ArgumentsDelta(0, ":1}"), ArgumentsDelta(1, ":2}")]
        << [Emit([CallStarted(1, "g", IDS[1]), ArgumentsDelta(1, '{"y"'), ArgumentsDelta(0, ":1}"), ArgumentsDelta(1, ":2}")])]
        >> [CallFinished(1), CallFinished(0), AnswerFinished(finish="calls")]
        << [
            Emit([CallFinished(1), CallFinished(0)]),
            Record(AnswerReceived(items=(made(0, "f", '{"x":1}'), made(1, "g", '{"y":2}')), finish="calls")),
            Record(CallPlanned(call=made(0, "f", '{"x":1}'), owner="client")),
            Record(CallPlanned(call=made(1, "g", '{"y":2}'), owner="client")),
            Record(CallsHandedOver(call_ids=(IDS[0], IDS[1]))),
            Record(TurnFinished(finish="calls")),
            Emit([AnswerFinished(finish="calls")]),
            End(),
        ]
    )


def test_ids_never_repeat_within_a_turn_nor_between_turns() -> None:  # bug 29
    ids = []
    for token in (TOKEN, TOKEN[::-1]):
        story = Playbook(Turn(token=token, request=asked("f")))
        story >> [event for index in range(50) for event in called(index, "f")]
        ids += [event.id for event in emitted(story.commands) if isinstance(event, CallStarted)]
    assert len(set(ids)) == 100


def test_an_id_that_a_backend_made_up_is_not_taken() -> None:  # bug 29
    Playbook(turn(asked("f"))) >> [CallStarted(0, "f", "fc_001")] << [Emit([CallStarted(0, "f", IDS[0])])]


@pytest.mark.parametrize("finish", ["stop", "calls"])
def test_the_finish_tells_whether_there_are_calls_whatever_the_provider_says(finish: Finish) -> None:  # bug 10
    with_call = turn(asked("f"))
    with_call.handle([*called(0, "f"), AnswerFinished(finish=finish)])
    without = turn(asked("f"))
    without.handle([TextDelta("none"), AnswerFinished(finish=finish)])
    assert (with_call.finish, without.finish) == ("calls", "stop")


def test_a_tool_within_a_namespace_is_not_unknown() -> None:
    raw = OpaqueTool(wire="openai_responses", raw={"type": "namespace", "name": "crm"})
    events: list[StreamEvent] = [CallStarted(0, "find", namespace="crm")]
    Playbook(turn(replace(asked(), tools=(raw,)))) >> events << [Emit([CallStarted(0, "find", IDS[0], namespace="crm")])]


@pytest.mark.parametrize("arguments", ["", "{", '{"x":1}}', "[1]", '"x"', "{'x':1}", '{"x":' * 100_000])
def test_arguments_that_are_no_json_object_are_passed_on_and_a_notice_says_so(arguments: str) -> None:
    story = Playbook(turn(asked("f"))) >> [*called(0, "f", arguments), STOP]
    assert notices(story.commands) == [("malformed_arguments", "f")]
    assert emitted(story.commands)[:3] == seen(0, "f", arguments, number=0)
    assert story.turn.finish == "calls"


@pytest.mark.parametrize("arguments", ["{}", '{"x": {"y": [1, "\u00e9"]}}', ' {"x":1}\n'])
def test_arguments_that_are_an_object_are_not_worth_a_notice(arguments: str) -> None:
    assert notices(turn(asked("f")).handle([*called(0, "f", arguments), STOP])) == []


def test_the_input_of_a_custom_tool_need_not_be_json() -> None:  # bug 33
    request = replace(asked(), tools=(Tool(name="sql", kind="custom"),))
    events: list[StreamEvent] = [CallStarted(0, "sql", kind="custom"), ArgumentsDelta(0, "SELECT"), CallFinished(0), STOP]
    assert notices(turn(request).handle(events)) == []


def test_required_lets_every_declared_tool_pass() -> None:
    events = turn(asked("f", tool_choice=ToolChoice(mode="required"))).handle(called(0, "f"))
    assert events == [Emit(seen(0, "f", number=0))]


@pytest.mark.parametrize("parallel", [True, None])
def test_parallel_calls_are_kept_unless_the_client_forbids_them(parallel: bool | None) -> None:  # noqa: FBT001 -- a parameter of the test
    story = Playbook(turn(asked("f", parallel_tool_calls=parallel))) >> [*called(0, "f"), *called(1, "f")]
    assert emitted(story.commands) == [*seen(0, "f", number=0), *seen(1, "f", number=1)]


def test_a_client_that_knows_only_functions_gets_one_call() -> None:
    (
        Playbook(turn(asked("f", "g", legacy_functions=True)))
        >> [*called(0, "f"), *called(1, "g")]
        << [notice("legacy_functions", "g"), Emit(seen(0, "f", number=0))]
    )


def test_each_choice_has_calls_and_a_finish_of_its_own() -> None:
    story = Playbook(turn(asked("f"))) >> [
        TextDelta("zero"),
        TextDelta("one", 1),
        *called(0, "f", choice=1),
        *called(0, "f", choice=2),
        ChoiceFinished(1, "stop"),
        ChoiceFinished(2, "length"),
        STOP,
    ]
    assert emitted(story.commands) == [
        TextDelta("zero"),
        TextDelta("one", 1),
        *seen(0, "f", number=0, choice=1),
        *seen(0, "f", number=1, choice=2),
        ChoiceFinished(1, "calls"),
        ChoiceFinished(2, "length"),
        STOP,
    ]
    assert recorded(story.commands) == [
        AnswerReceived(items=(said("zero"),), finish="stop"),
        TurnFinished(finish="stop"),
    ]


def test_a_choice_whose_calls_were_dropped_does_not_end_in_calls() -> None:  # bug 10
    story = Playbook(trusting_layer(turn(asked("f", tool_choice=ToolChoice(mode="none"), sampling=Sampling(n=2)))))
    story >> [*called(0, "f", choice=1), ChoiceFinished(1, "calls")]
    assert emitted(story.commands) == [ChoiceFinished(1, "stop")]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_was_cut_is_not_a_call(finish: Finish) -> None:  # bug 5
    end = AnswerFinished(finish=finish)
    (
        Playbook(turn(asked("f")))
        >> [*called(0, "f"), CallStarted(1, "f"), ArgumentsDelta(1, '{"x'), end]
        << [
            Emit([*seen(0, "f", number=0), CallStarted(1, "f", IDS[1]), ArgumentsDelta(1, '{"x')]),
            Record(AnswerReceived(items=(made(0, "f"),), finish=finish, cut=True)),
            Record(CallPlanned(call=made(0, "f"), owner="client")),
            Record(CallsHandedOver(call_ids=(IDS[0],))),
            Record(TurnFinished(finish=finish)),
            Emit([end]),
            End(),
        ]
    )


def test_whole_calls_do_not_hide_that_the_answer_was_cut() -> None:
    cut = turn(asked("f"))
    cut.handle([*called(0, "f"), AnswerFinished(finish="length")])
    assert cut.finish == "length"


def test_a_failure_before_the_first_word_ends_the_turn() -> None:
    failed = AnswerFailed(BackendError("It is down.", code="upstream_unreachable"))
    story = Playbook(turn()) >> [failed]
    story << [Record(TurnFailed(code="upstream_unreachable", message="It is down.")), Emit([failed]), End()]
    assert (story.turn.error, story.turn.finish) == (failed, None)


def test_a_failure_after_words_lets_them_go_first() -> None:  # bug 38
    failed = AnswerFailed(BackendError("It died.", code="upstream_cut"))
    (
        Playbook(turn())
        >> [TextDelta("half a")]
        << [Emit([TextDelta("half a")])]
        >> [TextDelta(" word"), failed, TextDelta("never")]
        << [
            Emit([TextDelta(" word")]),
            Record(TurnFailed(code="upstream_cut", message="It died.")),
            Emit([failed]),
            End(),
        ]
    )


@pytest.mark.parametrize("end", [STOP, AnswerFailed(BackendError("It died."))])
def test_whatever_comes_after_the_end_is_ignored(end: StreamEvent) -> None:
    story = Playbook(turn(asked("f"))) >> [end, TextDelta("late"), STOP]
    assert emitted(story.commands) == [end]
    (
        story
        >> [TextDelta("later"), *called(0, "f"), STOP]
        << []
        >> [AnswerFailed(BackendError("too late"))]
        << []
        >> VerdictGiven(call_id=IDS[0], verdict="allow")
        << []
        >> RunFinished(call_id=IDS[0], output="")
        << []
    )


def test_deltas_of_a_call_that_never_began_go_nowhere() -> None:
    Playbook(turn(asked("f"))) >> [ArgumentsDelta(3, "{}"), CallFinished(3)] << []


def test_a_backend_that_uses_an_index_twice_breaks_nothing() -> None:  # bug 7
    story = Playbook(turn(asked("f"))) >> [*called(0, "f", '{"x":1}'), *called(0, "f", '{"x":2}'), STOP]
    assert emitted(story.commands)[:-1] == [*seen(0, "f", '{"x":1}', number=0), *seen(1, "f", '{"x":2}', number=1)]
    assert CallsHandedOver(call_ids=(IDS[0], IDS[1])) in recorded(story.commands)


def test_an_answer_that_nobody_wants_recorded_is_not_put_together_and_its_calls_are() -> None:
    events: list[StreamEvent] = [TextDelta("Let me see. "), CallStarted(0, "f"), ArgumentsDelta(0, "{}"), CallFinished(0), STOP]
    unkept = Turn(token=TOKEN, request=asked("f"), policy=Policy(keeps=False))
    kept = Turn(token=TOKEN, request=asked("f"))
    steps = []
    for each in (unkept, kept):
        each.start()
        steps.append([command for command in each.handle(events) if isinstance(command, Record | Emit)])
    assert steps[0] == [command for command in steps[1] if not isinstance(getattr(command, "step", None), AnswerReceived)]
    assert len(steps[0]) == len(steps[1]) - 1


def test_rejected_answer_is_recorded_and_asked_again() -> None:
    request = asked("f")
    assert turn(request).ask_again("invalid_json", request) == [Record(AnswerRejected(rule="invalid_json")), AskAgain(request)]


def test_model_that_stops_without_an_end_fails_the_turn() -> None:
    commands = turn(asked("f")).handle_model_stop()
    assert isinstance(commands[-1], End)
    (failed,) = emitted(commands)
    assert isinstance(failed, AnswerFailed)
