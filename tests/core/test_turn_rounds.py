"""Turns of several answers: what the model is asked after a gateway run, what is carried on, and when it ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.playbook import (
    Playbook,
    answered,
    asked,
    called,
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
from toolrelay.core.commands import Command, Emit, End, Record
from toolrelay.core.events import (
    AnswerFinished,
    ArgumentsDelta,
    CallStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.messages import CallKind, Item, Message, Reasoning
from toolrelay.core.request import Tool, ToolChoice
from toolrelay.core.steps import AnswerReceived, TurnFinished

CALLS = AnswerFinished(finish="calls")
STOP = AnswerFinished(finish="stop")


def test_a_client_that_has_seen_a_call_begin_that_never_ended_is_not_sent_another_answer() -> None:  # bug 5
    story = Playbook(turn(asked("f"), free="g"))
    story >> [*called(0, "g"), CallStarted(1, "f"), ArgumentsDelta(1, '{"x'), AnswerFinished(finish="length")]
    assert recorded(story.commands)[0] == AnswerReceived(items=(made(0, "g"),), finish="length", cut=True)
    ended: list[Command] = [Record(TurnFinished(finish="length")), Emit([AnswerFinished(finish="length")]), End()]
    story >> ran(0) << [Record(ran(0)), *ended]


def test_a_gateway_call_that_was_cut_is_not_run() -> None:  # bug 5
    story = Playbook(turn(free="g")) >> [CallStarted(0, "g"), ArgumentsDelta(0, '{"x'), AnswerFinished(finish="length")]
    assert recorded(story.commands) == [AnswerReceived(items=(), finish="length"), TurnFinished(finish="length")]


def test_an_answer_cut_behind_a_whole_gateway_call_is_followed_by_another() -> None:
    story = Playbook(turn(free="g")) >> [*called(0, "g"), CallStarted(1, "g"), AnswerFinished(finish="length")]
    assert story.commands[-2:] == running(0, "g")
    story >> ran(0)
    assert next_request(story.commands).items == (made(0, "g"), answered(0))


@pytest.mark.parametrize("rounds", [1, 3])
def test_at_the_round_limit_the_model_is_asked_once_more_for_words_only(rounds: int) -> None:  # bug 47
    limited = turn(asked("f"), free="g", rounds=rounds)
    story = Playbook(trusting_layer(limited))
    for number in range(rounds):
        story >> [*called(0, "g"), CALLS]
        assert story.commands[-2:] == running(number, "g")
        story >> ran(number)
        last = next_request(story.commands)
        assert last.tools == (Tool(name="f"), Tool(name="g"))
        assert last.tool_choice == (ToolChoice(mode="none") if number == rounds - 1 else None)
    story >> [*called(0, "g"), *called(1, "f"), TextDelta("enough"), CALLS]
    assert notices(story.commands) == [("tool_choice_none", "g"), ("tool_choice_none", "f")]
    assert emitted(story.commands) == [TextDelta("enough"), AnswerFinished(finish="stop")]
    assert limited.finish == "stop"


NAMES: tuple[tuple[CallKind, str], ...] = (("function", "f"), ("function", "g"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (ToolChoice(), ToolChoice()),
        (ToolChoice(mode="required"), ToolChoice()),
        (ToolChoice(mode="named", names=NAMES[1:]), ToolChoice()),
        (ToolChoice(names=NAMES), ToolChoice(names=NAMES)),
        (ToolChoice(mode="required", names=NAMES), ToolChoice(names=NAMES)),
        (ToolChoice(raw={"type": "web_search"}), ToolChoice()),
    ],
    ids=shown,
)
def test_a_choice_that_forces_a_call_relaxes_after_a_gateway_run(before: ToolChoice | None, after: ToolChoice | None) -> None:
    story = Playbook(turn(asked("f", tool_choice=before), free="g"))
    assert next_request(story.commands).tool_choice == before
    story >> [*called(0, "g"), CALLS]
    assert story.commands[-2:] == running(0, "g")
    story >> ran(0)
    assert next_request(story.commands).tool_choice == after


def test_usage_is_the_sum_over_all_answers() -> None:
    story = Playbook(turn(free="g"))
    story >> [*called(0, "g"), AnswerFinished(finish="calls", usage=Usage(input=10, output=3, cached=4))]
    story << ... >> ran(0) << ...
    story >> [AnswerFinished(finish="stop", usage=Usage(input=20, output=5, total=25, reasoning=2))]
    total = Usage(input=30, output=8, total=38, cached=4, reasoning=2)
    assert emitted(story.commands) == [AnswerFinished(finish="stop", usage=total)]
    assert story.turn.usage == total
    assert recorded(story.commands)[-1] == TurnFinished(finish="stop", usage=total)


def test_usage_that_the_last_answer_does_not_tell_is_that_of_the_others() -> None:
    story = Playbook(turn(free="g")) >> [*called(0, "g"), AnswerFinished(finish="calls", usage=Usage(input=10, output=3))]
    story << ... >> ran(0) << ...
    story >> [STOP]
    assert emitted(story.commands) == [AnswerFinished(finish="stop", usage=Usage(input=10, output=3))]


def test_ids_go_on_from_answer_to_answer() -> None:  # bug 29
    story = Playbook(turn(asked("f"), free="g")) >> [*called(0, "g"), CALLS]
    story << ... >> ran(0) << ...
    story >> called(0, "f") << [Emit(seen(0, "f", number=1))]


def test_without_parallel_calls_each_answer_may_make_one() -> None:  # bug 27
    story = Playbook(trusting_layer(turn(asked(parallel_tool_calls=False), free="g")))
    story >> [*called(0, "g"), *called(1, "g"), CALLS]
    assert notices(story.commands) == [("parallel_tool_calls_false", None)]
    story >> ran(0) << ...
    story >> [*called(0, "g"), CALLS]
    assert story.commands[-2:] == running(1, "g")


def test_thoughts_go_back_to_the_model_in_their_place() -> None:  # bug 31
    events: list[StreamEvent] = [ReasoningDelta("hm"), *called(0, "g"), CALLS]
    items: tuple[Item, ...] = (Message(role="user", content="hi"),)
    story = Playbook(turn(replace(asked(), items=items), free="g")) >> events
    assert emitted(story.commands) == [ReasoningDelta("hm")]
    story >> ran(0)
    assert next_request(story.commands).items == (*items, Reasoning(text=("hm",)), made(0, "g"), answered(0))
