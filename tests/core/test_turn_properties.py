"""What holds of every turn, whatever the model says and however it arrives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.core.answers import answers, batches
from tests.core.playbook import asked, emitted, notices, recorded, turn
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
from toolrelay.core.steps import AnswerReceived, RunFinished, VerdictGiven
from toolrelay.core.turn import Turn

REQUESTS: st.SearchStrategy[Request] = st.builds(
    lambda choice, parallel, *, legacy: asked(
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


def answer(own: Turn, arriving: Iterable[Sequence[StreamEvent]]) -> list[Command]:
    return [*own.start(), *(command for batch in arriving for command in own.handle(batch))]


@given(REQUESTS, answers(("f", "g", "h", "i", "nope")), st.data())
def test_it_never_matters_how_events_arrive(wanted: Request, events: list[StreamEvent], data: st.DataObject) -> None:  # bug 3
    one, other = (turn(wanted, approved="h", free="i") for _ in range(2))
    together, apart = answer(one, [events]), answer(other, data.draw(batches(events)))
    assert emitted(together) == emitted(apart)
    assert notices(together) == notices(apart)
    assert [c for c in together if not isinstance(c, Emit | Notice)] == [c for c in apart if not isinstance(c, Emit | Notice)]
    assert (one.finish, one.usage, one.error) == (other.finish, other.usage, other.error)


@given(REQUESTS, answers())
def test_what_the_client_folds_is_what_the_ledger_holds(wanted: Request, events: list[StreamEvent]) -> None:  # bug 4
    commands = answer(turn(wanted), [events])
    folded = Assembly()
    for event in emitted(commands):
        folded.add(event)
    received = [step for step in recorded(commands) if isinstance(step, AnswerReceived)]
    assert [step.items for step in received] == ([] if folded.error else [folded.answer().items])


@given(REQUESTS, answers(("f", "g", "h", "i", "nope"), ends=False))
def test_the_clients_calls_are_numbered_from_zero(wanted: Request, events: list[StreamEvent]) -> None:  # bug 7
    begun: dict[int, int] = {}
    for event in emitted(answer(turn(wanted, approved="h", free="i"), [events])):
        if isinstance(event, CallStarted):
            assert event.index == begun.get(event.choice, 0)
            begun[event.choice] = event.index + 1
        elif isinstance(event, ArgumentsDelta | CallFinished):
            assert event.index < begun[event.choice]


@given(REQUESTS, st.lists(answers(("f", "g", "h", "i", "nope")), min_size=1, max_size=5), st.data())
def test_every_turn_comes_to_one_end(wanted: Request, said: list[list[StreamEvent]], data: st.DataObject) -> None:
    """With a model that says one thing after the other, and people who answer as they please."""
    own = turn(wanted, approved="h", free="i", rounds=3)
    waiting, done, asked_for = own.start(), list[Command](), iter(said)
    while waiting:
        command = waiting.pop(0)
        done.append(command)
        match command:
            case CallModel(sent):
                assert {item.id for item in sent.items if isinstance(item, Call)} == {
                    item.call_id for item in sent.items if isinstance(item, Result)
                }
                waiting += own.handle(next(asked_for, [AnswerFinished(finish="stop")]))
            case AskPerson(call):
                waiting += own.handle_step(data.draw(verdicts(call)))
            case RunTool(call):
                waiting += own.handle_step(RunFinished(call_id=call.id, output="done"))
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
