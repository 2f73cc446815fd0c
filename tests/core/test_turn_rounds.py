"""Turns with several answers: requests after a gateway run, usage, the round limit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.playbook import (
    Playbook,
    call_item,
    client_call,
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
from toolrelay.core.commands import Command, Emit, End, RecordStep
from toolrelay.core.events import (
    AnswerFinished,
    ArgumentsDelta,
    CallStarted,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Usage,
)
from toolrelay.core.json import JsonObject
from toolrelay.core.messages import CallKind, Item, Message, Reasoning
from toolrelay.core.request import Tool, ToolChoice
from toolrelay.core.steps import AnswerReceived, TurnFinished

CALLS = AnswerFinished(finish="calls")
STOP = AnswerFinished(finish="stop")


def test_visible_unfinished_call_ends_the_turn() -> None:  # bug 5
    playbook = Playbook(make_turn(make_request("f"), auto="g"))
    playbook >> [*model_call(0, "g"), CallStarted(1, "f"), ArgumentsDelta(1, '{"x'), AnswerFinished(finish="length")]
    assert recorded(playbook.commands)[0] == AnswerReceived(items=(call_item(0, "g"),), finish="length", cut=True, call_count=2)
    ended: list[Command] = [RecordStep(TurnFinished(finish="length")), Emit([AnswerFinished(finish="length")]), End()]
    playbook >> run_finished(0) << [*finish_commands(run_finished(0)), *ended]


def test_truncated_gateway_call_is_not_run() -> None:  # bug 5
    playbook = Playbook(make_turn(auto="g")) >> [
        CallStarted(0, "g"),
        ArgumentsDelta(0, '{"x'),
        AnswerFinished(finish="length"),
    ]
    assert recorded(playbook.commands) == [AnswerReceived(items=(), finish="length", call_count=1), TurnFinished(finish="length")]


def test_truncated_answer_with_a_complete_gateway_call_goes_on() -> None:
    playbook = Playbook(make_turn(auto="g")) >> [
        *model_call(0, "g"),
        CallStarted(1, "g"),
        AnswerFinished(finish="length"),
    ]
    assert playbook.commands[-3:] == run_commands(0, "g")
    playbook >> run_finished(0)
    assert next_request(playbook.commands).items == (call_item(0, "g"), result_item(0))


@pytest.mark.parametrize("rounds", [1, 3])
def test_round_limit_asks_once_more_with_tool_choice_none(rounds: int) -> None:  # bug 47
    limited = make_turn(make_request("f"), auto="g", max_rounds=rounds)
    playbook = Playbook(trusting_layer(limited))
    for number in range(rounds):
        arguments = f'{{"x":{number}}}'
        playbook >> [*model_call(0, "g", arguments), CALLS]
        assert playbook.commands[-3:] == run_commands(number, "g", arguments)
        playbook >> run_finished(number)
        last = next_request(playbook.commands)
        assert last.tools == (Tool(name="f"), Tool(name="g"))
        assert last.tool_choice == (ToolChoice(mode="none", reads_calls=True) if number == rounds - 1 else None)
    playbook >> [*model_call(0, "g"), *model_call(1, "f"), TextDelta("enough"), CALLS]
    assert notices(playbook.commands) == [("tool_choice_none", "g"), ("tool_choice_none", "f")]
    assert emitted(playbook.commands) == [TextDelta("enough"), AnswerFinished(finish="stop")]
    assert limited.finish == "stop"


NAMES: tuple[tuple[CallKind, str], ...] = (("function", "f"), ("function", "g"))


def allow_with_search(mode: str, *, nested: bool = False) -> JsonObject:
    """Return allowed_tools that contain a provider's own tool."""
    members: JsonObject = {"mode": mode, "tools": [{"type": "function", "name": "g"}, {"type": "web_search"}]}
    return {"type": "allowed_tools", **({"allowed_tools": members} if nested else members)}


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
        (ToolChoice(names=NAMES, raw=allow_with_search("auto")), ToolChoice(names=NAMES, raw=allow_with_search("auto"))),
        *[
            (
                ToolChoice(mode="required", names=NAMES, raw=allow_with_search("required", nested=nested)),
                ToolChoice(names=NAMES, raw=allow_with_search("auto", nested=nested)),
            )
            for nested in (False, True)
        ],
    ],
    ids=format_value,
)
def test_forced_choice_is_relaxed_after_a_gateway_run(before: ToolChoice | None, after: ToolChoice | None) -> None:
    playbook = Playbook(make_turn(make_request("f", tool_choice=before), auto="g"))
    assert next_request(playbook.commands).tool_choice == before
    playbook >> [*model_call(0, "g"), CALLS]
    assert playbook.commands[-3:] == run_commands(0, "g")
    playbook >> run_finished(0)
    assert next_request(playbook.commands).tool_choice == after


def test_usage_is_summed_over_all_answers() -> None:
    playbook = Playbook(make_turn(auto="g"))
    playbook >> [*model_call(0, "g"), AnswerFinished(finish="calls", usage=Usage(input=10, output=3, cached=4))]
    playbook << ... >> run_finished(0) << ...
    playbook >> [AnswerFinished(finish="stop", usage=Usage(input=20, output=5, total=25, reasoning=2))]
    total = Usage(input=30, output=8, total=38, cached=4, reasoning=2)
    assert emitted(playbook.commands) == [AnswerFinished(finish="stop", usage=total)]
    assert playbook.turn.usage == total
    assert recorded(playbook.commands)[-1] == TurnFinished(finish="stop", usage=total)


def test_missing_usage_of_the_last_answer_leaves_the_sum() -> None:
    playbook = Playbook(make_turn(auto="g")) >> [
        *model_call(0, "g"),
        AnswerFinished(finish="calls", usage=Usage(input=10, output=3)),
    ]
    playbook << ... >> run_finished(0) << ...
    playbook >> [STOP]
    assert emitted(playbook.commands) == [AnswerFinished(finish="stop", usage=Usage(input=10, output=3))]


def test_call_ids_continue_in_the_next_answer() -> None:  # bug 29
    playbook = Playbook(make_turn(make_request("f"), auto="g")) >> [*model_call(0, "g"), CALLS]
    playbook << ... >> run_finished(0) << ...
    playbook >> model_call(0, "f") << [Emit(client_call(0, "f", number=1))]


def test_without_parallel_calls_each_answer_may_have_one() -> None:  # bug 27
    playbook = Playbook(trusting_layer(make_turn(make_request(parallel_tool_calls=False), auto="g")))
    playbook >> [*model_call(0, "g"), *model_call(1, "g"), CALLS]
    assert notices(playbook.commands) == [("parallel_tool_calls_false", None)]
    playbook >> run_finished(0) << ...
    playbook >> [*model_call(0, "g"), CALLS]
    assert playbook.commands[-3:] == run_commands(1, "g")


def test_reasoning_is_sent_back_in_its_place() -> None:  # bug 31
    events: list[StreamEvent] = [ReasoningDelta("hm"), *model_call(0, "g"), CALLS]
    items: tuple[Item, ...] = (Message(role="user", content="hi"),)
    playbook = Playbook(make_turn(replace(make_request(), items=items), auto="g")) >> events
    assert emitted(playbook.commands)[:1] == [ReasoningDelta("hm")]
    playbook >> run_finished(0)
    assert next_request(playbook.commands).items == (*items, Reasoning(text=("hm",)), call_item(0, "g"), result_item(0))
