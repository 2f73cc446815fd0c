"""Answers that are relayed as they come: the request's rules bind their calls, and nothing else is changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.playbook import asked, called
from toolrelay.core.events import AnswerFinished, ArgumentsDelta, CallFinished, CallStarted, Noticed, StreamEvent, TextDelta
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.relay import RelaySession, can_relay
from toolrelay.toolcalls.session import State

STOP = AnswerFinished(finish="stop")
NATIVE = ToolCallOptions(dialect=discover()["sealed"], native=True, on_bad_call="pass")
PRINTING = ToolCallOptions(dialect=discover()["hermes"])


def relay(request: Request, events: list[StreamEvent]) -> tuple[list[StreamEvent], list[tuple[str, str | None]]]:
    """What the client gets, and the rules that were reported."""
    out = RelaySession(request).feed(events)
    notices = [(event.rule, event.tool) for event in out if isinstance(event, Noticed)]
    return [event for event in out if not isinstance(event, Noticed)], notices


def test_events_without_calls_pass_as_the_same_batch() -> None:
    batch: list[StreamEvent] = [TextDelta("a"), TextDelta("b")]
    assert RelaySession(asked("f")).feed(batch) is batch


def test_unknown_tool_passes_with_a_notice() -> None:  # bug 28
    assert relay(asked("f"), called(0, "nope")) == (called(0, "nope"), [("unknown_tool", "nope")])
    assert relay(asked("f"), called(0, "f")) == (called(0, "f"), [])


def test_tool_with_a_namespace_is_the_clients_own() -> None:
    events: list[StreamEvent] = [CallStarted(0, "find", namespace="crm")]
    assert relay(asked("f"), events) == (events, [])


def test_tool_choice_none_drops_calls() -> None:  # bug 26
    events = [TextDelta("a"), *called(0, "f"), TextDelta("b"), STOP]
    kept, notices = relay(asked("f", tool_choice=ToolChoice(mode="none")), events)
    assert kept == [TextDelta("a"), TextDelta("b"), STOP]
    assert notices == [("tool_choice_none", "f")]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_tools_that_are_not_allowed_are_dropped(mode: str) -> None:  # bug 26
    choice = ToolChoice(mode="required" if mode == "required" else "auto", names=(("function", "g"), ("custom", "f")))
    kept, notices = relay(asked("f", "g", tool_choice=choice), [*called(0, "f"), *called(1, "g")])
    assert kept == called(1, "g")
    assert notices == [("not_in_allowed_tools", "f")]


def test_tool_other_than_the_named_one_is_dropped() -> None:  # bug 26
    choice = ToolChoice(mode="named", names=(("function", "g"),))
    kept, notices = relay(asked("f", "g", tool_choice=choice), [*called(0, "f"), *called(1, "g")])
    assert kept == called(1, "g")
    assert notices == [("not_the_named_tool", "f")]


def test_without_parallel_calls_the_first_of_each_choice_is_kept() -> None:  # bug 27
    events = [*called(0, "f"), *called(1, "g"), *called(0, "f", choice=1), *called(1, "g", choice=1), *called(2, "f")]
    kept, notices = relay(asked("f", "g", parallel_tool_calls=False), events)
    assert kept == [*called(0, "f"), *called(0, "f", choice=1)]
    assert notices == [("parallel_tool_calls_false", name) for name in ("g", "g", "f")]


def test_dropped_call_does_not_count_as_the_first() -> None:  # bug 27
    choice = ToolChoice(names=(("function", "g"),))
    kept, _ = relay(asked("f", "g", parallel_tool_calls=False, tool_choice=choice), [*called(0, "f"), *called(1, "g")])
    assert kept == called(1, "g")


def test_index_of_a_dropped_call_can_be_used_again() -> None:  # bug 7
    choice = ToolChoice(names=(("function", "g"),))
    kept, _ = relay(asked("f", "g", tool_choice=choice), [*called(0, "f"), *called(0, "g")])
    assert kept == called(0, "g")


def test_nothing_follows_the_end() -> None:
    session = RelaySession(asked("f"))
    assert session.feed([TextDelta("a"), STOP, TextDelta("b")]) == [TextDelta("a"), STOP]
    assert session.state is State.ENDED


@pytest.mark.parametrize(
    ("request_", "options", "relayed"),
    [
        (asked(), NATIVE, True),
        (asked("f"), NATIVE, True),
        (asked("f", parallel_tool_calls=True), NATIVE, True),
        (asked("f", parallel_tool_calls=False), NATIVE, False),
        (asked("f", tool_choice=ToolChoice(mode="required")), NATIVE, False),
        (asked("f"), replace(NATIVE, scans_text=True), False),
        (asked("f"), replace(NATIVE, whole_calls=True), False),
        (asked("f"), replace(NATIVE, on_bad_call="retry"), False),
        (asked("f"), replace(NATIVE, any_names=False), True),
        (asked("f.g"), replace(NATIVE, any_names=False), False),
        (asked(), PRINTING, True),
        (asked("f"), PRINTING, False),
    ],
)
def test_a_session_is_used_only_where_something_may_have_to_be_done(
    request_: Request, options: ToolCallOptions, *, relayed: bool
) -> None:
    assert can_relay(request_, options) is relayed


def test_stop_sequences_need_a_session_where_the_server_knows_none() -> None:
    request = asked()
    stopping = replace(request, sampling=replace(request.sampling, stop="END"))
    assert can_relay(stopping, NATIVE)
    assert not can_relay(stopping, replace(NATIVE, emulates_stop=True))


def test_arguments_of_two_choices_stay_apart() -> None:
    events: list[StreamEvent] = [
        CallStarted(0, "f"),
        CallStarted(0, "g", choice=1),
        ArgumentsDelta(0, "{}", 1),
        CallFinished(0, 1),
    ]
    assert relay(replace(asked(), tools=(Tool(name="f"), Tool(name="g"))), events) == (events, [])
