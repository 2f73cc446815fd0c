"""Gateway calls: parallel runs, calls that are refused, names that both declare, and what a replay does with running tools."""

from __future__ import annotations

import pytest

from tests.core.playbook import (
    IDS,
    TOKEN,
    Playbook,
    allowed,
    call_item,
    client_call,
    emitted,
    finish_commands,
    make_request,
    make_turn,
    model_call,
    next_request,
    recorded,
    result_item,
    run_commands,
    run_finished,
)
from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, RunTool
from toolrelay.core.events import (
    AnswerFinished,
    GatewayCallFinished,
    GatewayCallStarted,
    MessageStarted,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.gateway_calls import OUTCOME_UNKNOWN, REPEATED
from toolrelay.core.messages import Message, Result, Text
from toolrelay.core.playback import shown_events
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Tool, ToolChoice
from toolrelay.core.steps import StepEvent, ToolRunFinished, ToolRunStarted, TurnAccepted, TurnFailed, TurnResumed
from toolrelay.core.turn import Turn

CALLS = AnswerFinished(finish="calls")


def runs(commands: list[Command]) -> list[str]:
    return [command.call.id for command in commands if isinstance(command, RunTool)]


# Parallel runs


def test_parallel_tools_run_side_by_side_and_results_keep_the_order_of_calls() -> None:
    playbook = Playbook(make_turn(parallel="p q")) >> [*model_call(0, "p"), *model_call(1, "q"), *model_call(2, "p", "[]"), CALLS]
    assert runs(playbook.commands) == IDS[:3]
    playbook >> run_finished(2, "third") << finish_commands(run_finished(2, "third"))
    playbook >> run_finished(0, "first") << finish_commands(run_finished(0, "first"))
    playbook >> run_finished(1, "second")
    items = next_request(playbook.commands).items
    assert items[-3:] == (result_item(0, "first"), result_item(1, "second"), result_item(2, "third"))


def test_sequential_tool_waits_for_parallel_ones_and_they_for_it() -> None:
    playbook = Playbook(make_turn(parallel="p", auto="s"))
    playbook >> [*model_call(0, "p"), *model_call(1, "s"), *model_call(2, "p", "[]"), CALLS]
    assert runs(playbook.commands) == [IDS[0]]
    playbook >> run_finished(0) << [*finish_commands(run_finished(0)), *run_commands(1, "s")]
    playbook >> run_finished(1) << [*finish_commands(run_finished(1)), *run_commands(2, "p", "[]")]


def test_question_is_not_asked_beside_running_tools() -> None:
    playbook = Playbook(make_turn(parallel="p", approval="a")) >> [*model_call(0, "p"), *model_call(1, "a"), CALLS]
    assert not any(isinstance(command, AskPerson) for command in playbook.commands)
    playbook >> run_finished(0)
    assert [command.call.id for command in playbook.commands if isinstance(command, AskPerson)] == [IDS[1]]


# Calls that are not run


@pytest.mark.parametrize("again", ['{"x":1,"y":2}', '{ "y": 2, "x": 1 }'])
def test_third_identical_call_is_not_run_and_the_model_must_answer(again: str) -> None:  # bug 47
    playbook = Playbook(make_turn(auto="g"))
    for number in range(2):
        playbook >> [*model_call(0, "g", '{"x":1,"y":2}'), CALLS]
        assert runs(playbook.commands) == [IDS[number]]
        playbook >> run_finished(number)
        assert next_request(playbook.commands).tool_choice is None
    playbook >> [*model_call(0, "g", again), CALLS]
    assert runs(playbook.commands) == []
    last = next_request(playbook.commands)
    assert last.items[-1] == result_item(2, REPEATED)
    assert last.tool_choice == ToolChoice(mode="none", reads_calls=True)


def test_identical_calls_of_one_answer_count_too() -> None:
    calls = [event for index in range(3) for event in model_call(index, "p")]
    playbook = Playbook(make_turn(parallel="p")) >> [*calls, CALLS]
    assert runs(playbook.commands) == IDS[:2]


def test_unknown_tool_gets_an_error_result_if_the_client_declared_none() -> None:
    playbook = Playbook(make_turn(auto="g")) >> [*model_call(0, "nope"), CALLS]
    assert runs(playbook.commands) == []
    refused = ToolRunFinished(call_id=IDS[0], output="Unknown tool: nope", failed=True)
    assert refused in recorded(playbook.commands)
    assert next_request(playbook.commands).items[-1] == result_item(0, "Unknown tool: nope")
    assert emitted(playbook.commands) == [
        GatewayCallStarted(id=IDS[0], name="nope", toolset="", arguments="{}"),
        GatewayCallFinished(id=IDS[0], output="Unknown tool: nope", failed=True),
    ]


def test_long_name_of_an_unknown_tool_is_cut_in_its_result() -> None:
    playbook = Playbook(make_turn(auto="g")) >> [*model_call(0, "n" * 100 + "m" * 5000), CALLS]
    assert next_request(playbook.commands).items[-1] == result_item(0, "Unknown tool: " + "n" * 100)


def test_unknown_tool_is_the_clients_if_it_declared_tools() -> None:
    Playbook(make_turn(make_request("f"), auto="g")) >> model_call(0, "nope") << [Emit(client_call(0, "nope", number=0))]


def test_max_tool_calls_counts_runs_of_the_gateway() -> None:
    playbook = Playbook(make_turn(make_request(max_tool_calls=1), auto="g"))
    playbook >> [*model_call(0, "g"), *model_call(1, "g", "[]"), CALLS]
    assert runs(playbook.commands) == [IDS[0]]
    playbook >> run_finished(0)
    last = next_request(playbook.commands)
    assert last.items[-1] == result_item(1, "The limit of 1 tool calls is reached. This call was not run.")
    assert last.tool_choice == ToolChoice(mode="none", reads_calls=True)


# Names that both declare, status text, context


def test_gateway_runs_a_name_that_both_declare_if_configured() -> None:
    request = make_request("f", "g")
    turn = make_turn(request, auto="g", same_name="gateway")
    playbook = Playbook(turn)
    assert [tool.name for tool in next_request(playbook.commands).functions()] == ["f", "g"]
    playbook >> [*model_call(0, "g"), CALLS]
    assert runs(playbook.commands) == [IDS[0]]


def test_own_definition_of_a_shared_name_is_offered() -> None:
    own = Tool(name="g", description="the gateway's")
    policy = Policy(tools={"g": GatewayTool(tool=own, needs_approval=False)}, same_name="gateway")
    turn = Turn(token=TOKEN, request=make_request("g"), policy=policy)
    assert next_request(turn.start()).tools == (own,)


def test_status_text_says_which_tool_runs_and_stays_out_of_the_history() -> None:
    playbook = Playbook(make_turn(auto="g", status_text=True)) >> [*model_call(0, "g"), CALLS]
    assert TextDelta("Calling g…\n\n") in emitted(playbook.commands)
    playbook >> run_finished(0)
    assert next_request(playbook.commands).items == (call_item(0, "g"), result_item(0))
    playbook >> [TextDelta("One more."), *model_call(0, "g", "[]"), CALLS]
    assert TextDelta("\n\nCalling g…\n\n") in emitted(playbook.commands)


def test_texts_of_two_answers_are_paragraphs_where_the_client_gets_them_as_one() -> None:
    for joins, expected in ((True, "\n\nIt is noon."), (False, "It is noon.")):
        playbook = (
            Playbook(make_turn(auto="g", joins_answers=joins)) >> [TextDelta("Let me see."), *model_call(0, "g"), CALLS] << ...
        )
        playbook >> run_finished(0) << ...
        playbook >> [TextDelta(""), TextDelta("It is "), TextDelta("noon.")]
        assert "".join(event.text for event in emitted(playbook.commands) if isinstance(event, TextDelta)) == expected
        playbook >> [*model_call(0, "g", "[]"), CALLS] << ...
        assert Message(role="assistant", content=(Text(text="It is noon."),)) in playbook.turn.history
        playbook >> run_finished(1) << ...
        playbook >> [TextDelta("Bye."), AnswerFinished(finish="stop")] << ...


def test_e9_messages_of_one_answer_are_paragraphs_where_the_client_gets_them_as_one() -> None:
    for joins, expected in ((True, "One.\n\nTwo."), (False, "One.Two.")):
        events: list[StreamEvent] = [
            MessageStarted(),
            TextDelta("One."),
            MessageStarted(is_separate=True),
            TextDelta(""),
            TextDelta("Two."),
        ]
        playbook = Playbook(make_turn(auto="g", joins_answers=joins))
        playbook >> [*events, *model_call(0, "g"), CALLS] << ...
        assert "".join(event.text for event in emitted(playbook.commands) if isinstance(event, TextDelta)) == expected
        playbook >> run_finished(0) << ...
        playbook >> [MessageStarted(), TextDelta("Three.")]
        later = [event.text for event in emitted(playbook.commands) if isinstance(event, TextDelta)]
        assert later == ["\n\nThree." if joins else "Three."]
        playbook >> [AnswerFinished(finish="stop")] << ...


def test_first_text_of_a_turn_has_no_break_before_it() -> None:
    playbook = Playbook(make_turn(auto="g", joins_answers=True)) >> [*model_call(0, "g"), CALLS] << ...
    playbook >> run_finished(0) << ...
    playbook >> [TextDelta("It is noon.")] << [Emit([TextDelta("It is noon.")])]


def test_context_precedes_the_request_without_becoming_part_of_it() -> None:
    before, said = Message(role="user", content="before"), Message(role="user", content="now")
    turn = Turn(token=TOKEN, request=make_request(), context=(before,))
    assert next_request(turn.start()).items == (before,)
    request = make_request()
    accepted = recorded(Turn(token=TOKEN, request=request, context=(before, said)).start())[0]
    assert accepted == TurnAccepted(request=request)


# Replays of turns with running tools


def turn_and_steps(*, idempotent: bool) -> tuple[Policy, list[StepEvent]]:
    tool = GatewayTool(tool=Tool(name="g"), needs_approval=False, idempotent=idempotent)
    policy = Policy(tools={"g": tool})
    turn = Turn(token=TOKEN, request=make_request(), policy=policy)
    return policy, recorded([*turn.start(), *turn.handle([*model_call(0, "g", '{"x":1}'), CALLS])])


def test_idempotent_tool_that_was_running_is_repeated() -> None:  # bug 45
    policy, steps = turn_and_steps(idempotent=True)
    replayed = Turn.replay(steps, token=TOKEN, policy=policy)
    assert replayed.resume() == [RunTool(call_item(0, "g", '{"x":1}'))]
    assert replayed.handle_step(run_finished(0))[-1:] != []


def test_other_tool_that_was_running_is_not_repeated_and_the_model_is_told() -> None:  # bug 45
    policy, steps = turn_and_steps(idempotent=False)
    commands = Turn.replay(steps, token=TOKEN, policy=policy).resume()
    assert runs(commands) == []
    assert next_request(commands).items[-1] == Result(call_id=IDS[0], output=OUTCOME_UNKNOWN)


def test_failed_turn_goes_on_after_it_was_resumed() -> None:
    policy, steps = turn_and_steps(idempotent=False)
    failed: list[StepEvent] = [*steps, TurnFailed(code="client_gone", message="The client has gone.")]
    assert Turn.replay(failed, token=TOKEN, policy=policy).resume() == []
    turn = Turn.replay([*failed, TurnResumed()], token=TOKEN, policy=policy)
    assert next_request(turn.resume()).items[-1] == Result(call_id=IDS[0], output=OUTCOME_UNKNOWN)
    assert shown_events([*failed, TurnResumed()]) == shown_events([*steps, TurnResumed()]) == shown_events(steps)


def test_usage_before_a_failure_was_counted_and_usage_before_a_crash_was_not() -> None:
    turn = make_turn(auto="g")
    first, second = Usage(input=5, output=2, cached=1), Usage(input=9, output=4, cached=3)
    steps = recorded([*turn.start(), *turn.handle([*model_call(0, "g"), AnswerFinished(finish="calls", usage=first)])])
    assert turn.uncounted_usage == first
    failed: list[StepEvent] = [*steps, TurnFailed(code="client_gone", message="The client has gone."), TurnResumed()]
    for record, uncounted in ((failed, second), (steps, first + second)):
        resumed = Turn.replay(record, token=TOKEN, policy=turn.policy)
        resumed.resume()
        resumed.handle([TextDelta("Done."), AnswerFinished(finish="stop", usage=second)])
        assert resumed.usage == first + second
        assert resumed.uncounted_usage == uncounted
    assert Turn.replay(failed, token=TOKEN, policy=turn.policy).uncounted_usage == Usage(cached=0)


def test_tool_that_no_longer_exists_is_not_repeated() -> None:
    _, steps = turn_and_steps(idempotent=True)
    commands = Turn.replay(steps, token=TOKEN, policy=Policy(tools={"h": GatewayTool(tool=Tool(name="h"))})).resume()
    assert runs(commands) == []


def test_approved_call_that_had_not_started_runs_as_approved() -> None:  # bug 50
    turn = make_turn(approval="g")
    steps = recorded([*turn.start(), *turn.handle([*model_call(0, "g", '{"x":1}'), CALLS])])
    commands = Turn.replay([*steps, allowed(0, '{"x":2}', edited=True)], token=TOKEN, policy=turn.policy).resume()
    assert commands == run_commands(0, "g", '{"x":2}', asked=True)


def test_open_question_is_asked_again_without_a_new_record() -> None:  # bug 49
    turn = make_turn(approval="g")
    steps = recorded([*turn.start(), *turn.handle([*model_call(0, "g"), CALLS])])
    assert Turn.replay(steps, token=TOKEN, policy=turn.policy).resume() == [AskPerson(call_item(0, "g"), "{}")]


def test_call_ids_continue_after_a_replay() -> None:  # bug 29
    policy, steps = turn_and_steps(idempotent=False)
    replayed = Turn.replay(steps, token=TOKEN, policy=policy)
    replayed.resume()
    commands = replayed.handle([*model_call(0, "g", "[]"), CALLS])
    assert runs(commands) == [IDS[1]]


def test_ended_turn_stays_ended() -> None:
    turn = make_turn()
    steps = recorded([*turn.start(), *turn.handle([TextDelta("hi"), AnswerFinished(finish="stop")])])
    replayed = Turn.replay(steps, token=TOKEN)
    assert replayed.has_ended
    assert replayed.finish == "stop"
    assert replayed.resume() == []
    assert replayed.history == turn.history


def test_record_without_a_request_is_refused() -> None:
    with pytest.raises(Exception, match="does not begin with its request"):
        Turn.replay([ToolRunStarted(call_id="c", arguments="{}")], token=TOKEN)


def test_model_is_called_again_for_an_answer_that_was_cut_by_a_crash() -> None:
    turn = make_turn(auto="g")
    steps = recorded(turn.start())
    turn.handle([TextDelta("half an ans")])
    assert Turn.replay(steps, token=TOKEN, policy=turn.policy).resume() == [CallModel(next_request(make_turn(auto="g").start()))]
