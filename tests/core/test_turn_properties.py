"""Properties of every turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.core.answers import answers, batches
from tests.core.playbook import emitted, make_request, make_turn, notices, recorded
from toolrelay.core.assembly import Assembly
from toolrelay.core.commands import AskPerson, CallModel, Command, Emit, End, Notice, RunTool
from toolrelay.core.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerStarted,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    StreamEvent,
)
from toolrelay.core.messages import Call, Result
from toolrelay.core.request import Request, ToolChoice
from toolrelay.core.steps import AnswerReceived, ToolRunFinished, VerdictGiven
from toolrelay.core.turn import Turn

REQUESTS: st.SearchStrategy[Request] = st.builds(
    lambda choice, parallel, *, legacy: make_request(
        "f", "g", tool_choice=choice, parallel_tool_calls=parallel, legacy_functions=legacy
    ),
    st.sampled_from(
        [
            None,
            ToolChoice(mode="none"),
            ToolChoice(mode="required"),
            ToolChoice(mode="named", names=(("function", "f"),)),
            ToolChoice(names=(("function", "g"), ("function", "h"))),
        ]
    ),
    st.sampled_from([None, False]),
    legacy=st.booleans(),
)


def run_answer(turn: Turn, arriving: Iterable[Sequence[StreamEvent]]) -> list[Command]:
    return [*turn.start(), *(command for batch in arriving for command in turn.handle(batch))]


@given(REQUESTS, answers(("f", "g", "h", "i", "nope")), st.data())
def test_batching_of_events_does_not_change_the_turn(
    request: Request, events: list[StreamEvent], data: st.DataObject
) -> None:  # bug 3
    one, other = (make_turn(request, approval="h", auto="i") for _ in range(2))
    together, apart = run_answer(one, [events]), run_answer(other, data.draw(batches(events)))
    assert emitted(together) == emitted(apart)
    assert notices(together) == notices(apart)
    assert [c for c in together if not isinstance(c, Emit | Notice)] == [c for c in apart if not isinstance(c, Emit | Notice)]
    assert (one.finish, one.usage, one.error) == (other.finish, other.usage, other.error)


@given(REQUESTS, answers())
def test_client_and_ledger_have_the_same_items(request: Request, events: list[StreamEvent]) -> None:  # bug 4
    commands = run_answer(make_turn(request), [events])
    folded = Assembly()
    for event in emitted(commands):
        folded.add(event)
    received = [step for step in recorded(commands) if isinstance(step, AnswerReceived)]
    assert [step.items for step in received] == ([] if folded.error else [folded.answer().items])


@given(REQUESTS, answers(("f", "g", "h", "i", "nope"), ends=False))
def test_client_calls_are_numbered_from_zero(request: Request, events: list[StreamEvent]) -> None:  # bug 7
    begun: dict[int, int] = {}
    for event in emitted(run_answer(make_turn(request, approval="h", auto="i"), [events])):
        if isinstance(event, CallStarted):
            assert event.index == begun.get(event.choice, 0)
            begun[event.choice] = event.index + 1
        elif isinstance(event, ArgumentsDelta | CallFinished):
            assert event.index < begun[event.choice]


@given(REQUESTS, st.lists(answers(("f", "g", "h", "i", "nope")), min_size=1, max_size=5), st.data())
def test_every_turn_ends_once(request: Request, answers_: list[list[StreamEvent]], data: st.DataObject) -> None:
    """Any answers of a model, and any verdicts."""
    turn = make_turn(request, approval="h", auto="i", max_rounds=3)
    waiting, done, pending_answers = turn.start(), list[Command](), iter(answers_)
    while waiting:
        command = waiting.pop(0)
        done.append(command)
        match command:
            case CallModel(sent):
                assert {item.id for item in sent.items if isinstance(item, Call)} == {
                    item.call_id for item in sent.items if isinstance(item, Result)
                }
                waiting += turn.handle(next(pending_answers, [AnswerFinished(finish="stop")]))
            case AskPerson(call):
                waiting += turn.handle_step(data.draw(verdicts(call)))
            case RunTool(call):
                waiting += turn.handle_step(ToolRunFinished(call_id=call.id, output="done"))
    assert [command for command in done if isinstance(command, End)] == [done[-1]]
    events = emitted(done)
    assert [event for event in events if isinstance(event, AnswerFinished | AnswerFailed)] == events[-1:]
    assert [event for event in events if isinstance(event, AnswerStarted)] == events[:1]
    ids = [event.id for event in events if isinstance(event, CallStarted)]
    runs = [command.call.id for command in done if isinstance(command, RunTool)]
    assert len({*ids, *runs}) == len(ids) + len(runs)
    assert sum(isinstance(command, CallModel) for command in done) <= 4


def verdicts(call: Call) -> st.SearchStrategy[VerdictGiven]:
    return st.sampled_from(
        [
            VerdictGiven(call_id=call.id, verdict="allow"),
            VerdictGiven(call_id=call.id, verdict="allow", arguments='{"edited":true}'),
            VerdictGiven(call_id=call.id, verdict="deny"),
        ]
    )
