"""Approvals: the table of a question's states, and turns that ask, wait, are denied, share, or end with a question."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from msgspec.structs import replace

from tests.core.playbook import (
    IDS,
    TOKEN,
    Playbook,
    allow,
    allowed,
    ask_commands,
    call_item,
    deny,
    emitted,
    make_request,
    make_turn,
    model_call,
    next_request,
    recorded,
    result_item,
    run_finished,
)
from toolrelay.core.approvals import (
    CHANGED,
    NOT_ANSWERED,
    NOT_ANSWERED_SHARE,
    NOT_SHAREABLE,
    TRANSITIONS,
    QuestionAnswer,
    QuestionStatus,
    approval_digest,
    approval_id,
    denial_text,
    describe_edit,
    is_empty_selection,
    keep_paths,
    shared_paths,
)
from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, RecordStep, RunTool
from toolrelay.core.events import (
    AnswerFinished,
    ApprovalRequested,
    CallStarted,
    GatewayCallFinished,
    GatewayCallStarted,
    TextDelta,
)
from toolrelay.core.messages import Image, Message, Result, Text, insert_results
from toolrelay.core.playback import shown_events
from toolrelay.core.policy import GatewayTool, Policy
from toolrelay.core.request import Tool
from toolrelay.core.steps import (
    CallsTakenUp,
    QuestionAsked,
    QuestionClosed,
    QuestionLeft,
    StepEvent,
    TakenCall,
    ToolRunFinished,
    TurnFinished,
    VerdictGiven,
)
from toolrelay.core.turn import Turn

CALLS = AnswerFinished(finish="calls")
STOP = AnswerFinished(finish="stop")
ENTRIES = '[{"path":"a.md","preview":"A"},{"path":"b.md","preview":"B"}]'
PATHS = '{"paths":["a.md","b.md"]}'


# The table


@pytest.mark.parametrize("answer", get_args(QuestionAnswer))
@pytest.mark.parametrize("status", get_args(QuestionStatus))
def test_question_is_answered_at_most_once(status: QuestionStatus, answer: QuestionAnswer) -> None:
    expected = {"allow": "allowed", "edit": "edited", "deny": "denied", "expire": "expired", "withdraw": "withdrawn"}
    assert TRANSITIONS.get((status, answer)) == (expected[answer] if status == "pending" else None)


def test_every_status_is_reachable() -> None:
    assert {"pending", *TRANSITIONS.values()} == set(get_args(QuestionStatus))


def test_questions_about_run_and_share_have_different_ids() -> None:
    assert approval_id(IDS[0]) == "appr_" + IDS[0].removeprefix("call_")
    assert approval_id(IDS[0], "share") == "shar_" + IDS[0].removeprefix("call_")


# Digests


def test_digest_ignores_spaces_and_order_of_members() -> None:
    assert approval_digest("c", "d", '{"a":1,"b":2}') == approval_digest("c", "d", '{ "b": 2, "a": 1 }')


@pytest.mark.parametrize("other", [("x", "d", "{}"), ("c", "x", "{}"), ("c", "d", '{"a":1}')])
def test_digest_depends_on_call_definition_and_arguments(other: tuple[str, str, str]) -> None:
    assert approval_digest("c", "d", "{}") != approval_digest(*other)


def asking_steps(arguments: str = "{}") -> list[StepEvent]:
    turn = make_turn(approval="g")
    return [*recorded([*turn.start(), *turn.handle([*model_call(0, "g", arguments), CALLS])])]


def replay(steps: list[StepEvent], tool: GatewayTool) -> Turn:
    return Turn.replay(steps, token=TOKEN, policy=Policy(tools={"g": tool}))


def test_tool_that_changed_after_its_approval_is_not_run() -> None:
    commands = replay([*asking_steps(), allowed(0)], GatewayTool(tool=Tool(name="g"), definition="new")).resume()
    assert recorded(commands)[0] == ToolRunFinished(call_id=IDS[0], output=CHANGED, failed=True)
    assert not any(isinstance(command, RunTool) for command in commands)


def test_arguments_other_than_the_approved_are_not_run() -> None:
    forged = replace(allowed(0), arguments='{"x":2}')
    commands = replay([*asking_steps(), forged], GatewayTool(tool=Tool(name="g"))).resume()
    assert recorded(commands)[0] == ToolRunFinished(call_id=IDS[0], output=CHANGED, failed=True)


def test_tool_that_is_gone_is_not_asked_about_again() -> None:
    commands = replay(asking_steps(), GatewayTool(tool=Tool(name="g"))).resume()
    assert commands == [AskPerson(call_item(0, "g"), "{}")]
    gone = Turn.replay(asking_steps(), token=TOKEN, policy=Policy(tools={"h": GatewayTool(tool=Tool(name="h"))})).resume()
    assert recorded(gone)[:2] == [
        QuestionClosed(call_id=IDS[0], status="withdrawn"),
        ToolRunFinished(call_id=IDS[0], output="Unknown tool: g", failed=True),
    ]


# What the model is told


def ask_and(verdict: VerdictGiven | QuestionClosed, arguments: str = "{}") -> Playbook[Turn]:
    return Playbook(make_turn(approval="g")) >> [*model_call(0, "g", arguments), CALLS] << ... >> verdict << ...


def test_edit_is_told_with_the_result() -> None:
    playbook = ask_and(allow(0, '{"x":2}'), '{"x":1}') >> run_finished(0, '{"found":3}')
    result = next_request(playbook.commands).items[-1]
    assert isinstance(result, Result)
    assert json.loads(str(result.output)) == {"ran_with": {"x": 2}, "result": {"found": 3}}


def test_client_is_shown_what_ran_and_its_plain_result() -> None:
    playbook = ask_and(allow(0, '{"x":2}'), '{"x":1}')
    started = [event for event in emitted(playbook.commands) if isinstance(event, GatewayCallStarted)]
    assert [event.arguments for event in started] == ['{"x":2}']
    playbook >> run_finished(0, "3")
    assert GatewayCallFinished(id=IDS[0], output="3") in emitted(playbook.commands)


def test_same_arguments_in_another_spelling_are_no_edit() -> None:
    playbook = ask_and(allow(0, '{ "x": 1 }'), '{"x":1}') >> run_finished(0)
    assert next_request(playbook.commands).items[-1] == result_item(0)


def test_edit_of_a_call_with_an_image_is_told_before_it() -> None:
    image = Image(url="data:,x")
    assert describe_edit('{"x":2}', (image,)) == (Text(text='{"ran_with":{"x":2}}'), image)


def test_text_result_of_an_edited_call_stays_text() -> None:
    assert json.loads(str(describe_edit('{"x":2}', "It rains."))) == {"ran_with": {"x": 2}, "result": "It rains."}


def test_expired_question_is_a_result_and_the_turn_goes_on() -> None:
    playbook = ask_and(QuestionClosed(call_id=IDS[0], status="expired"))
    assert next_request(playbook.commands).items[-1] == result_item(0, NOT_ANSWERED)
    assert GatewayCallFinished(id=IDS[0], output=NOT_ANSWERED, failed=True) in emitted(playbook.commands)
    playbook >> allow(0) << []


def test_denial_names_its_reason_and_lets_the_model_go_on() -> None:
    text = denial_text("run", "too broad")
    assert "Reason: too broad. " in text
    assert "Go on without it" in text


def test_calls_of_an_answer_are_asked_about_one_after_the_other() -> None:
    playbook = Playbook(make_turn(approval="g h")) >> [*model_call(0, "g"), *model_call(1, "h"), CALLS]
    assert [command for command in playbook.commands if isinstance(command, AskPerson)] == [ask_commands(0, "g")[-1]]
    playbook >> deny(0)
    assert [command for command in playbook.commands if isinstance(command, AskPerson)] == [ask_commands(1, "h")[-1]]


def test_status_text_says_that_a_person_is_asked() -> None:
    turn = make_turn(approval="g", status_text=True)
    turn.start()
    commands = turn.handle([TextDelta("Hm."), *model_call(0, "g"), CALLS])
    assert TextDelta("\n\nWaiting for approval: g…\n\n") in emitted(commands)
    assert TextDelta("Calling g…\n\n") in emitted(turn.handle_step(allow(0)))


# Sharing


def share_turn(*, parallel: bool = False, **members: object) -> Turn:
    tool = GatewayTool(tool=Tool(name="g"), needs_approval=False, asks_to_share=True, parallel=parallel)
    return Turn(token=TOKEN, request=make_request(**members), policy=Policy(tools={"g": tool}))


def share_question(number: int = 0, paths: str = PATHS) -> list[Command]:
    asked = QuestionAsked(call_id=IDS[number], kind="share", tool="g", arguments=paths)
    return [RecordStep(asked), AskPerson(call_item(number, "g"), paths, "share")]


def share(number: int = 0, *paths: str) -> VerdictGiven:
    arguments = json.dumps({"paths": paths}) if paths else None
    return VerdictGiven(call_id=IDS[number], verdict="allow", kind="share", arguments=arguments)


def test_result_is_recorded_and_withheld_until_a_person_shares_it() -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ... >> run_finished(0, ENTRIES)
    playbook << [RecordStep(ToolRunFinished(call_id=IDS[0], output=ENTRIES, withheld=True)), *share_question()]
    playbook >> share()
    assert emitted(playbook.commands) == [GatewayCallFinished(id=IDS[0], output=ENTRIES)]
    assert next_request(playbook.commands).items[-1] == result_item(0, ENTRIES)


def test_entries_that_are_not_shared_are_removed() -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ... >> run_finished(0, ENTRIES) << ...
    playbook >> share(0, "b.md")
    kept = '[{"path":"b.md","preview":"B"}]'
    assert emitted(playbook.commands) == [GatewayCallFinished(id=IDS[0], output=kept)]
    assert next_request(playbook.commands).items[-1] == result_item(0, kept)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (VerdictGiven(call_id=IDS[0], verdict="deny", kind="share", reason="secret"), denial_text("share", "secret")),
        (QuestionClosed(call_id=IDS[0], status="expired", kind="share"), NOT_ANSWERED_SHARE),
    ],
)
def test_result_that_is_not_shared_stays_unknown(answer: VerdictGiven | QuestionClosed, text: str) -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ... >> run_finished(0, ENTRIES) << ... >> answer
    assert emitted(playbook.commands) == [GatewayCallFinished(id=IDS[0], output=text, failed=True)]
    assert next_request(playbook.commands).items[-1] == result_item(0, text)


def test_empty_result_needs_no_question() -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ... >> run_finished(0, "[]")
    assert next_request(playbook.commands).items[-1] == result_item(0, "[]")


@pytest.mark.parametrize("output", ["text", '{"path":"a.md"}', ENTRIES[:-5], '[{"path":"a.md"},{"name":"b"}]', '["a"]'])
def test_result_that_nobody_can_be_asked_about_is_not_shared(output: str) -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ... >> run_finished(0, output)
    assert next_request(playbook.commands).items[-1] == result_item(0, NOT_SHAREABLE)
    assert emitted(playbook.commands) == [GatewayCallFinished(id=IDS[0], output=NOT_SHAREABLE, failed=True)]


def test_error_of_a_tool_needs_no_question() -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ...
    playbook >> ToolRunFinished(call_id=IDS[0], output="Error: no.", failed=True)
    assert next_request(playbook.commands).items[-1] == result_item(0, "Error: no.")


def test_parallel_results_are_asked_about_one_after_the_other() -> None:
    playbook = Playbook(share_turn(parallel=True)) >> [*model_call(0, "g"), *model_call(1, "g", '{"x":1}'), CALLS] << ...
    playbook >> run_finished(1, ENTRIES) << ... >> run_finished(0, ENTRIES)
    assert not any(isinstance(command, AskPerson) for command in playbook.commands)
    playbook >> share(1)
    assert [command for command in playbook.commands if isinstance(command, AskPerson)] == share_question()[1:]


def test_verdict_about_running_does_not_share() -> None:
    playbook = Playbook(share_turn()) >> [*model_call(0, "g"), CALLS] << ... >> run_finished(0, ENTRIES) << ...
    playbook >> allow(0) << []


def test_paths_of_a_result() -> None:
    assert shared_paths(ENTRIES) == ["a.md", "b.md"]
    assert shared_paths((Text(text=ENTRIES),)) is None
    assert keep_paths(ENTRIES, ["b.md", "c.md"]) == '[{"path":"b.md","preview":"B"}]'


def test_empty_selection_of_files() -> None:
    assert is_empty_selection('{"filePaths":[]}', "filePaths")
    assert not is_empty_selection('{"filePaths":["a"]}', "filePaths")
    assert not is_empty_selection('{"filePaths":[]}', None)


# Questions to the client


def leave(number: int) -> QuestionLeft:
    return QuestionLeft(call_id=IDS[number])


def test_turn_ends_with_questions_to_the_client() -> None:
    playbook = Playbook(make_turn(make_request("f"), approval="g h", auto="i")) >> [
        *model_call(0, "g", '{"x":1}'),
        *model_call(1, "i"),
        *model_call(2, "f"),
        *model_call(3, "h"),
        CALLS,
    ]
    playbook << ... >> leave(0)
    requested = ApprovalRequested(id=approval_id(IDS[0]), name="g", toolset="", arguments='{"x":1}')
    assert playbook.commands[:2] == [RecordStep(leave(0)), Emit([requested])]
    assert isinstance(playbook.commands[-1], RunTool)
    playbook >> run_finished(1) << ... >> leave(3)
    assert recorded(playbook.commands)[-1] == TurnFinished(finish="calls")
    assert playbook.turn.finish == "calls"


def test_record_of_a_turn_that_ended_with_a_question_shows_it() -> None:
    turn = make_turn(approval="g")
    steps = recorded([*turn.start(), *turn.handle([*model_call(0, "g"), CALLS]), *turn.handle_step(leave(0))])
    requested = ApprovalRequested(id=approval_id(IDS[0]), name="g", toolset="", arguments="{}")
    assert requested in shown_events(steps)


def taking_turn(*verdicts: VerdictGiven | QuestionClosed, taken: tuple[TakenCall, ...] | None = None) -> Turn:
    tools = {name: GatewayTool(tool=Tool(name=name)) for name in ("g", "h")}
    request = replace(make_request(), items=(Message(role="user", content="Go on."),))
    context = (call_item(7, "g"), call_item(8, "h"))
    calls = (TakenCall(call=call_item(7, "g"), toolset="", arguments="{}"), done_call(8)) if taken is None else taken
    token = "Turn1111111111111111"
    return Turn(token=token, request=request, policy=Policy(tools=tools), context=context, taken=calls, verdicts=list(verdicts))


def done_call(number: int) -> TakenCall:
    return TakenCall(call=call_item(number, "h"), toolset="", arguments="{}", output="was done")


def test_calls_of_an_earlier_turn_run_before_the_model_is_asked() -> None:
    turn = taking_turn(allow(7))
    commands = turn.start()
    assert [type(step) for step in recorded(commands)][1:3] == [CallsTakenUp, VerdictGiven]
    assert commands[-1] == RunTool(call_item(7, "g"))
    commands = turn.handle_step(run_finished(7))
    user = Message(role="user", content="Go on.")
    given = next_request(commands).items
    assert given == (call_item(7, "g"), call_item(8, "h"), result_item(7), result_item(8, "was done"), user)
    assert GatewayCallFinished(id=IDS[7], output="done") in emitted(commands)


def test_replay_of_a_turn_that_took_up_calls_gives_the_same_request() -> None:
    turn = taking_turn(allow(7))
    steps = recorded([*turn.start(), *turn.handle_step(run_finished(7))])
    context = (call_item(7, "g"), call_item(8, "h"))
    resumed = Turn.replay(steps, token=turn.token, policy=turn.policy, context=context).resume()
    assert next_request(resumed).items == turn.items


def test_all_verdicts_of_the_client_are_recorded_before_any_is_acted_on() -> None:
    taken = tuple(TakenCall(call=call_item(number, "g"), toolset="", arguments="{}") for number in (6, 7))
    commands = taking_turn(deny(6), allow(7), taken=taken).start()
    kinds = [type(command) for command in commands]
    assert kinds.index(Emit) > max(index for index, command in enumerate(commands[:4]) if isinstance(command, RecordStep))
    assert recorded(commands)[2:4] == [deny(6), allowed(7)]


def test_denied_calls_of_an_earlier_turn_are_results() -> None:
    turn = taking_turn(deny(7))
    items = next_request(turn.start()).items
    assert items[2] == result_item(7, denial_text("run", None))


def test_results_of_an_earlier_turn_reach_a_model_that_has_no_tools_any_more() -> None:
    request = replace(make_request(), items=(call_item(7, "g"),))
    taken = (TakenCall(call=call_item(7, "g"), toolset="", arguments="{}"),)
    turn = Turn(token="Turn1111111111111111", request=request, taken=taken, verdicts=[deny(7)])
    assert next_request(turn.start()).items == (call_item(7, "g"), result_item(7, denial_text("run", None)))


def test_results_are_inserted_after_the_group_of_their_calls() -> None:
    calls = (call_item(0, "f"), call_item(1, "g"))
    user = Message(role="user", content="Hi")
    items = insert_results((user, *calls, result_item(0), user), [Result(call_id=IDS[1], output="x"), result_item(5)])
    assert items == (result_item(5), user, *calls, Result(call_id=IDS[1], output="x"), result_item(0), user)


def test_model_events_of_a_turn_with_questions_to_the_client_are_unchanged() -> None:
    playbook = Playbook(make_turn(make_request("f"), approval="g")) >> [*model_call(0, "f"), *model_call(1, "g"), CALLS]
    assert [event for event in emitted(playbook.commands) if isinstance(event, CallStarted)] == [CallStarted(0, "f", IDS[0])]
    playbook >> leave(1)
    assert not any(isinstance(command, CallModel) for command in playbook.commands)


# Private results


def test_private_result_is_marked_in_the_history() -> None:
    playbook = Playbook(make_turn(auto="g")) >> [*model_call(0, "g"), CALLS] << ...
    playbook >> ToolRunFinished(call_id=IDS[0], output="secret", private=True)
    assert next_request(playbook.commands).items[-1] == Result(call_id=IDS[0], output="secret", private=True)


def test_turn_whose_toolset_is_gone_goes_on_with_its_history() -> None:
    commands = Turn.replay(asking_steps(), token=TOKEN, policy=Policy()).resume()
    (call,) = [command for command in commands if isinstance(command, CallModel)]
    assert call.request.items == (call_item(0, "g"), Result(call_id=IDS[0], output="Unknown tool: g"))
