"""Relayed answers: the request's rules apply to their calls, and nothing else is changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.playbook import make_request, model_call
from toolrelay.core.events import AnswerFinished, ArgumentsDelta, CallFinished, CallStarted, Noticed, StreamEvent, TextDelta
from toolrelay.core.request import Request, Tool, ToolChoice
from toolrelay.dialects.base import discover
from toolrelay.toolcalls.options import ToolCallOptions
from toolrelay.toolcalls.relay import RelaySession, can_relay
from toolrelay.toolcalls.states import State

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
    assert RelaySession(make_request("f")).feed(batch) is batch


def test_unknown_tool_passes_with_a_notice() -> None:  # bug 28
    assert relay(make_request("f"), model_call(0, "nope")) == (model_call(0, "nope"), [("unknown_tool", "nope")])
    assert relay(make_request("f"), model_call(0, "f")) == (model_call(0, "f"), [])


def test_tool_in_a_namespace_passes_without_a_notice() -> None:
    events: list[StreamEvent] = [CallStarted(0, "find", namespace="crm")]
    assert relay(make_request("f"), events) == (events, [])


def test_tool_choice_none_drops_calls() -> None:  # bug 26
    events = [TextDelta("a"), *model_call(0, "f"), TextDelta("b"), STOP]
    kept, notices = relay(make_request("f", tool_choice=ToolChoice(mode="none")), events)
    assert kept == [TextDelta("a"), TextDelta("b"), STOP]
    assert notices == [("tool_choice_none", "f")]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_tools_that_are_not_allowed_are_dropped(mode: str) -> None:  # bug 26
    choice = ToolChoice(mode="required" if mode == "required" else "auto", names=(("function", "g"), ("custom", "f")))
    kept, notices = relay(make_request("f", "g", tool_choice=choice), [*model_call(0, "f"), *model_call(1, "g")])
    assert kept == model_call(1, "g")
    assert notices == [("not_in_allowed_tools", "f")]


def test_tool_in_a_namespace_passes_beside_a_providers_tools() -> None:
    choice = ToolChoice(names=(("function", "f"),), raw={"type": "allowed_tools"})
    events: list[StreamEvent] = [CallStarted(0, "find", namespace="crm")]
    assert relay(make_request("f", tool_choice=choice), events) == (events, [])


def test_tool_other_than_the_named_one_is_dropped() -> None:  # bug 26
    choice = ToolChoice(mode="named", names=(("function", "g"),))
    kept, notices = relay(make_request("f", "g", tool_choice=choice), [*model_call(0, "f"), *model_call(1, "g")])
    assert kept == model_call(1, "g")
    assert notices == [("not_the_named_tool", "f")]


def test_without_parallel_calls_the_first_of_each_choice_is_kept() -> None:  # bug 27
    events = [
        *model_call(0, "f"),
        *model_call(1, "g"),
        *model_call(0, "f", choice=1),
        *model_call(1, "g", choice=1),
        *model_call(2, "f"),
    ]
    kept, notices = relay(make_request("f", "g", parallel_tool_calls=False), events)
    assert kept == [*model_call(0, "f"), *model_call(0, "f", choice=1)]
    assert notices == [("parallel_tool_calls_false", name) for name in ("g", "g", "f")]


def test_dropped_call_does_not_count_as_the_first() -> None:  # bug 27
    choice = ToolChoice(names=(("function", "g"),))
    kept, _ = relay(
        make_request("f", "g", parallel_tool_calls=False, tool_choice=choice), [*model_call(0, "f"), *model_call(1, "g")]
    )
    assert kept == model_call(1, "g")


def test_index_of_a_dropped_call_can_be_used_again() -> None:  # bug 7
    choice = ToolChoice(names=(("function", "g"),))
    kept, _ = relay(make_request("f", "g", tool_choice=choice), [*model_call(0, "f"), *model_call(0, "g")])
    assert kept == model_call(0, "g")


def test_nothing_follows_the_end() -> None:
    session = RelaySession(make_request("f"))
    assert session.feed([TextDelta("a"), STOP, TextDelta("b")]) == [TextDelta("a"), STOP]
    assert session.state is State.ENDED


@pytest.mark.parametrize(
    ("request_", "options", "relayed"),
    [
        (make_request(), NATIVE, True),
        (make_request("f"), NATIVE, True),
        (make_request("f", parallel_tool_calls=True), NATIVE, True),
        (make_request("f", parallel_tool_calls=False), NATIVE, False),
        (make_request("f", tool_choice=ToolChoice(mode="required")), NATIVE, False),
        (make_request("f"), replace(NATIVE, scans_text=True), False),
        (make_request("f"), replace(NATIVE, whole_calls=True), False),
        (make_request("f"), replace(NATIVE, on_bad_call="retry"), False),
        (make_request("f"), replace(NATIVE, accepts_any_name=False), True),
        (make_request("f.g"), replace(NATIVE, accepts_any_name=False), False),
        (make_request(), PRINTING, True),
        (make_request("f"), PRINTING, False),
    ],
)
def test_only_requests_that_need_no_work_are_relayed(request_: Request, options: ToolCallOptions, *, relayed: bool) -> None:
    assert can_relay(request_, options) is relayed


def test_emulated_stop_sequences_need_a_session() -> None:
    request = make_request()
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
    assert relay(replace(make_request(), tools=(Tool(name="f"), Tool(name="g"))), events) == (events, [])
